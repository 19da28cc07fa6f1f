"""The epochs of one table's changes, and the error where positions start again on another server.

``core/merge/position_restarts.py`` contains the rules; here is what lasts: the restarts in the table's ledger, and in
its commits how far the source's logs have been read.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.core.merge.position_restarts import Restart, placed, with_truncate
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Changes, Truncate, Versions
from headrace.core.model.keys import FLOOR_KEY
from headrace.core.model.log_progress import LogProgress, Place, Progress, furthest
from headrace.ports import Commit, LakeTable
from headrace.runtime.pipeline.position_regression import record_name
from headrace.runtime.pipeline.table_ledger import TableLedger


class LogEpochs:
    """Gives changes the epochs of their places in the source's logs, as far as they contain their servers."""

    def __init__(self, name: str, table: LakeTable, ledger: TableLedger) -> None:
        self._name = name
        self._table = table
        self._ledger = ledger
        self._progress: Progress | None = None

    def reset(self) -> None:
        """Read the progress again before its next use: another worker may have written, or a write has failed."""
        self._progress = None

    def place(self, content: Changes | Truncate, commit: Commit) -> tuple[Changes | Truncate, Commit]:
        """Return content with its epochs, and its commit with the progress after it.

        Raises Fatal where positions start again and ``source.position.epoch`` has not been raised for it. What is read
        again afterwards has the epochs that it had.
        """
        servers, version = content.servers, content.version
        if servers is None or not commit.group:
            return content, commit
        if self._progress is None:
            self._progress = furthest(self._table.log_progress(commit.group), self._ledger.truncate_progress)
        versions = version if isinstance(version, Versions) else Versions.of(version.topic, [version])
        floor = self._ledger.known.get(FLOOR_KEY)
        found = placed(
            content.table.name,
            versions,
            servers,
            self._progress,
            self._ledger.restarts,
            floor,
            is_new=self._table.schema() is None,
            truncate=isinstance(content, Truncate),
        )
        self._ledger.record_restarts(found.found)
        if found.unanswered is not None:
            raise Fatal(self._message(found.unanswered, found.before))
        self._progress = found.progress
        if isinstance(content, Truncate):
            content = replace(content, version=found.versions.row(0))
            place = Place(content.version.topic, content.table.name, content.version.partition)
            self._progress = with_truncate(self._progress, place, content.version.position)
            if self._table.schema() is None:  # without a table, the truncate makes no commit
                self._ledger.record_truncate(self._progress, place, content.version)
        else:
            content = replace(content, version=found.versions)
        return content, replace(commit, progress=self._progress)

    def _message(self, restart: Restart, before: LogProgress) -> str:
        """The error for a record whose position is not higher than that of what was read ``before`` it."""
        version = restart.version
        return (
            f"{self._name}: {record_name(version)} is a new change of {_server(restart.server)} at "
            f"{_place(version.position)}, although records of {' and '.join(map(_server, before.numbers))} before it "
            f"reached {_place(before.position)}: the source connector reads the log of another server (after a "
            "failover, a restore or a change of the replica), and positions of two servers cannot be compared; set "
            f"source.position.epoch to {restart.epoch + 1} and restart the connector"
        )


def _server(text: str) -> str:
    server_id, _, gtid = text.partition(" ")
    return f"server_id {server_id}, GTID source {gtid}" if gtid else f"server_id {server_id}"


def _place(position: bytes) -> str:
    """Return a position of a binary log for a reader."""
    _, file, place, _ = position.decode().split(".")
    return f"binary log file {int(file)}, position {int(place)}"
