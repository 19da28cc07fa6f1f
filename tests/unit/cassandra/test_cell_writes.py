"""Cassandra's rules per cell: last write, deletion and TTL, independent of the order of arrival."""

from __future__ import annotations

from collections.abc import Mapping
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

TIMES = st.integers(0, 6)
KEYS = st.tuples(st.integers(0, 1), st.integers(0, 3))
VALUES = st.sampled_from(["a", "b", None])


@st.composite
def cells(draw: st.DrawFn, written: int) -> Cell:
    value = draw(VALUES)
    expires = None if value is None else draw(st.sampled_from([None, 3, 5]))
    return Cell(written, value, (value or "").encode(), expires)


@st.composite
def writes(draw: st.DrawFn) -> Write:
    written, key = draw(TIMES), draw(KEYS)
    statement = draw(st.sampled_from(["insert", "update", "row", "partition", "range"]))
    if statement in ("insert", "update"):
        made = {name: draw(cells(written)) for name in draw(st.sets(st.sampled_from("xy")))}
        return CellWrites(key, made, Cell(written, MARKED) if statement == "insert" else None)
    if statement == "row":
        return Delete(key, written)
    if statement == "partition":
        return Delete(key[:1], written)
    low, high = sorted(draw(st.tuples(st.integers(0, 3), st.integers(0, 3))))
    bounds = Bound((low,), draw(st.booleans())), Bound((high,), draw(st.booleans()))
    return Delete(key[:1], written, Range(*bounds))


def table(made: list[Write]) -> CassandraTable:
    state = CassandraTable()
    for write in made:
        state.apply(write)
    return state


def read_naively(made: list[Write], now: int) -> dict[Key, dict[str, Any]]:
    """Return the expected table: for each cell, search all writes, without state."""
    found: dict[Key, dict[str, Any]] = {}
    for key in {write.key for write in made if isinstance(write, CellWrites)}:
        own = [write for write in made if isinstance(write, CellWrites) and write.key == key]
        gone = max((write.written for write in made if isinstance(write, Delete) and _covers(write, key)), default=-1)
        visible = {}
        for name in "xy":
            versions = [write.cells[name] for write in own if name in write.cells]
            last = sorted(versions, key=lambda cell: cell.rank)[-1] if versions else None
            if last and last.value and last.written > gone and (last.expires is None or last.expires > now):
                visible[name] = last.value
        marked = any(write.marker and write.marker.written > gone for write in own)
        if visible or marked:
            found[key] = visible
    return found


def _covers(delete: Delete, key: Key) -> bool:
    if delete.key != key[: len(delete.key)]:
        return False
    if len(delete.key) == 2 or not delete.range.start.prefix:
        return True
    (low,), (high,) = delete.range.start.prefix, delete.range.end.prefix
    inside_low = key[1] > low or (key[1] == low and delete.range.start.inclusive)
    return inside_low and (key[1] < high or (key[1] == high and delete.range.end.inclusive))


@given(made=st.lists(writes(), max_size=25), now=TIMES, data=st.data())
def test_order_and_repetition_do_not_change_the_table(made: list[Write], now: int, data: st.DataObject) -> None:
    """Replicas send each write several times and in any order; every delivery gives the same table."""
    again = data.draw(st.lists(st.sampled_from(made), max_size=10)) if made else []
    delivered = data.draw(st.permutations([*made, *again]))
    assert table(delivered).visible(now) == read_naively(made, now)


def one(*cells: Cell, now: int = 0) -> Any:
    """Return the value of the cell after these versions, which must not depend on their order."""
    seen = set()
    for order in (cells, cells[::-1]):
        rows = table([CellWrites((1,), {"x": cell}) for cell in order]).visible(now)
        seen.add(rows.get((1,), {}).get("x"))
    assert len(seen) == 1
    return seen.pop()


def test_the_later_write_wins() -> None:
    """The version with the later write time wins, independent of the order of arrival."""
    assert one(Cell(2, "b", b"b"), Cell(1, "z", b"z")) == "b"


def test_ties() -> None:
    """At equal write times a deletion wins over a value, a value with a TTL over one without, else the larger value."""
    assert one(Cell(1, "z", b"z"), Cell(1)) is None
    assert one(Cell(1, "a", b"a"), Cell(1, "z", b"z")) == "z"
    assert one(Cell(1, "a", b"a", expires=9), Cell(1, "z", b"z")) == "a"
    assert one(Cell(1, "a", b"a", expires=9), Cell(1, "z", b"z", expires=8)) == "a"


def test_an_expired_value_hides_the_value_that_it_replaced() -> None:
    """The end of a value's TTL does not make the older value visible again."""
    versions = Cell(2, "short", b"short", expires=5), Cell(1, "old", b"old")
    assert one(*versions, now=4) == "short"
    assert one(*versions, now=5) is None


def test_a_delete_removes_cells_that_are_not_newer() -> None:
    """A row delete removes cells written at or before its time; a later cell keeps its row visible."""
    insert = CellWrites((1,), {"x": Cell(5, "a"), "y": Cell(6, "b")}, Cell(5, MARKED))
    assert table([Delete((1,), 5), insert]).visible(0) == {(1,): {"y": "b"}}
    assert table([insert, Delete((1,), 6)]).visible(0) == {}


def test_a_row_exists_by_its_marker_or_its_cells() -> None:
    """An INSERT creates a row also without cells; a row of an UPDATE exists while one of its cells has a value."""
    assert table([CellWrites((1,), {}, Cell(1, MARKED))]).visible(0) == {(1,): {}}
    update = CellWrites((1,), {"x": Cell(1, "a")})
    assert table([update]).visible(0) == {(1,): {"x": "a"}}
    assert table([update, CellWrites((1,), {"x": Cell(2)})]).visible(0) == {}


def test_a_marker_ends_with_its_ttl() -> None:
    """The row of an INSERT … USING TTL disappears when its TTL ends."""
    state = table([CellWrites((1,), {"x": Cell(1, "a", expires=5)}, Cell(1, MARKED, expires=5))])
    assert state.visible(4) == {(1,): {"x": "a"}}
    assert state.visible(5) == {}


RANGES: Mapping[str, tuple[Range, set[Key]]] = {
    "c1 = b and c2 >= 2, c2 descending": (
        Range(Bound(("b",)), Bound(("b", 2)), (False, True)),
        {("b", 3), ("b", 2)},
    ),
    "c1 = a": (Range(Bound(("a",)), Bound(("a",)), (False,)), {("a", 1), ("a", 2)}),
    "c1 > b": (Range(Bound(("b",), inclusive=False), Bound(), (False,)), {("c", 1)}),
    "c1 < b": (Range(Bound(), Bound(("b",), inclusive=False), (False,)), {("a", 1), ("a", 2)}),
    "all": (Range(), {("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), ("c", 1)}),
}


@pytest.mark.parametrize("name", RANGES)
def test_a_range_goes_by_clustering_order(name: str) -> None:
    """A bound that is a prefix covers all keys that begin with it; a descending column reverses the comparison."""
    covered, wanted = RANGES[name]
    rows: list[Key] = [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3), ("c", 1)]
    state = table([CellWrites((7, *row), {}, Cell(1, MARKED)) for row in rows])
    state.apply(Delete((7,), 2, covered))
    assert {key[1:] for key in state.visible(0)} == set(rows) - wanted


def test_values_compare_as_cassandras_bytes_do() -> None:
    """Values compare as their serialized bytes without sign: -1 is larger than 1, and text compares as UTF-8."""
    assert comparison_bytes("int32", -1) > comparison_bytes("int32", 1)
    assert comparison_bytes("string", "ü") > comparison_bytes("string", "z")
    assert comparison_bytes("double", "NaN") > comparison_bytes("double", 1.0)
    assert comparison_bytes("boolean", True) > comparison_bytes("boolean", False)
