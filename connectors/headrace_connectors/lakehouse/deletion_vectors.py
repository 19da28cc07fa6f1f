"""Iceberg's deletion vectors, and where rows are in a file that was rewritten. Pure.

A vector is a bitmap of the positions of deleted rows in one data file: the blob ``deletion-vector-v1`` of the Puffin
specification, a 64-bit Roaring bitmap in its portable form, framed by its length, a magic number and a checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

BLOB_TYPE = "deletion-vector-v1"

_MAGIC = b"\xd1\xd3\x39\x64"
_FRAME = 4  # bytes of the length before, and of the checksum after the bitmap with its magic number

Positions = npt.NDArray[np.int64]

NO_POSITIONS: Positions = np.empty(0, np.int64)


def decode(blob: bytes) -> Positions:
    """Return the positions of a vector, ascending. Raises ValueError if the blob is damaged."""
    length = int.from_bytes(blob[:_FRAME], "big")
    bitmap, checksum = blob[_FRAME : _FRAME + length], blob[_FRAME + length :]
    if bitmap[: len(_MAGIC)] != _MAGIC or int.from_bytes(checksum, "big") != zlib.crc32(bitmap):
        raise ValueError("not a deletion vector, or a damaged one")
    return np.frombuffer(BitMap64.deserialize(bitmap[len(_MAGIC) :]).to_array(), np.uint64).astype(np.int64)


def encode(positions: Positions | BitMap64) -> bytes:
    rows = positions if isinstance(positions, BitMap64) else BitMap64(positions.tolist())
    bitmap = _MAGIC + bytes(rows.serialize())
    return len(bitmap).to_bytes(_FRAME, "big") + bitmap + zlib.crc32(bitmap).to_bytes(_FRAME, "big")


def moved_positions(rows: Sequence[int], before: Sequence[Positions], now: Sequence[Positions]) -> Positions:
    """Return the positions, in the rewritten file, of rows that were deleted since the rewrite began.

    The rewritten file contains the rows of several files one after the other, in their order, without the rows deleted
    ``before`` it began. For each of these files: ``rows`` is its number of rows, ``now`` are the positions of the rows
    that are deleted now.
    """
    positions, start = [], 0
    for count, earlier, current in zip(rows, before, now, strict=True):
        live = np.ones(count, np.bool_)
        live[earlier] = False
        ranks = np.cumsum(live) - 1
        positions.append(start + ranks[current[live[current]]])
        start += count - len(earlier)
    return np.sort(np.concatenate(positions)).astype(np.int64) if positions else NO_POSITIONS
