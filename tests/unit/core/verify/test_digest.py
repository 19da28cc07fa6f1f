"""Cells have equal digests if and only if they are equal."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.verify.digest import (
    RANGES,
    Digests,
    RangeChecksums,
    cell_digests,
    differing_ranges,
    find_unmatched,
    portions,
    range_of,
    row_digests,
)

NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), NUMBERS),
    "small": (pa.int32(), st.one_of(st.none(), st.integers(-3, 3))),
    "text": (pa.string(), st.one_of(st.none(), st.text(max_size=4))),
    "octets": (pa.binary(), st.one_of(st.none(), st.binary(max_size=4))),
    "boolean": (pa.bool_(), st.one_of(st.none(), st.booleans())),
    "decimal": (pa.decimal128(38, 2), st.one_of(st.none(), st.decimals(-(10**30), 10**30, places=2))),
    "list": (
        pa.list_(pa.string()),
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=2)), max_size=3)),
    ),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        st.one_of(st.none(), st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.text(max_size=1)})),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_digests_are_equal_just_where_cells_are(name: str, data: st.DataObject) -> None:
    """Two cells of one type, null included, have equal digests exactly if they are equal, also in a sliced array."""
    kind, cells = COLUMNS[name]
    values = data.draw(st.lists(cells, min_size=2, max_size=8))
    digests = cell_digests(pa.array([values[0], *values], kind)[1:]).tolist()
    for value, digest in zip(values, digests, strict=True):
        for other, others in zip(values, digests, strict=True):
            assert (value == other) == (digest == others)


def test_row_digests_distinguish_columns() -> None:
    """Rows with the same cells in other columns have different digests, also with nulls."""
    rows = row_digests([pa.array([1, 2, None, 1]), pa.array([2, 1, 1, None])])
    assert len(set(rows.tolist())) == 4


def test_numbers_with_equal_hashes_in_python_differ() -> None:
    """Numbers with equal hashes in Python (-1 and -2, 0 and 2**61 - 1) have different digests."""
    assert len(set(cell_digests(pa.array([-1, -2, 0, 2**61 - 1])).tolist())) == 4


def test_not_a_number_equals_itself() -> None:
    """NaN of either sign has one digest; zero and minus zero have different digests."""
    digests = cell_digests(pa.array([float("nan"), -float("nan"), 0.0, -0.0])).tolist()
    assert digests[0] == digests[1]
    assert digests[2] != digests[3]


def test_times_that_python_cannot_hold() -> None:
    """Timestamps beyond Python's datetime, such as infinity, have digests, alone and in a list."""
    counts = pa.array([9223372036825200000, None], pa.int64())
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        assert len(set(cell_digests(counts.view(kind)).tolist())) == 2
    nested = pa.array([[9223372036825200000], [0]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    assert len(set(cell_digests(nested).tolist())) == 2


def test_maps_have_no_order() -> None:
    """Maps with the same entries in another order, as hstore returns them, have equal digests."""
    maps = pa.array(
        [[("b", 1), ("a", 2)], [("a", 2), ("b", 1)], [("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int32())
    )
    first, second, other = cell_digests(maps).tolist()
    assert first == second != other


def test_decimals_of_all_digits() -> None:
    """Decimals that differ only in the upper 64 bits have different digests."""
    low, high = Decimal(2**64), Decimal(2**65)
    assert len(set(cell_digests(pa.array([low, high, -low], pa.decimal128(38, 0))).tolist())) == 3


WORDS = st.integers(0, 2**64 - 1)
SIDE = st.dictionaries(WORDS, WORDS, max_size=12)


def columns(rows: dict[int, int]) -> tuple[Digests, Digests]:
    return np.array(list(rows), np.uint64), np.array(list(rows.values()), np.uint64)


def checksums(rows: dict[int, int]) -> RangeChecksums:
    made = RangeChecksums()
    made.add(*columns(rows))
    return made


@given(common=SIDE, source=SIDE, lake=SIDE)
def test_every_row_that_differs_is_in_a_range_that_differs(
    common: dict[int, int], source: dict[int, int], lake: dict[int, int]
) -> None:
    """Exactly the ranges of differing rows differ, and within them exactly those rows are unmatched."""
    source, lake = common | source, common | lake
    wrong = {key for key in source.keys() | lake.keys() if source.get(key) != lake.get(key)}
    ranges = set(differing_ranges(checksums(source), checksums(lake)).tolist())
    assert {int(place) for place in range_of(np.array(sorted(wrong), np.uint64))} == ranges
    ahead = {int(columns(source)[0][place]) for place in find_unmatched(*columns(source), *columns(lake))}
    behind = {int(columns(lake)[0][place]) for place in find_unmatched(*columns(lake), *columns(source))}
    assert ahead | behind == wrong


@given(rows=SIDE, cut=st.integers(0, 12))
def test_checksums_do_not_depend_on_order_or_pieces(rows: dict[int, int], cut: int) -> None:
    """Checksums are equal for any order of the rows and any division into pieces."""
    items = list(rows.items())[::-1]
    pieces = RangeChecksums()
    for piece in (dict(items[:cut]), dict(items[cut:])):
        pieces.add(*columns(piece))
    assert len(differing_ranges(checksums(rows), pieces)) == 0


def test_a_row_that_is_stored_twice_is_unmatched() -> None:
    """A row that one side has twice is unmatched, although the other side has an equal row."""
    twice, once = np.array([7, 7, 8], np.uint64), np.array([7, 8], np.uint64)
    assert find_unmatched(twice, twice, once, once).tolist() == [0, 1]


@given(sizes=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=20), limit=st.integers(1, 20))
def test_portions_keep_within_the_limit(sizes: list[tuple[int, int]], limit: int) -> None:
    """A portion has at most ``limit`` rows of either side or is a single range; portions have all ranges in order."""
    source, lake = RangeChecksums(), RangeChecksums()
    source.counts[: len(sizes)] = [rows for rows, _ in sizes]
    lake.counts[: len(sizes)] = [rows for _, rows in sizes]
    ranges = np.arange(len(sizes), dtype=np.int64)
    made = list(portions(ranges, source, lake, limit))
    assert [place for portion in made for place in portion.tolist()] == ranges.tolist()
    for side in (source, lake):
        assert all(len(portion) == 1 or side.counts[portion].sum() <= limit for portion in made)


def test_the_last_range_is_used() -> None:
    """The lowest digest is in the first range and the highest digest in the last."""
    assert range_of(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0, RANGES - 1]
