"""Which tables the column cache admits: those whose rows are read from the source again.

An entry costs as much CPU time as a read. If no row is read twice, as in a job that touches each row once, a cache
would double the cost of reselect. Until a table shows reuse, nothing of it is cached, and so nothing is stale.

Tests: ``tests/unit/core/reselect/cache/test_admission.py``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from headrace.core.model.events import TableId

_REMEMBERED = 2**18
"""Reads of all tables that are remembered, in two megabytes. A later read replaces the one in its place."""
_SHARE = 0.05
"""Of a table's reads that are of a row which was read before: from there on the cache saves more than it costs."""
_HALF_LIFE = 2**16
"""Reads of a table after which the earlier ones count half."""


class Admission:
    """Observes the reads of all tables. Not thread-safe."""

    def __init__(self) -> None:
        self._last = np.zeros(_REMEMBERED, np.int64)  # hashes of table and key
        self._counts: dict[TableId, tuple[int, int]] = {}  # of tables that are not admitted: reads, repeated ones
        self._admitted: set[TableId] = set()

    def admits(self, table: TableId) -> bool:
        """Return whether rows of a table have been read again. A table that was admitted stays so."""
        return table in self._admitted

    def observe(self, table: TableId, keys: pa.StringArray) -> None:
        """Remember that the source was queried for the rows under ``keys``, each once."""
        if table in self._admitted:
            return
        codes = np.fromiter(map(hash, keys.to_pylist()), np.int64, len(keys)) ^ hash(table)
        places = codes % _REMEMBERED
        reads, repeated = self._counts.get(table, (0, 0))
        reads, repeated = reads + len(codes), repeated + int((self._last[places] == codes).sum())
        self._last[places] = codes
        if repeated > _SHARE * reads:
            self._admitted.add(table)
            self._counts.pop(table, None)
        else:
            self._counts[table] = (reads // 2, repeated // 2) if reads > _HALF_LIFE else (reads, repeated)
