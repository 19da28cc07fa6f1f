"""Cassandra envelopes as writes: operations, bounds, times, and what cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cassandra.envelope import write_of
from headrace.cassandra.losses import TEXTS, Loss, Losses
from headrace.core.model.cell_writes import MARKED, SNAPSHOT_TIME, Bound, Cell, CellWrites, Delete, Range
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
    """Columns that a write did not touch are not part of it, deleted cells are."""
    cells = {"p": cell(1), "c": cell(2), "v": cell("a"), "w": cell(None), "x": None}
    made = {"v": Cell(7, "a", b"a"), "w": Cell(7)}
    assert write("i", **cells) == CellWrites((1, 2), made, Cell(7, MARKED))
    assert write("u", **cells) == CellWrites((1, 2), made)


def test_a_ttl_is_the_cells_and_the_markers() -> None:
    """INSERT … USING TTL gives both the same end; cells of different ends cannot be of one INSERT."""
    insert = write("i", p=cell(1), c=cell(2), v=cell("a", 99))
    assert (insert.cells["v"].expires, insert.marker.expires) == (99, 99)


def test_snapshot_rows_give_way_to_every_write() -> None:
    """Their time is that of the SELECT, later than the writes that come again from the log."""
    assert write("i", "true", p=cell(1), c=cell(2), v=cell("a")).cells["v"].written == SNAPSHOT_TIME


def test_deletes_cover_what_their_key_says() -> None:
    """The whole key a row, without clustering columns a partition."""
    assert write("d", p=cell(1), c=cell(2), v=cell(None, 7)) == Delete((1, 2), 7)
    assert write("d", p=cell(1), c=cell(None, 7), v=cell(None, 7)) == Delete((1,), 7)


def test_r_is_a_range_tombstone() -> None:
    """Not a snapshot read: its bounds come as text, in clustering order."""
    text, turned = "org.apache.cassandra.db.marshal.UTF8Type", "x.ReversedType(x.Int32Type)"
    made = write(
        "r",
        p=cell(1),
        _range_start=bound("INCL_START_BOUND", ("c", "b", text)),
        _range_end=bound("EXCL_END_BOUND", ("c", "b", text), ("d", "2", turned)),
    )
    assert made == Delete((1,), 7, Range(Bound(("b",)), Bound(("b", 2), inclusive=False), (False, True)))


def test_static_columns_are_counted() -> None:
    """A write without clustering columns is one of the partition's static columns."""
    losses = Losses()
    assert write_of(payload("u", p=cell(1), c=None, s=cell("x")), KEY, losses) == CellWrites((1,))
    assert losses.counts == {(Loss.STATIC, None): 1}


def test_a_table_that_may_have_static_columns_says_so() -> None:
    """Their writes are not sent, so that nothing else could tell of them; a key of one column has none."""
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


@pytest.mark.parametrize(("bad", "said"), BAD)
def test_what_cannot_be_used_says_why(bad: dict[str, Any], said: str) -> None:
    """A bad record, never a guess."""
    with pytest.raises(BadRecord, match=said):
        write_of(bad, KEY, Losses())
