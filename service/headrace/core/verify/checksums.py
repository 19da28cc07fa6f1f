"""Checksums per range of keys: find where two tables differ without keeping their rows.

Each side is read once, in any order. The ranges are ranges of the keys' digests rather than of the keys: a database and
a lake sort differently (collations, enums, numbers as text), but equal keys have equal digests.
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
    """The number of rows of each range, and the sum of their digests; rows arrive in any order, in any chunks."""

    def __init__(self) -> None:
        self.counts: Ints = np.zeros(RANGES, np.int64)
        self.sums: Digests = np.zeros(RANGES, np.uint64)

    def add(self, keys: Digests, rows: Digests) -> None:
        """Add rows: the digests of their keys, and of all their cells."""
        ranges = range_of(keys)
        self.counts += np.bincount(ranges, minlength=RANGES)
        np.add.at(self.sums, ranges, rows)


def range_of(keys: Digests) -> Ints:
    """Return the range of each key."""
    return (keys >> _SHIFT).astype(np.int64)


def differing_ranges(source: RangeChecksums, lake: RangeChecksums) -> Ints:
    """Return the ranges in which the rows of the two sides differ."""
    return np.flatnonzero((source.counts != lake.counts) | (source.sums != lake.sums))


def portions(ranges: Ints, source: RangeChecksums, lake: RangeChecksums, rows: int) -> Iterator[Ints]:
    """Split ``ranges`` into portions to compare at a time: at most ``rows`` rows of either side, or a single range."""
    sizes = np.maximum(source.counts, lake.counts)[ranges]
    begin = total = 0
    for index, size in enumerate(sizes.tolist()):
        if index > begin and total + size > rows:
            yield ranges[begin:index]
            begin, total = index, 0
        total += size
    if begin < len(ranges):
        yield ranges[begin:]


def unmatched(keys: Digests, rows: Digests, other_keys: Digests, other_rows: Digests) -> Ints:
    """Return the indexes of rows that the other side does not have with equal cells, or whose key is not unique."""
    pairs, others = _pairs(keys, rows), _pairs(other_keys, other_rows)
    distinct, counts = np.unique(keys, return_counts=True)
    twice = np.isin(keys, distinct[counts > 1])
    return np.flatnonzero(~np.isin(pairs, others) | twice)


def _pairs(keys: Digests, rows: Digests) -> npt.NDArray[np.void]:
    both = np.ascontiguousarray(np.stack([keys, rows], axis=1))
    return both.view([("key", np.uint64), ("row", np.uint64)]).ravel()
