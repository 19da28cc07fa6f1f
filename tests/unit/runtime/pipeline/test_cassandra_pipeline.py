"""Tests of Cassandra's writes in a lake table, which equals a read from all replicas after any batches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cassandra.cell_writes import (
    MARKED,
    Bound,
    CassandraTable,
    Cell,
    CellWrites,
    Delete,
    Key,
    Range,
    Write,
    comparison_bytes,
)
from headrace.cassandra.decoder import CassandraDecoder
from headrace.cassandra.rows import CassandraWrites
from headrace.converters.conversion import converting_decoder
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.schema import Field, Schema
from headrace.ports import Commit, TableOptions
from headrace.runtime.pipeline.versioned_writes_pipeline import VersionedWritesPipeline
from headrace_dev.memory import MemoryLakehouse, MemoryTable

TABLE = TableId("shop", "", "hr", "kv")
INT, TEXT = Schema("int32"), Schema("string", optional=True)
FIELDS = (Field("p", INT), Field("c", INT), Field("x", TEXT), Field("y", TEXT))
COMMIT = Commit(1, "sink", "connect-sink", {})
TIMES = st.integers(0, 6)


def value(text: str | None, written: int, expires: int | None = None) -> Cell:
    return Cell(written, text, b"" if text is None else comparison_bytes("string", text), expires)


@st.composite
def writes(draw: st.DrawFn) -> Write:
    written, key = draw(TIMES), (draw(st.integers(0, 1)), draw(st.integers(0, 2)))
    kind = draw(st.sampled_from(["insert", "insert", "update", "update", "row", "partition", "range"]))
    if kind in ("insert", "update"):
        expires = draw(st.sampled_from([None, None, 3, 5]))
        texts = draw(st.dictionaries(st.sampled_from("xy"), st.sampled_from(["a", "b", None]), max_size=2))
        cells = {name: value(text, written, None if text is None else expires) for name, text in texts.items()}
        return CellWrites(key, cells, Cell(written, MARKED, expires=expires) if kind == "insert" else None)
    if kind == "range":
        return Delete(key[:1], written, Range(Bound((key[1],)), Bound((key[1] + 1,), draw(st.booleans()))))
    return Delete(key if kind == "row" else key[:1], written)


@dataclass(frozen=True)
class SchemalessRecord:
    """A record without a schema, whose key has the names of the key columns and no clustering values."""

    value: bytes
    key: bytes = b'{"p":1,"c":null}'
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


def record(operation: str, written: int, **after: Any) -> bytes:
    """Return an event without a schema."""
    source = {"connector": "cassandra", "name": "shop", "ts_us": written, "keyspace": "hr", "table": "kv"}
    cells = {name: value if isinstance(value, dict | None) else {"value": value} for name, value in after.items()}
    return json.dumps({"op": operation, "source": source, "after": cells}, separators=(",", ":")).encode()


def bound(method: str, value: str) -> dict[str, Any]:
    """Return the bound of a range of the clustering column."""
    return {"method": method, "values": [{"name": "c", "value": value, "type": "o.a.c.db.marshal.Int32Type"}]}


class Lake:
    """A lake table and its pipeline, which a test can restart."""

    def __init__(self, now: int) -> None:
        self._lakehouse = MemoryLakehouse()
        self._now = now
        self._reader = converting_decoder(
            "shop.hr.kv",
            EnvelopeOptions(key_schemas=False, value_schemas=False),
            sources={"cassandra": CassandraDecoder},
        )
        self._offset = 0
        self.restart()

    def restart(self) -> None:
        self._table: MemoryTable = self._lakehouse.table("hr", "kv", TableOptions())
        self._pipeline = VersionedWritesPipeline("hr.kv", self._table, 10**15, lambda: self._now)

    def batch(self, *some: Write) -> None:
        self._offset += len(some)
        version = RowVersion(b"", "shop.hr.kv", 0, self._offset, 9)
        self._pipeline.write(CassandraWrites(TABLE, ("p", "c"), FIELDS, some, version), COMMIT)

    def records(self, *some: bytes) -> None:
        """Write a batch of records without schemas."""
        decoded = self._reader.decode([SchemalessRecord(value) for value in some])
        assert decoded.errant == []
        for piece in decoded.events:
            assert isinstance(piece, CassandraWrites)
            self._pipeline.write(piece, COMMIT)

    def rows(self) -> dict[Key, dict[str, Any]]:
        if self._table.schema() is None:
            return {}
        return {
            (row["p"], row["c"]): {name: row[name] for name in "xy" if row.get(name) is not None}
            for row in self._table.rows().values()
        }


@given(made=st.lists(writes(), min_size=1, max_size=14), now=TIMES, data=st.data())
def test_any_batches_give_what_all_replicas_would(made: list[Write], now: int, data: st.DataObject) -> None:
    """The table is correct for any order of writes, repeated writes, any batches, and restarts between them."""
    delivered = data.draw(st.permutations([*made, *data.draw(st.lists(st.sampled_from(made), max_size=5))]))
    lake, model = Lake(now), CassandraTable()
    for write in made:
        model.apply(write)
    while delivered:
        size = data.draw(st.integers(1, len(delivered)))
        batch, delivered = delivered[:size], delivered[size:]
        lake.batch(*batch)
        if data.draw(st.booleans()):
            lake.restart()
    assert lake.rows() == model.visible(now)


def test_a_late_write_does_not_restore_a_deleted_cell() -> None:
    """A late write does not restore a deleted cell, also if the row was deleted with it: the ledger has the cell."""
    lake = Lake(now=0)
    lake.batch(CellWrites((1, 1), {"x": value("new", 3)}))
    lake.batch(CellWrites((1, 1), {"x": value(None, 5)}))
    assert lake.rows() == {}
    lake.restart()
    lake.batch(CellWrites((1, 1), {"x": value("late", 4), "y": value("lives", 4)}))
    assert lake.rows() == {(1, 1): {"y": "lives"}}


def test_cells_that_a_batch_does_not_touch_are_kept() -> None:
    """A batch keeps the other cells of its rows, and the other rows of a partition in which a range is deleted."""
    lake = Lake(now=0)
    lake.batch(*(CellWrites((1, c), {"x": value("a", 1), "y": value("b", 1)}) for c in range(3)))
    lake.batch(CellWrites((1, 0), {"x": value("z", 2)}), Delete((1,), 2, Range(Bound((1,)), Bound((1,)))))
    assert lake.rows() == {(1, 0): {"x": "z", "y": "b"}, (1, 2): {"x": "a", "y": "b"}}


def test_a_late_insert_does_not_restore_an_expired_row() -> None:
    """A late INSERT does not restore a row whose later INSERT has expired."""
    lake = Lake(now=5)
    lake.batch(CellWrites((1, 1), {}, Cell(3, MARKED, expires=4)))
    lake.restart()
    lake.batch(CellWrites((1, 1), {}, Cell(2, MARKED)))
    assert lake.rows() == {}


def test_an_expired_cell_is_not_a_deleted_one() -> None:
    """Of two cells with the same write time the one with the later expiry is kept, also if the row has expired."""
    lake = Lake(now=4)
    lake.batch(CellWrites((1, 1), {"x": value("short", 2, expires=3)}))
    assert lake.rows() == {}
    lake.restart()
    lake.batch(CellWrites((1, 1), {"x": value("long", 2, expires=5)}))
    assert lake.rows() == {(1, 1): {"x": "long"}}


def test_an_expired_cell_of_a_row_is_not_a_deleted_one() -> None:
    """Of two cells with the same write time the one with the later expiry is kept, also if the row has other cells."""
    lake = Lake(now=4)
    lake.batch(CellWrites((1, 1), {"x": value("short", 2, expires=3), "y": value("stays", 2)}))
    assert lake.rows() == {(1, 1): {"y": "stays"}}
    lake.batch(CellWrites((1, 1), {"x": value("long", 2, expires=5)}))
    assert lake.rows() == {(1, 1): {"x": "long", "y": "stays"}}


def test_an_expired_cell_still_shadows_older_ones() -> None:
    """An expired cell shadows older cells, and a cell without a TTL with the same write time."""
    lake = Lake(now=4)
    lake.batch(CellWrites((1, 1), {"x": value("short", 2, expires=3)}))
    lake.restart()
    lake.batch(
        CellWrites((1, 1), {"x": value("older", 1), "y": value("lives", 1)}), CellWrites((1, 1), {"x": value("z", 2)})
    )
    assert lake.rows() == {(1, 1): {"y": "lives"}}


PARTITION_DELETE = record("d", 5, p=1, c=None, x={"value": None, "deletion_ts": 5})
RANGE_DELETE = record(
    "r", 5, p=1, c=None, x=None, _range_start=bound("INCL_START_BOUND", "1"), _range_end=bound("INCL_END_BOUND", "9")
)


@pytest.mark.parametrize("delete", [PARTITION_DELETE, RANGE_DELETE], ids=["partition", "range"])
def test_a_batch_of_deletes_without_schemas_applies(delete: bytes) -> None:
    """A batch of deletes without schemas uses the table's types, as it has no values to infer types from."""
    lake = Lake(now=0)
    lake.records(record("i", 1, p=1, c=1, x="gone"), record("i", 9, p=1, c=2, x="newer"))
    lake.records(delete)
    assert lake.rows() == {(1, 2): {"x": "newer"}}
    lake.restart()
    lake.records(record("i", 4, p=1, c=3, x="late"))
    assert lake.rows() == {(1, 2): {"x": "newer"}}


@pytest.mark.parametrize("delete", [PARTITION_DELETE, RANGE_DELETE], ids=["partition", "range"])
def test_deletes_without_schemas_come_before_the_first_row(delete: bytes) -> None:
    """The ledger stores deletes before the table exists, so that they delete older rows, also after a restart."""
    lake = Lake(now=0)
    lake.records(delete)
    assert lake.rows() == {}
    lake.restart()
    lake.records(record("i", 4, p=1, c=1, x="late"), record("i", 6, p=1, c=2, x="newer"))
    assert lake.rows() == {(1, 2): {"x": "newer"}}
    lake.restart()
    lake.records(record("i", 3, p=1, c=3, x="late"))
    assert lake.rows() == {(1, 2): {"x": "newer"}}
