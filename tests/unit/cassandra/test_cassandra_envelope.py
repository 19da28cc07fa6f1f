"""Cassandra envelopes are decoded to writes: operations, range bounds, write times and bad records."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cassandra.cell_writes import MARKED, SNAPSHOT_TIME, Bound, Cell, CellWrites, Delete, Range
from headrace.cassandra.decoder import write_of
from headrace.cassandra.losses import TEXTS, Loss, Losses
from headrace.core.model.errors import BadRecord

KEY = ("p", "c")


def cell(value: Any, ends: int | None = None) -> dict[str, Any]:
    return {"value": value, "deletion_ts": ends, "set": True}


def payload(operation: str, snapshot: str = "false", **after: Any) -> dict[str, Any]:
    return {"op": operation, "source": {"ts_us": 7, "snapshot": snapshot}, "after": after}


def write(operation: str, snapshot: str = "false", **after: Any) -> Any:
    return write_of(payload(operation, snapshot, **after), KEY, Losses())


def bound(method: str, *values: tuple[str, str, str]) -> dict[str, Any]:
    return {"method": method, "values": [dict(zip(("name", "value", "type"), each, strict=True)) for each in values]}


def test_an_insert_has_a_marker_and_an_update_has_not() -> None:
    """Columns that a write did not set are omitted from it; a cell set to null is a deleted cell."""
    cells = {"p": cell(1), "c": cell(2), "v": cell("a"), "w": cell(None), "x": None}
    made = {"v": Cell(7, "a", b"a"), "w": Cell(7)}
    assert write("i", **cells) == CellWrites((1, 2), made, Cell(7, MARKED))
    assert write("u", **cells) == CellWrites((1, 2), made)


def test_a_ttl_applies_to_cells_and_row_marker() -> None:
    """INSERT … USING TTL sets the same expiration time for the cells and the row marker."""
    insert = write("i", p=cell(1), c=cell(2), v=cell("a", 99))
    assert (insert.cells["v"].expires, insert.marker.expires) == (99, 99)


def test_snapshot_rows_give_way_to_every_write() -> None:
    """The cells of a snapshot row have the lowest write time, so that every write of the commit log replaces them."""
    assert write("i", "true", p=cell(1), c=cell(2), v=cell("a")).cells["v"].written == SNAPSHOT_TIME


def test_deletes_cover_what_their_key_says() -> None:
    """A complete primary key deletes a row; a key without clustering columns deletes a partition."""
    assert write("d", p=cell(1), c=cell(2), v=cell(None, 7)) == Delete((1, 2), 7)
    assert write("d", p=cell(1), c=cell(None, 7), v=cell(None, 7)) == Delete((1,), 7)


def test_r_is_a_range_tombstone() -> None:
    """The operation ``r`` is a range tombstone, not a snapshot read; its bounds are parsed by their Cassandra types."""
    text, turned = "org.apache.cassandra.db.marshal.UTF8Type", "x.ReversedType(x.Int32Type)"
    made = write(
        "r",
        p=cell(1),
        _range_start=bound("INCL_START_BOUND", ("c", "b", text)),
        _range_end=bound("EXCL_END_BOUND", ("c", "b", text), ("d", "2", turned)),
    )
    assert made == Delete((1,), 7, Range(Bound(("b",)), Bound(("b", 2), inclusive=False), (False, True)))


def test_static_columns_are_counted() -> None:
    """A write without clustering columns sets static columns; it is counted as a loss."""
    losses = Losses()
    assert write_of(payload("u", p=cell(1), c=None, s=cell("x")), KEY, losses) == CellWrites((1,))
    assert losses.counts == {(Loss.STATIC, None): 1}


def test_a_table_that_may_have_static_columns_has_a_note() -> None:
    """A table with clustering columns gets a note that writes of static columns are not sent."""
    losses = Losses()
    write_of(payload("u", p=cell(1), c=cell(2)), KEY, losses)
    assert losses.counts == {(Loss.STATIC, None): 0}
    assert [note.text for note in losses.drain()[0]] == [TEXTS[Loss.STATIC]]
    write_of(payload("u", p=cell(1)), ("p",), losses := Losses())
    assert losses.counts == {}


BAD = [
    (payload("x", p=cell(1), c=cell(2)), "unknown operation 'x'"),
    (payload("i", p=None, c=cell(2)), "partition key"),
    ({"op": "i", "source": {"ts_us": 7}, "after": None}, "no 'after'"),
    (payload("r", p=cell(1)), "has no bounds"),
    (
        payload(
            "r", p=cell(1), _range_start=bound("INCL_START_BOUND", ("c", "x", "x.UUIDType")), _range_end=bound("I")
        ),
        "whose order Headrace does not know",
    ),
    (
        payload(
            "r", p=cell(1), _range_start=bound("INCL_START_BOUND", ("c", "x", "x.Int32Type")), _range_end=bound("I")
        ),
        "is not a number",
    ),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_invalid_envelopes_are_bad_records(bad: dict[str, Any], message: str) -> None:
    """An envelope that cannot be decoded raises BadRecord with the cause."""
    with pytest.raises(BadRecord, match=message):
        write_of(bad, KEY, Losses())
