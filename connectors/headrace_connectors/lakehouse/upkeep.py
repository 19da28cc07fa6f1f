"""Keeping a table small and fast: compaction, expiry of snapshots and of tombstones, decided by counts.

Merge-on-read leaves a few small files and delete files per commit. How many there are stands in every commit's own
summary, so that deciding costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace_connectors.lakehouse.ledger import TombstoneLedger
from headrace_connectors.lakehouse.merge import text_literal
from headrace_connectors.lakehouse.schema import quoted
from headrace_connectors.lakehouse.table_session import TableSession

FILES_UNTIL_COMPACTION = 24
"""Files and delete files that may come up since the last compaction."""

LEDGER_COMMITS_UNTIL_COMPACTION = 100
_DAY = 24 * 3600 * 1_000_000


@dataclass(frozen=True, slots=True)
class TableFiles:
    """How many files a snapshot consists of."""

    data: int
    deletes: int

    @classmethod
    def of(cls, summary: Mapping[str, str]) -> TableFiles:
        """What a snapshot's summary says."""
        return cls(int(summary.get("total-data-files", 0)), int(summary.get("total-delete-files", 0)))

    @property
    def total(self) -> int:
        """Both kinds together."""
        return self.data + self.deletes


class Upkeep:
    """What is due for one table and its ledger. ``path`` holds namespace, table and ledger, unquoted."""

    def __init__(
        self, session: TableSession, catalog: str, ledger: TombstoneLedger, path: tuple[str, str, str]
    ) -> None:
        self._session = session
        self._procedures = f"{quoted(catalog)}.system"
        self._ledger = ledger
        namespace, table, ledger_table = path
        self._table = text_literal(f"{quoted(namespace)}.{quoted(table)}")
        self._ledger_table = text_literal(f"{quoted(namespace)}.{quoted(ledger_table)}")
        self._files = TableFiles(0, 0)
        self._compacted = 0
        self._ledger_commits = 0
        self._expired_day: int | None = None

    def committed(self, files: TableFiles) -> None:
        """A commit has left the table with these files."""
        self._files = files
        self._compacted = min(self._compacted, files.total)

    def ledger_grew(self) -> None:
        """Tombstones were added."""
        self._ledger_commits += 1

    def run(self, now: int, tombstone_retention: int) -> None:
        """Do what is due. Times in microseconds."""
        if self._files.total - self._compacted >= FILES_UNTIL_COMPACTION:
            self._compact(self._table)
            self._compacted = self._files.total
        if self._ledger_commits >= LEDGER_COMMITS_UNTIL_COMPACTION:
            self._compact(self._ledger_table)
            self._ledger_commits = 0
        if self._expired_day != now // _DAY:
            self._ledger.expire(now - tombstone_retention)
            self._expired_day = now // _DAY

    def _compact(self, table: str) -> None:
        """Rewrite small files and those with deletes, then let go of snapshots as the table's properties say."""
        options = "map('min-input-files', '2', 'delete-file-threshold', '1')"
        self._session.run(f"CALL {self._procedures}.rewrite_data_files(table => {table}, options => {options})")
        self._session.run(f"CALL {self._procedures}.expire_snapshots(table => {table})")
