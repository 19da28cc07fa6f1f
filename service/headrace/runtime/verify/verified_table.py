"""A source table with its lake table, and the rows of the lake that are compared.

Tests: ``tests/unit/runtime/verify/test_table_verifier.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.events import TableId
from headrace.core.verify.table_digest import TableDigest
from headrace.core.verify.verification import Comparison, Rows, lake_rows
from headrace.ports import LakeTable, TableSource


@dataclass(frozen=True, slots=True)
class VerifiedTable:
    """A table of the catalog with its compared columns, and the lake table of its topic.

    Of a ``history``, the last state of each key is compared.
    """

    id: TableId
    catalog: CatalogTable
    wanted: Comparison
    source: TableSource
    lake: LakeTable
    history: bool = False

    def new_digest(self) -> TableDigest | None:
        """Return a digest for ``lake_rows``; None if the table has none: a history, or one without a commit."""
        snapshot = None if self.history or not self.wanted.lake_names else self.lake.snapshot(self._all_names)
        return None if snapshot is None else TableDigest(snapshot)

    def lake_rows(self, digest: TableDigest | None = None) -> Iterator[Rows]:
        """Yield the rows of the lake, a piece at a time.

        With a ``digest``, the rows as of its snapshot, which are added to it with all columns.
        """
        wanted = self.wanted
        pieces: Iterator[pa.Table] = iter(())
        if digest is not None:
            pieces = self.lake.scan(self._all_names, digest.snapshot)
        elif self.history and wanted.lake_names:
            pieces = self.lake.last_states(wanted.key_fields, wanted.lake_names)
        elif wanted.lake_names:
            pieces = self.lake.scan(wanted.lake_names)
        for piece in pieces:
            if digest is not None:
                digest.add(piece)
            yield lake_rows(wanted, piece)

    def lake_rows_under(self, keys: pa.Table) -> Rows:
        """Return the rows of the lake under ``keys``, with their versions."""
        if not self.history:
            return lake_rows(self.wanted, self.lake.read(keys))
        stored = self.lake.schema()
        if stored is None:
            return lake_rows(self.wanted, keys.slice(0, 0))
        names = [name for name in self.wanted.names if name in stored.names]
        return lake_rows(self.wanted, pa.concat_tables(self.lake.last_states(keys.column_names, names, keys)))

    @property
    def _all_names(self) -> Sequence[str]:
        return [*self.wanted.lake_names, *self.wanted.kept, *self.wanted.changed]
