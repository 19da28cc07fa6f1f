"""The entries of a ledger in little memory: a few bytes for each, their keys and versions in a temporary file.

Entries are in segments, in the order of the fingerprints of their keys. Memory contains the fingerprints, 4 bytes each,
and a filter of 1 to 2 bytes for each entry. The rows of a large segment are in a file without a name, in blocks: a
search reads the blocks of its candidates. A fingerprint finds candidates, and the text of the key decides. Several
entries of a key are merged by the rules of ranks.

Tests: ``tests/unit/lakehouse/test_tombstone_index.py``.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import Retriable
from headrace.core.model.events import UNVERSIONED, RowVersion, succeed
from headrace.core.model.keys import FLOOR_KEY, TABLE_PREFIXES
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS

SEGMENT_ROWS = 1 << 17
BLOCK_ROWS = 512
_FILTER_BITS = 16
"""The bits of the filter for each entry when it is made; it is made again when they are half as many."""

_POSITION, _TOPIC, _PARTITION, _OFFSET, _TIME = VERSION_COLUMNS.names
_STORED = pa.schema(
    [
        ("key", pa.string()),
        ("position", pa.string()),
        ("topic", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("time", pa.int64()),
    ]
)

Prints: TypeAlias = npt.NDArray[np.uint32]
Ints: TypeAlias = npt.NDArray[np.int64]


# -- fingerprints ------------------------------------------------------------------------------------------------------

_WORD = 8
_MOST_WORDS = 64
_FACTOR = np.uint64(0x9E3779B97F4A7C15)
_SEED = np.uint64(secrets.randbits(64))
"""Nobody can choose keys that share a fingerprint, which would make searches slow."""
_MASKS = np.array([(1 << 8 * length) - 1 for length in range(_WORD)] + [2**64 - 1], np.uint64)


def fingerprints(texts: pa.StringArray) -> Prints:
    """Return a number for each text, of its length and its first 512 bytes. Other processes have other numbers."""
    count = len(texts)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, count + 1, 4 * texts.offset).astype(np.int64)
    lengths = np.diff(offsets)
    size = int(offsets[-1] - offsets[0])
    padded = np.zeros(size + _WORD, np.uint8)
    if size:
        padded[:size] = np.frombuffer(data_buffer, np.uint8, size, int(offsets[0]))
    words = np.ndarray(size + 1, "<u8", padded, strides=(1,))  # from each byte on
    begins = offsets[:-1] - offsets[0]
    prints = (lengths.astype(np.uint64) ^ _SEED) * _FACTOR
    rows = np.arange(count)
    for number in range(_MOST_WORDS):
        rows = rows[lengths[rows] > _WORD * number]
        if not len(rows):
            break
        rest = np.minimum(lengths[rows] - _WORD * number, _WORD)
        mixed = (prints[rows] ^ (words[begins[rows] + _WORD * number] & _MASKS[rest])) * _FACTOR
        prints[rows] = mixed ^ (mixed >> np.uint64(29))
    prints = (prints ^ (prints >> np.uint64(32))) * _FACTOR
    return (prints >> np.uint64(32)).astype(np.uint32)


class _Filter:
    """Remembers fingerprints: a number that it does not contain was not added."""

    def __init__(self) -> None:
        self._shift = 32
        self._bytes = np.zeros(1, np.uint8)
        self._count = 0

    @property
    def nbytes(self) -> int:
        return self._bytes.nbytes

    def add(self, prints: Prints, earlier: Iterable[Prints]) -> None:
        """Add fingerprints; ``earlier`` are all that were added before."""
        self._count += len(prints)
        added = [prints]
        if self._count * _FILTER_BITS // 2 > self._bytes.nbytes * 8 and self._shift:
            bits = min(32, max(10, (self._count * _FILTER_BITS).bit_length() - 1))
            self._shift, self._bytes = 32 - bits, np.zeros(1 << (bits - 3), np.uint8)
            added += earlier
        for part in added:
            places = part >> np.uint32(self._shift)
            np.bitwise_or.at(self._bytes, places >> np.uint32(3), self._bit(places))

    def contains(self, prints: Prints) -> npt.NDArray[np.bool_]:
        if not self._count:
            return np.zeros(len(prints), np.bool_)
        places = prints >> np.uint32(self._shift)
        contained: npt.NDArray[np.bool_] = (self._bytes[places >> np.uint32(3)] & self._bit(places)) != 0
        return contained

    def _bit(self, places: Prints) -> npt.NDArray[np.uint8]:
        return np.uint8(1) << (places & np.uint32(7)).astype(np.uint8)


# -- segments ----------------------------------------------------------------------------------------------------------


class _BlockFile:
    """A temporary file without a name. It ends with this object or the process."""

    def __init__(self, folder: Path | None) -> None:
        self._descriptor, name = tempfile.mkstemp(prefix="headrace-", dir=folder)
        weakref.finalize(self, os.close, self._descriptor)
        Path(name).unlink()
        self._size = 0

    def append(self, content: bytes) -> int:
        """Write ``content`` to the end of the file, and return the end."""
        rest = memoryview(content)
        while rest:
            written = os.pwrite(self._descriptor, rest, self._size)
            rest, self._size = rest[written:], self._size + written
        return self._size

    def read(self, begin: int, end: int) -> bytes:
        return os.pread(self._descriptor, end - begin, begin)


class _Segment:
    """Entries in the order of their fingerprints. ``topics`` are the texts of the numbers in the column ``topic``."""

    def __init__(self, rows: pa.Table, topics: pa.StringArray) -> None:
        prints = fingerprints(rows["key"].combine_chunks())
        order = np.argsort(prints, kind="stable")  # entries of one key in their order
        self.prints = prints[order]
        self.topics = topics
        self._rows = rows.take(pa.array(order)).combine_chunks()
        self._file: _BlockFile | None = None
        self._blocks = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.prints)

    @property
    def in_memory(self) -> bool:
        return self._file is None

    @property
    def nbytes(self) -> int:
        return int(self.prints.nbytes + self._blocks.nbytes + self._rows.nbytes)

    def move_to(self, file: _BlockFile) -> None:
        """Write the rows to the end of a file, and remove them from memory."""
        places = [file.append(b"")]
        for begin in range(0, len(self), BLOCK_ROWS):
            [block] = self._rows.slice(begin, BLOCK_ROWS).to_batches()
            places.append(file.append(block.serialize().to_pybytes()))
        self._blocks, self._file, self._rows = np.array(places, np.int64), file, _STORED.empty_table()

    def rows(self, index: Ints | None = None) -> pa.Table:
        """Return the rows at ``index``, in its order, or all of them."""
        if self._file is None:
            return self._rows if index is None else self._rows.take(pa.array(index))
        index = np.arange(len(self)) if index is None else index
        parts = []
        numbers = index // BLOCK_ROWS
        for number in np.unique(numbers).tolist():
            content = self._file.read(*self._blocks[number : number + 2].tolist())
            block = pa.ipc.read_record_batch(pa.py_buffer(content), _STORED)
            parts.append(block.take(pa.array(index[numbers == number] - number * BLOCK_ROWS)))
        rows = pa.Table.from_batches(parts, _STORED)
        order = np.argsort(numbers, kind="stable")  # the order in which the blocks were read
        return rows.take(pa.array(np.argsort(order, kind="stable")))

    @classmethod
    def combine(cls, first: _Segment, second: _Segment) -> _Segment:
        """Return a segment with the entries of two."""
        topics = pc.unique(pa.chunked_array([first.topics, second.topics]))
        numbers = pc.index_in(second.topics, topics)
        rows = second.rows()
        place = _STORED.get_field_index("topic")
        renumbered = pc.fill_null(numbers.take(pc.if_else(pc.less(rows["topic"], 0), None, rows["topic"])), -1)
        return cls(pa.concat_tables([first.rows(), rows.set_column(place, _STORED.field(place), renumbered)]), topics)


def _entries(rows: pa.Table, topics: pa.StringArray) -> Iterator[tuple[str, RowVersion]]:
    """Yield rows as entries. The entry of another writer has no topic."""
    names = topics.to_pylist()
    for key, position, topic, *rest in zip(*(column.to_pylist() for column in rows.columns), strict=True):
        yield key, UNVERSIONED if topic < 0 else RowVersion((position or "").encode(), names[topic], *rest)


class TombstoneIndex:
    """Entries by key. Their file is in ``folder``, by default in that of temporary files."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._file: _BlockFile | None = None
        self._segments: list[_Segment] = []
        self._filter = _Filter()
        self.table_entries: dict[str, RowVersion] = {}

    def __len__(self) -> int:
        """Return the number of entries, several of a key included."""
        return sum(map(len, self._segments)) + len(self.table_entries)

    @property
    def nbytes(self) -> int:
        return self._filter.nbytes + sum(segment.nbytes for segment in self._segments)

    def add(self, parts: Iterable[pa.Table]) -> None:
        """Add rows of a ledger, which may be more than fit into memory. Raises Retriable if the disk is full."""
        waiting: list[pa.Table] = []
        for part in parts:
            waiting.append(part)
            if sum(map(len, waiting)) >= SEGMENT_ROWS:
                self._add_segment(pa.concat_tables(waiting))
                waiting = []
        if waiting:
            self._add_segment(pa.concat_tables(waiting))

    def add_all_of(self, other: TombstoneIndex) -> None:
        """Add the entries of another index, which is not used any more."""
        for segment in other._segments:
            self._append(segment)
        for key, version in other.table_entries.items():
            self.table_entries[key] = succeed(version, self.table_entries.get(key))

    def find(self, keys: pa.StringArray) -> dict[str, RowVersion]:
        """Return the entries with these keys, without those of the table."""
        entries: dict[str, RowVersion] = {}
        if not self._segments:
            return entries
        prints = fingerprints(keys)
        candidates = np.flatnonzero(self._filter.contains(prints))
        candidates = candidates[np.argsort(prints[candidates])]
        if not len(candidates):
            return entries
        prints, keys = prints[candidates], keys.take(pa.array(candidates))
        for segment in self._segments:
            begins = np.searchsorted(segment.prints, prints, "left")
            counts = np.searchsorted(segment.prints, prints, "right") - begins
            key_index = np.repeat(np.arange(len(prints)), counts)
            if not len(key_index):
                continue
            within = np.arange(len(key_index)) - np.repeat(np.cumsum(counts) - counts, counts)
            rows = segment.rows(np.repeat(begins, counts) + within)
            equal = pc.equal(rows["key"], pa.chunked_array([keys.take(pa.array(key_index))]))
            for key, version in _entries(rows.filter(equal), segment.topics):
                entries[key] = succeed(version, entries.get(key))
        return entries

    def all(self) -> dict[str, RowVersion]:
        """Return all entries, as objects."""
        entries = dict(self.table_entries)
        for segment in self._segments:
            for key, version in _entries(segment.rows(), segment.topics):
                entries[key] = succeed(version, entries.get(key))
        return entries

    def _add_segment(self, rows: pa.Table) -> None:
        keys, topics = rows["key"], pc.unique(rows[_TOPIC]).drop_null()
        numbers = pc.fill_null(pc.index_in(rows[_TOPIC], topics), -1)
        times = rows[_TIME].combine_chunks().view(pa.int64())
        columns = [keys, rows[_POSITION], numbers, rows[_PARTITION], rows[_OFFSET], times]
        of_table = pc.is_in(pc.utf8_slice_codeunits(keys, 0, 1), pa.array([FLOOR_KEY, *TABLE_PREFIXES]))
        stored = pa.table(columns, _STORED)
        for key, version in _entries(stored.filter(of_table), topics):
            self.table_entries[key] = succeed(version, self.table_entries.get(key))
        stored = stored.filter(pc.invert(of_table))
        if len(stored):
            self._append(_Segment(stored, topics))

    def _append(self, segment: _Segment) -> None:
        """Add a segment, combined with smaller ones before it. After an error no entry is missing."""
        self._filter.add(segment.prints, [earlier.prints for earlier in self._segments])
        kept = list(self._segments)
        while segment.in_memory and kept and kept[-1].in_memory and len(kept[-1]) < 2 * len(segment):
            segment = _Segment.combine(kept.pop(), segment)
        self._segments = [*kept, segment]
        if segment.in_memory and len(segment) >= SEGMENT_ROWS:
            self._move_to_file(segment)

    def _move_to_file(self, segment: _Segment) -> None:
        try:
            if self._file is None:
                self._file = _BlockFile(self._folder)
            segment.move_to(self._file)
        except OSError as error:
            folder = self._folder or tempfile.gettempdir()
            raise Retriable(
                f"{folder}: a table's tombstones cannot be written: {error.strerror}; free some space there, they take "
                "up to 100 bytes each"
            ) from error
