"""Maintenance of a table: compaction, expiry of old files and of tombstones, when counts make them due.

Every commit adds a few small files and deletes. If the commit's summary contains their number, the decision costs
nothing; otherwise commits are counted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from headrace_connectors.lakehouse.failures import Conflict
from headrace_connectors.lakehouse.ledger import TombstoneLedger, ledger_path
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession

log = logging.getLogger(__name__)

FILES_UNTIL_COMPACTION = 24
"""Files and delete files that may be added after a compaction before the next one."""

FILES_OF_A_COMMIT = 2
"""The assumed files of a commit, a file and a deletion vector, if the commit does not contain their number."""

LEDGER_COMMITS_UNTIL_COMPACTION = 100
_DAY = 24 * 3600 * 1_000_000


class Upkeep:
    """The maintenance that is due for one table and its ledger."""

    def __init__(
        self,
        session: TableSession,
        table_format: TableFormat,
        ledger: TombstoneLedger,
        path: TablePath,
        carried: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """``carried`` returns the properties that every commit to the table repeats."""
        self._carried = carried
        self._session = session
        self._format = table_format
        self._ledger = ledger
        self._path = path
        self._files = 0
        self._compacted = 0
        self._ledger_commits = 0
        self._expired: int | None = None
        self._cleaned: int | None = None

    def committed(self, files: int | None) -> None:
        """Register a commit after which the table has these files; None if that is unknown."""
        self._files = self._files + FILES_OF_A_COMMIT if files is None else files
        self._compacted = min(self._compacted, self._files)

    def ledger_grew(self) -> None:
        """Register that tombstones were added."""
        self._ledger_commits += 1

    def is_due(self, now: int) -> bool:
        """Return whether ``run`` has something to do."""
        return self._expired != now // _DAY or self._table_is_due or self._ledger_is_due

    @property
    def _table_is_due(self) -> bool:
        return self._files - self._compacted >= FILES_UNTIL_COMPACTION

    @property
    def _ledger_is_due(self) -> bool:
        return self._ledger_commits >= LEDGER_COMMITS_UNTIL_COMPACTION

    def run(self, now: int, tombstone_retention: int) -> None:
        """Do the maintenance that is due. Times in microseconds.

        If the commit of another writer conflicts with it, the maintenance waits until it is due again, without an
        error.
        """
        try:
            self._compact(now // _DAY)
            if self._expired != now // _DAY:
                self._ledger.expire(now - tombstone_retention)
                self._expired = now // _DAY
        except Conflict as error:
            log.info("Maintenance failed and is repeated later: %s", error)

    def _compact(self, day: int) -> None:
        if self._table_is_due:
            self._compacted = self._files
            carried = self._carried()
            with self._session.configured(self._format.commit_settings(carried)):
                self._run(self._format.compact(self._path))
                self._format.carry(self._session, self._path, carried)
                self._clean(day)
        if self._ledger_is_due:
            self._ledger_commits = 0
            self._run(self._format.compact(ledger_path(self._path)))

    def _clean(self, day: int) -> None:
        """Once a day at most, and only after a compaction: it lists all of the table's files."""
        if self._cleaned != day:
            for path in (self._path, ledger_path(self._path)):
                self._run(self._format.clean(path))
            self._cleaned = day

    def _run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._session.run(statement)
