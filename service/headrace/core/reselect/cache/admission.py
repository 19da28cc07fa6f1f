"""Which tables the column cache admits: those whose rows are read from the source again.

An entry costs as much CPU time as a read. If no row is read twice, as in a job that touches each row once, a cache
would double the cost of reselect. Until a table shows reuse, nothing of it is cached, and so nothing is stale.

Tests: ``tests/unit/core/reselect/cache/test_admission.py``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.core.model.events import TableId

_REMEMBERED = 2**16
"""Rows of a table whose reads are remembered: half a megabyte. A later row replaces the one in its place."""
_SHARE = 0.05
"""Of a table's reads that are of a row which was read before: from there on the cache saves more than it costs."""


class Admission:
    """Observes the reads of each table. Not thread-safe."""

    def __init__(self) -> None:
        self._reads: dict[TableId, _Reads] = {}
        self._admitted: set[TableId] = set()

    def admits(self, table: TableId) -> bool:
        """Return whether rows of a table have been read again. A table that was admitted stays so."""
        return table in self._admitted

    def observe(self, table: TableId, keys: pa.StringArray) -> None:
        """Remember that the source was queried for the rows under ``keys``, each once."""
        if table in self._admitted:
            return
        reads = self._reads.setdefault(table, _Reads())
        reads.add(keys)
        if reads.repeated > _SHARE * reads.count:
            self._admitted.add(table)
            del self._reads[table]


class _Reads:
    """The last reads of a table, and how many of them were of a row that was remembered."""

    def __init__(self) -> None:
        self._last = np.zeros(_REMEMBERED, np.int64)
        self.count = self.repeated = 0

    def add(self, keys: pa.StringArray) -> None:
        codes = np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys))
        places = codes % _REMEMBERED
        self.repeated += int((self._last[places] == codes).sum())
        self._last[places] = codes
        self.count += len(codes)
        if self.count > _REMEMBERED:  # what was long ago counts less
            self.count, self.repeated = self.count // 2, self.repeated // 2
