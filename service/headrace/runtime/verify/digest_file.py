"""The digests of one side's rows, in a file: about 30 bytes and the key for each row.

Tests: ``tests/unit/runtime/verify/test_table_verifier.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.verify.digest import Digests, Ints, RangeChecksums, range_of
from headrace.core.verify.verification import Rows

KEY, ROW, RANGE = "__key", "__row", "__range"


class DigestFile:
    """Stores rows once and finds them by range. A context manager that removes its file."""

    def __init__(self, path: Path, keys: pa.Schema) -> None:
        self.checksums = RangeChecksums()
        self.rows = 0
        self._path = path
        self._names = keys.names
        self._schema = pa.schema([*keys, (KEY, pa.uint64()), (ROW, pa.uint64()), (RANGE, pa.int16())])
        self._writer: pa.RecordBatchStreamWriter | None = pa.ipc.new_stream(str(path), self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._finish()
        self._path.unlink(missing_ok=True)

    def add(self, rows: Rows) -> None:
        """Add rows, before the first ``select``."""
        if self._writer is None:
            raise ValueError("rows cannot be added after a select")
        self.checksums.add(rows.key, rows.cells)
        self.rows += len(rows)
        digest_arrays = [pa.array(rows.key), pa.array(rows.cells), pa.array(range_of(rows.key).astype(np.int16))]
        arrays = [*rows.keys(self._names).columns, *digest_arrays]
        self._writer.write_table(pa.table(arrays, self._schema))

    def select(self, ranges: Ints) -> pa.Table:
        """Return the rows of some ranges."""
        self._finish()
        wanted = pa.array(ranges.astype(np.int16))
        with pa.memory_map(str(self._path)) as source, pa.ipc.open_stream(source) as reader:
            batches = [batch.filter(pc.is_in(batch.column(RANGE), wanted)) for batch in reader]
            # Copied, because the memory of the batches ends with the mapping.
            return pa.concat_tables([pa.Table.from_batches(batches, self._schema)]).combine_chunks()

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def digests(rows: pa.Table, name: str) -> Digests:
    return np.asarray(rows[name].combine_chunks())
