"""One Cassandra table's batches on their way into the lake: read what they touch -> join -> ledger -> merge.

Cells have versions of their own, so no position can tell what applies: every batch reads the rows under its keys, and
those that its deletes cover, and joins them (``cassandra/rows.py``). Whatever is read again joins to the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from headrace.cassandra.rows import fold_writes
from headrace.core.merge.actions import lake_columns, table_schema
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.cell_batch import CassandraBatch
from headrace.core.model.cell_writes import Key
from headrace.core.model.errors import Fatal
from headrace.core.model.events import RowVersion
from headrace.ports import Commit, LakeTable
from headrace.runtime.pipeline.schema_evolution import evolve


class CassandraPipeline:
    """Writes the batches of one table, one at a time. Times in microseconds."""

    def __init__(
        self,
        name: str,
        table: LakeTable,
        tombstone_retention: int,
        now: Callable[[], int],
        *,
        new_columns: bool = True,
    ) -> None:
        self._name = name
        self._table = table
        self._tombstone_retention = tombstone_retention
        self._now = now
        self._new_columns = new_columns
        self._ledger: dict[str, RowVersion] | None = None

    def prepare(self) -> bool:
        """Read the ledger where it is not known; whether that was so. It counts for who was still the owner then."""
        unknown = self._ledger is None
        self._known()
        return unknown

    def write(self, batch: CassandraBatch, commit: Commit) -> tuple[()]:
        """Make a batch durable: once this returns, the table reflects it and ``commit`` stands in its history.

        Leaves nothing out. Raises Retriable (call again with the same arguments) or Fatal; after an error nothing is
        half done that a second call does not complete.
        """
        try:
            self._write(batch, commit)
        except BaseException:
            self._ledger = None  # read it again: it may hold more than we know
            raise
        return ()

    def assigned(self) -> None:
        """Another assignment begins: somebody else may have written."""
        self._ledger = None

    def maintain(self) -> None:
        """Compaction, snapshot expiry and ledger retention, if due."""
        self._table.maintain(self._now(), self._tombstone_retention)

    def _write(self, batch: CassandraBatch, commit: Commit) -> None:
        folded = fold_writes(batch, self._stored(batch), self._known(), self._now())
        actions = lake_columns(folded.actions, self._table.schema())
        columns = table_schema(actions)
        if self._table.schema() is not None or set(batch.key_fields) <= set(columns.names):
            evolve(self._name, self._table, columns, batch.key_fields, new_columns=self._new_columns)
        if folded.tombstones:
            self._table.record_tombstones(folded.tombstones, self._now())
            self._ledger = dict(self._table.ledger())
        if self._table.schema() is None:
            return  # deletes only, without schemas: nothing says which types the key columns of a new table have
        counts = self._table.merge(actions, commit)
        due = int((~actions.delete).sum()), int(actions.delete.sum())
        if (counts.upserted, counts.deleted) != due:
            raise Fatal(
                f"{self._name}: {due[0]} upserts and {due[1]} deletes were due, {counts.upserted} and {counts.deleted} "
                "applied: another writer may work on this table; make sure that nobody else writes it, then restart "
                "the task"
            )

    def _known(self) -> dict[str, RowVersion]:
        if self._ledger is None:
            self._ledger = dict(self._table.ledger())
        return self._ledger

    def _stored(self, batch: CassandraBatch) -> pa.Table:
        """The rows that stand under the keys of the batch, whole or not, each once."""
        schema = self._table.schema()
        if schema is None:
            return pa.table({})
        lengths = range(1, len(batch.key_fields) + 1)
        found = [self._table.read(_keys(batch, schema, keys)) for n in lengths if (keys := batch.keys(n))]
        rows = pa.concat_tables(found)
        return rows.take(_first_places(rows, batch.key_fields))


def _keys(batch: CassandraBatch, schema: pa.Schema, keys: Sequence[Key]) -> pa.Table:
    """Keys, or the beginnings of keys, in the table's types."""
    columns = {}
    for member, values in zip(batch.fields, zip(*keys, strict=True), strict=False):
        columns[member.name] = build_array(member.schema, values).cast(schema.field(member.name).type)
    return pa.table(columns)


def _first_places(rows: pa.Table, key_fields: Sequence[str]) -> pa.Array:
    seen = {key: place for place, key in reversed(list(enumerate(_rows(rows, key_fields))))}
    return pa.array(sorted(seen.values()), pa.int64())


def _rows(rows: pa.Table, key_fields: Sequence[str]) -> list[tuple[pa.Scalar, ...]]:
    return list(zip(*(rows[name].combine_chunks() for name in key_fields), strict=True))
