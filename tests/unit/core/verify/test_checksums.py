"""Checksums per range of keys find every row that differs."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.verify.checksums import RANGES, RangeChecksums, differing_ranges, portions, range_of, unmatched
from headrace.core.verify.digest import Digests

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
    ahead = {int(columns(source)[0][place]) for place in unmatched(*columns(source), *columns(lake))}
    behind = {int(columns(lake)[0][place]) for place in unmatched(*columns(lake), *columns(source))}
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
    assert unmatched(twice, twice, once, once).tolist() == [0, 1]


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
