"""Checksums per range of keys: where two tables differ, told without any of their rows.

Both sides are read once, in whatever order they like. The ranges are ranges of the keys' digests rather than of the
keys: a database and a lake do not sort alike (collations, enums, numbers as text), but their digests are the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from headrace.core.verify.digest import Digests

RANGES = 1024
_SHIFT = np.uint64(64 - 10)  # 2**10 ranges

Ints = npt.NDArray[np.int64]


class RangeChecksums:
    """How many rows each range has, and the sum of their digests; rows come in any order, in any chunks."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(RANGES, np.int64)
        self.sums: Digests = np.zeros(RANGES, np.uint64)

    def add(self, keys: Digests, rows: Digests) -> None:
        """Take rows in: the digests of their keys, and of all their cells."""
        places = range_of(keys)
        self.counts += np.bincount(places, minlength=RANGES)
        np.add.at(self.sums, places, rows)


def range_of(keys: Digests) -> Ints:
    """The range of each key."""
    return (keys >> _SHIFT).astype(np.int64)


def differing_ranges(source: RangeChecksums, lake: RangeChecksums) -> Ints:
    """The ranges in which the sides do not have the same rows."""
    return np.flatnonzero((source.counts != lake.counts) | (source.sums != lake.sums))


def portions(ranges: Ints, source: RangeChecksums, lake: RangeChecksums, rows: int) -> Iterator[Ints]:
    """``ranges`` in runs of at most ``rows`` rows of either side, one range at least: what is compared at a time."""
    sizes = np.maximum(source.counts, lake.counts)[ranges]
    begin = total = 0
    for place, size in enumerate(sizes.tolist()):
        if place > begin and total + size > rows:
            yield ranges[begin:place]
            begin, total = place, 0
        total += size
    if begin < len(ranges):
        yield ranges[begin:]


def unmatched(keys: Digests, rows: Digests, other_keys: Digests, other_rows: Digests) -> Ints:
    """The places of rows of one side that the other does not have just so, and of all whose key stands twice there."""
    pairs, others = _pairs(keys, rows), _pairs(other_keys, other_rows)
    distinct, counts = np.unique(keys, return_counts=True)
    twice = np.isin(keys, distinct[counts > 1])
    return np.flatnonzero(~np.isin(pairs, others) | twice)


def _pairs(keys: Digests, rows: Digests) -> npt.NDArray[np.void]:
    both = np.ascontiguousarray(np.stack([keys, rows], axis=1))
    return both.view([("key", np.uint64), ("row", np.uint64)]).ravel()
