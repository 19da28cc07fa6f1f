"""Read many Avro payloads of one schema at once: field by field over all of them, instead of record by record.

The payloads are concatenated, and ``at`` is the current position in each. Reading a field takes a few numpy operations
over all positions, advances them, and returns a column. Positions only increase: if all payloads end at their expected
positions, each was read within its own bytes. An error fails the block: then the reader of single records finds the bad
payload (``converters/avro.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Positions = npt.NDArray[np.int64]

_PADDING = bytes(16)  # the last payload's positions are read as complete words too
_LARGEST = 2**31 - 1  # the largest offset of Arrow's binary arrays
_GATHERED = 16  # bytes of a cell: longer cells cost less as slices, and gathering takes 24 bytes of memory per byte


class Malformed(ValueError):
    """The bytes do not match their schema."""


class Payloads:
    """Concatenated payloads. ``offset`` bytes before each contain the id of its schema."""

    def __init__(self, documents: Sequence[bytes], offset: int) -> None:
        joined = b"".join((*documents, _PADDING))
        lengths = np.fromiter(map(len, documents), np.int64, len(documents))
        if len(joined) > _LARGEST:
            raise Malformed
        self.joined = joined
        self.bytes = np.frombuffer(joined, np.uint8)
        self._words = np.ndarray(len(joined) - 7, "<u8", joined, strides=(1,))
        self.ends = np.cumsum(lengths)
        self.begins = self.ends - lengths + offset

    def numbers(self, at: Positions) -> npt.NDArray[np.int64]:
        """Read Avro's ints and longs: zigzag, seven bits per byte."""
        first = self.bytes[at]
        if first.max(initial=0) < 0x80:  # one byte, as for nearly all lengths and branches
            at += 1
            number = first.astype(np.uint64)
        else:
            number = self._long_numbers(at)
        return ((number >> 1) ^ (~(number & 1) + 1)).view(np.int64)

    def _long_numbers(self, at: Positions) -> npt.NDArray[np.uint64]:
        words = self._words[at]
        below, wide = _below_last(words)
        number = words & below
        for even, odd, distance in _SEVENS:  # join the eight groups of seven bits of each word
            number = (number & even) | ((number & odd) >> distance)
        if wide is not None:
            more = self.bytes[at[wide, None] + (8, 9)].astype(np.uint64)
            ten = more[:, 0] >= 0x80
            if (more[ten, 1] > 1).any():
                raise Malformed
            number[wide] |= ((more[:, 0] & 0x7F) << 56) | np.where(ten, more[:, 1] << 63, 0)
            at[wide] += 1 + ten
        at += (np.bitwise_count(below) + 1) >> 3
        return number

    def lengths(self, at: Positions) -> npt.NDArray[np.int64]:
        """Read the numbers of the bytes that follow."""
        lengths = self.numbers(at)
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > len(self.bytes):
            raise Malformed
        return lengths

    def cut(self, begins: Positions, lengths: npt.NDArray[np.int64]) -> pa.BinaryArray:
        """Return ``lengths`` bytes from each of ``begins``."""
        offsets = np.zeros(len(begins) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > len(self.bytes):
            raise Malformed
        if offsets[-1] > _GATHERED * len(begins):
            ends = begins + lengths
            slices = (self.joined[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
            return pa.array(slices, pa.binary())
        source = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self.bytes[source])]
        return pa.Array.from_buffers(pa.binary(), len(begins), buffers)

    def floats(self, at: Positions, dtype: str) -> pa.Array:
        """Read numbers of four or eight bytes."""
        words = self._words[at]
        at += np.dtype(dtype).itemsize
        return pa.array(words.view(dtype)[:: 8 // np.dtype(dtype).itemsize])


_CONTINUED = np.uint64(0x8080808080808080)
_SEVENS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
"""Masks of even and of odd groups, and the shift that joins them: groups of 7 bits, of 14 and of 28."""


def _below_last(words: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp] | None]:
    """Return the mask of each number's bits within its word, and the indexes of the numbers longer than a word."""
    last = ~words & _CONTINUED
    below = (last & (~last + 1)) - 1
    wide = np.flatnonzero(last == 0)
    return below, wide if len(wide) else None
