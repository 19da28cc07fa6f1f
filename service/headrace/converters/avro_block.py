"""Many Avro payloads of one schema read at once: field by field over all of them, instead of record by record.

The payloads are joined, and ``at`` has the place in them where each stands. Reading a field is a handful of numpy
operations over all places, moves them on, and gives a column. A place never moves back, so that payloads which all end
where they should were read within their own bytes. What fails, fails for the block: then a record-by-record reader has
to say which payload it was (``converters/avro.py``).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places = npt.NDArray[np.int64]

_PADDING = bytes(16)  # a word may be looked at where less than a word is left


_LARGEST = 2**31 - 1  # what the offsets of Arrow's texts count


_GATHERED = 16  # bytes of a cell: longer ones cost less as slices, and gathering takes 24 bytes of memory for each


class Malformed(ValueError):
    """The bytes are not what their schema says."""


class Octets:
    """Payloads side by side. ``offset`` bytes stand before each: what names its schema."""

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

    def numbers(self, at: Places) -> npt.NDArray[np.int64]:
        """Avro's ints and longs: zigzag, seven bits a byte."""
        first = self.bytes[at]
        if first.max(initial=0) < 0x80:  # as nearly all lengths and branches are
            at += 1
            number = first.astype(np.uint64)
        else:
            number = self._long_numbers(at)
        return ((number >> 1) ^ (~(number & 1) + 1)).view(np.int64)

    def _long_numbers(self, at: Places) -> npt.NDArray[np.uint64]:
        words = self._words[at]
        below, wide = _below_last(words)
        number = _packed(words & below)
        if wide is not None:
            more = self.bytes[at[wide, None] + (8, 9)].astype(np.uint64)
            ten = more[:, 0] >= 0x80
            if (more[ten, 1] > 1).any():
                raise Malformed
            number[wide] |= ((more[:, 0] & 0x7F) << 56) | np.where(ten, more[:, 1] << 63, 0)
            at[wide] += 1 + ten
        at += (np.bitwise_count(below) + 1) >> 3
        return number

    def lengths(self, at: Places) -> npt.NDArray[np.int64]:
        """Numbers that say how many bytes follow."""
        lengths = self.numbers(at)
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > len(self.bytes):
            raise Malformed
        return lengths

    def cut(self, begins: Places, lengths: npt.NDArray[np.int64]) -> pa.BinaryArray:
        """The bytes that begin at each place."""
        offsets = np.zeros(len(begins) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > len(self.bytes):
            raise Malformed
        if offsets[-1] > _GATHERED * len(begins):
            ends = begins + lengths
            return pa.array(map(self._slice, begins.tolist(), ends.tolist()), pa.binary())
        source = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self.bytes[source])]
        return pa.Array.from_buffers(pa.binary(), len(begins), buffers)

    def _slice(self, begin: int, end: int) -> bytes:
        return self.joined[begin:end]

    def floats(self, at: Places, kind: str) -> pa.Array:
        """Numbers of four or eight bytes."""
        words = self._words[at]
        at += np.dtype(kind).itemsize
        return pa.array(words.view(kind)[:: 8 // np.dtype(kind).itemsize])


_CONTINUED = np.uint64(0x8080808080808080)
_SEVENS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
"""Even groups, odd groups, and how far those are moved to join them: of 7 bits, of 14 and of 28."""


def _below_last(words: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.intp] | None]:
    """The bits of each word's number up to the mark of its last byte, and which numbers go beyond the word."""
    last = ~words & _CONTINUED
    below = (last & (~last + 1)) - 1
    wide = np.flatnonzero(last == 0)
    return below, wide if len(wide) else None


def _packed(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Eight groups of seven bits moved together."""
    for even, odd, distance in _SEVENS:
        words = (words & even) | ((words & odd) >> distance)
    return words
