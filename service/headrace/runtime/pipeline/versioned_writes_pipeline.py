"""The pipeline of a table whose cells have versions of their own: read rows -> merge writes -> ledger -> merge rows.

No position of a row can decide which events apply. Every batch reads the rows under its keys and those that its deletes
cover, and merges itself with them (``VersionedWrites``). Merging it again gives the same result.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from headrace.core.model.actions import lake_columns, table_schema
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.errors import Fatal
from headrace.core.model.events import RowVersion
from headrace.core.model.versioned_writes import VersionedWrites
from headrace.ports import Commit, LakeTable
from headrace.runtime.pipeline.pipeline_parts import evolve


class VersionedWritesPipeline:
    """Writes the batches of one table, one at a time. Times in microseconds."""

    def __init__(
        self, name: str, table: LakeTable, tombstone_retention: int, now: Callable[[], int], *, new_columns: bool = True
    ) -> None:
        self._name = name
        self._table = table
        self._tombstone_retention = tombstone_retention
        self._now = now
        self._new_columns = new_columns
        self._ledger: dict[str, RowVersion] | None = None

    def prepare(self) -> bool:
        """Read the ledger if it is not in memory, and return whether it was read."""
        if self._ledger is not None:
            return False
        self._ledger = dict(self._table.ledger().items())
        return True

    def write(self, batch: VersionedWrites, commit: Commit) -> tuple[()]:
        """Make a batch durable: afterwards the table contains it, and the table's history contains ``commit``.

        Returns no unresolved changes. Raises Retriable (call again with the same arguments) or Fatal; a second call
        completes what a failed one has begun.
        """
        try:
            self._write(batch, commit)
        except BaseException:
            self._ledger = None  # read it again: it may contain more than the memory
            raise
        return ()

    def begin_assignment(self) -> None:
        """Begin an assignment: another worker may have written."""
        self._ledger = None

    def maintenance_due(self) -> bool:
        return self._table.maintenance_due(self._now())

    def maintain(self) -> None:
        self._table.maintain(self._now(), self._tombstone_retention)

    def _write(self, batch: VersionedWrites, commit: Commit) -> None:
        if self._ledger is None:
            self._ledger = dict(self._table.ledger().items())
        merged = batch.merged_with(self._read_stored_rows(batch), self._ledger, self._now())
        actions = lake_columns(merged.actions, self._table.schema())
        columns = table_schema(actions)
        if self._table.schema() is not None or set(batch.key_fields) <= set(columns.names):
            evolve(self._name, self._table, columns, batch.key_fields, new_columns=self._new_columns)
        if merged.tombstones:
            self._table.record_tombstones(merged.tombstones, self._now())
            self._ledger = dict(self._table.ledger().items())
        if self._table.schema() is None:
            return  # deletes only, without schemas: the types of a new table's key columns are unknown
        counts = self._table.merge(actions, commit)
        due = int((~actions.delete).sum()), int(actions.delete.sum())
        if (counts.upserted, counts.deleted) != due:
            raise Fatal(
                f"{self._name}: {due[0]} upserts and {due[1]} deletes were due, but {counts.upserted} and "
                f"{counts.deleted} applied: another writer may write to this table; stop it, then restart the task"
            )

    def _read_stored_rows(self, batch: VersionedWrites) -> pa.Table:
        """The stored rows under the keys, or key prefixes, of the batch, each once."""
        schema = self._table.schema()
        if schema is None:
            return pa.table({})
        reads = []
        for length in range(1, len(batch.key_fields) + 1):
            if not (keys := batch.keys(length)):
                continue
            columns = {}  # of keys, or key prefixes, in the table's types
            for member, values in zip(batch.fields, zip(*keys, strict=True), strict=False):
                columns[member.name] = build_array(member.schema, values).cast(schema.field(member.name).type)
            reads.append(self._table.read(pa.table(columns)))
        rows = pa.concat_tables(reads)
        # A prefix and a key below it both return the row of that key: keep the first.
        row_keys = zip(*(rows[name].combine_chunks() for name in batch.key_fields), strict=True)
        first = {key: index for index, key in reversed(list(enumerate(row_keys)))}
        return rows.take(pa.array(sorted(first.values()), pa.int64()))
