"""Keeping a table small and fast: compaction, expiry of old files and of tombstones, decided by counts.

Every commit leaves a few small files and deletes. How many there are stands in the commit's own summary where the
format writes that there, so that deciding costs nothing; otherwise commits are counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace_connectors.lakehouse.ledger import TombstoneLedger, ledger_path
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath
from headrace_connectors.lakehouse.table_session import TableSession

FILES_UNTIL_COMPACTION = 24
"""Files and delete files that may come up since the last compaction."""

LEDGER_COMMITS_UNTIL_COMPACTION = 100
_DAY = 24 * 3600 * 1_000_000


class Upkeep:
    """What is due for one table and its ledger."""

    def __init__(
        self, session: TableSession, table_format: TableFormat, ledger: TombstoneLedger, path: TablePath
    ) -> None:
        self._session = session
        self._format = table_format
        self._ledger = ledger
        self._path = path
        self._files = 0
        self._compacted = 0
        self._ledger_commits = 0
        self._day: int | None = None

    def committed(self, files: int | None) -> None:
        """A commit has left the table with these files; with one more where that is not known."""
        self._files = self._files + 1 if files is None else files
        self._compacted = min(self._compacted, self._files)

    def ledger_grew(self) -> None:
        """Tombstones were added."""
        self._ledger_commits += 1

    def run(self, now: int, tombstone_retention: int) -> None:
        """Do what is due. Times in microseconds."""
        if self._files - self._compacted >= FILES_UNTIL_COMPACTION:
            self._run(self._format.compact(self._path))
            self._compacted = self._files
        if self._ledger_commits >= LEDGER_COMMITS_UNTIL_COMPACTION:
            self._run(self._format.compact(ledger_path(self._path)))
            self._ledger_commits = 0
        if self._day != now // _DAY:
            self._ledger.expire(now - tombstone_retention)
            self._clean()
            self._day = now // _DAY

    def _clean(self) -> None:
        for path in (self._path, ledger_path(self._path)):
            self._run(self._format.clean(path))

    def _run(self, statements: Sequence[str]) -> None:
        for statement in statements:
            self._session.run(statement)
