"""Source positions that start again, after a failover or a restore, fail the table (``merge.md`` section 2.6).

``core/merge/position_restarts.py`` contains the rules for events with servers (MySQL, MariaDB); here is what lasts: the
restarts in the table's ledger, and in its commits how far the source's logs have been read. The events of other sources
are compared with the stored rows: after a restart they have lower positions although they are newer. Without this check
they would be treated as late, and be dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from headrace.core.merge.position_restarts import place_changes, with_truncate
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Changes, RowVersion, Truncate, Versions
from headrace.core.model.keys import FLOOR_KEY
from headrace.core.model.log_progress import Place, Progress, furthest
from headrace.ports import Commit, LakeTable
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
        placed = place_changes(
            content.table.name,
            versions,
            servers,
            self._progress,
            self._ledger.restarts,
            floor=self._ledger.entries.get(FLOOR_KEY),
            is_new=self._table.schema() is None,
            truncate=isinstance(content, Truncate),
        )
        # Recorded before the error, so that the answer (a higher epoch) applies from this record on.
        self._ledger.record_restarts(placed.restarts)
        if placed.unanswered is not None:
            restart, version, before = placed.unanswered, placed.unanswered.version, placed.before
            raise Fatal(
                f"{self._name}: {record_name(version)} is a new change of {_server(restart.server)} at "
                f"{_place(version.position)}, although records of {' and '.join(map(_server, before.numbers))} before "
                f"it reached {_place(before.position)}: the source connector reads the log of another server (after a "
                "failover, a restore or a change of the replica), and positions of two servers cannot be compared; "
                f"set source.position.epoch to {restart.epoch + 1} and restart the connector"
            )
        self._progress = placed.progress
        if isinstance(content, Truncate):
            content = replace(content, version=placed.versions.row(0))
            place = Place(content.version.topic, content.table.name, content.version.partition)
            self._progress = with_truncate(self._progress, place, content.version.position)
            if self._table.schema() is None:  # without a table, the truncate makes no commit
                self._ledger.record_truncate(self._progress, place, content.version)
        else:
            content = replace(content, version=placed.versions)
        return content, replace(commit, progress=self._progress)


def _server(text: str) -> str:
    server_id, _, gtid = text.partition(" ")
    return f"server_id {server_id}, GTID source {gtid}" if gtid else f"server_id {server_id}"


def _place(position: bytes) -> str:
    _, file, place, _ = position.decode().split(".")
    return f"binary log file {int(file)}, position {int(place)}"


# -- sources without servers in their events ---------------------------------------------------------------------------


class PositionRegression:
    """Refuses events of one table that are outranked although they are newer by more than ``limit`` microseconds."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit

    def refuse(self, changes: Changes, versions: Mapping[str, RowVersion], what: str = "the stored row") -> None:
        """Raise Fatal for an event whose key has a higher position in ``versions`` although that is much older."""
        for index, key in enumerate(changes.key.to_pylist() if versions else ()):
            if (version := versions.get(key)) is not None:
                self._refuse_event(changes.version.row(index), version, what)

    def refuse_blocked(self, changes: Changes, keys: Collection[str], ledger: Mapping[str, RowVersion]) -> None:
        """As ``refuse``, for keys of which the ledger blocks every event, so that no merge shows it."""
        self.refuse(changes, {key: ledger[key] for key in keys if key in ledger}, "the row's delete")
        if FLOOR_KEY in ledger:
            self.refuse(changes, dict.fromkeys(keys, ledger[FLOOR_KEY]), "the table's last truncate")

    def refuse_truncate(self, truncate: Truncate, floor: RowVersion) -> None:
        """As ``refuse``, for a truncate that does not raise the table's floor."""
        self._refuse_event(truncate.version, floor, "the table's last truncate")

    def _refuse_event(self, event: RowVersion, higher: RowVersion, what: str) -> None:
        if not event.position or event.position >= higher.position:
            return
        if (event.topic, event.partition) == (higher.topic, higher.partition) and event.offset <= higher.offset:
            return  # a record that is read again; in a long statement it may have a later time than its successors
        if event.source_time - higher.source_time > self._limit:
            raise Fatal(
                f"{self._name}: {record_name(event)} has position {event.position.decode()}, {what} has "
                f"{higher.position.decode()} although it is older by "
                f"{(event.source_time - higher.source_time) // 1_000_000} s: the source's positions seem to have "
                "started again; after a failover or restore raise source.position.epoch by one, otherwise raise "
                "source.position.regression.ms"
            )


def record_name(event: RowVersion) -> str:
    return f"{event.topic}-{event.partition} at offset {event.offset}"
