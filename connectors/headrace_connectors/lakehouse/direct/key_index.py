"""The index of a table's row keys: the location (file and row in it) of each key's row. Pure.

An index takes 16 bytes per row whose key is one integer column. Other keys are their canonical texts
(``core/model/keys.py``): a hash finds candidates, and the texts are compared. New keys are in a dictionary first, which
is merged into the sorted arrays when it has grown.

Tests: ``tests/unit/lakehouse/direct/test_key_index.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
Keys: TypeAlias = pa.Array
"""The keys of some rows: int64, or canonical texts. None is null."""

ABSENT = -1
"""The location of a key without a row."""

LEAST_BYTES_PER_ROW = 16

_ROW_BITS = 32
_MERGE_FROM = 10_000
_BYTES_PER_NEW_KEY = 150
"""An entry of the dictionary with its objects, roughly."""


class DuplicateKey(Exception):
    """Two rows have one key: an index cannot tell which one a change is for."""


def row_locations(file: int, rows: Ints) -> Ints:
    """Return the locations of ``rows`` in the file with this number."""
    return (np.int64(file) << _ROW_BITS) | rows


def file_numbers(locations: Ints) -> Ints:
    return locations >> _ROW_BITS


def rows_in_file(locations: Ints) -> Ints:
    return locations & ((1 << _ROW_BITS) - 1)


@dataclass(frozen=True, slots=True)
class Lookup:
    """The locations of the rows of ``keys``, ABSENT for keys without a row.

    ``slots`` are the indexes of the keys in the arrays of the index, until the index has merged other keys into these
    (``merges`` counts that).
    """

    keys: Keys
    locations: Ints
    slots: Ints
    merges: int

    def filter(self, chosen: Bools) -> Lookup:
        """Return some of the keys."""
        return Lookup(self.keys.filter(pa.array(chosen)), self.locations[chosen], self.slots[chosen], self.merges)


class KeyIndex:
    """The locations of all rows by key. A key has one row at most. ``hash_of`` is for texts."""

    def __init__(self, *, integers: bool, hash_of: Callable[[str], int] = hash) -> None:
        self._integers = integers
        self._hash = hash_of
        self._codes = np.empty(0, np.int64)  # sorted: the integers, or the hashes of the texts
        self._locations = np.empty(0, np.int64)
        self._texts = pa.array([], pa.large_string())  # in the order of the codes
        self._new: dict[object, int] = {}
        self._merges = 0

    def __len__(self) -> int:
        """Return the number of keys with a row."""
        return int(np.count_nonzero(self._locations != ABSENT)) + len(self._new)

    @property
    def nbytes(self) -> int:
        texts = 0 if self._integers else self._texts.nbytes
        return self._codes.nbytes + self._locations.nbytes + texts + _BYTES_PER_NEW_KEY * len(self._new)

    def find(self, keys: Keys) -> Lookup:
        """Look up the locations of keys."""
        slots = self._slots(keys)
        locations = np.where(slots < 0, ABSENT, self._locations[slots] if len(self._locations) else ABSENT)
        if self._new:
            outside = np.flatnonzero(slots < 0)
            locations[outside] = [self._new.get(key, ABSENT) for key in self._values(keys, outside)]
        return Lookup(keys, locations, slots, self._merges)

    def put(self, lookup: Lookup, locations: Ints) -> None:
        """Store the new locations of keys, ABSENT for keys that have lost their row."""
        keys = lookup.keys
        is_large = len(keys) + len(self._new) >= max(_MERGE_FROM, len(self._codes) // 8)
        if is_large and self._new:
            self._merge(self._array(list(self._new)), np.fromiter(self._new.values(), np.int64, len(self._new)))
            self._new = {}
        slots = lookup.slots if lookup.merges == self._merges else self._slots(keys)
        self._locations[slots[slots >= 0]] = locations[slots >= 0]
        outside = np.flatnonzero(slots < 0)
        if is_large:
            stored = outside[locations[outside] != ABSENT]
            self._merge(keys.take(pa.array(stored)), locations[stored])
            return
        for key, location in zip(self._values(keys, outside), locations[outside].tolist(), strict=True):
            if location == ABSENT:
                self._new.pop(key, None)
            else:
                self._new[key] = location

    def add(self, keys: Keys, locations: Ints) -> None:
        """Store the locations of rows that a file contains. Raises DuplicateKey if a key has a row already."""
        lookup = self.find(keys)
        if (lookup.locations != ABSENT).any() or self._has_duplicates(keys):
            raise DuplicateKey
        self.put(lookup, locations)

    def move(self, before: Ints, after: Ints) -> None:
        """Store that the rows at the locations ``before``, which are sorted, are at ``after``."""
        if not len(before):
            return
        slots = np.minimum(np.searchsorted(before, self._locations), len(before) - 1)
        found = before[slots] == self._locations
        self._locations[found] = after[slots[found]]
        moved = dict(zip(before.tolist(), after.tolist(), strict=True))
        self._new = {key: moved.get(location, location) for key, location in self._new.items()}

    def remove_files(self, files: Collection[int]) -> None:
        """Remove all rows of these files."""
        if not files:
            return
        self._locations[np.isin(file_numbers(self._locations), list(files))] = ABSENT
        self._new = {key: location for key, location in self._new.items() if location >> _ROW_BITS not in files}

    def remove_rows(self, locations: Ints) -> None:
        """Remove the rows at these locations, if they are there."""
        if not len(locations):
            return
        self._locations[np.isin(self._locations, locations)] = ABSENT
        if self._new:
            removed = set(locations.tolist())
            self._new = {key: location for key, location in self._new.items() if location not in removed}

    def _values(self, keys: Keys, indexes: Ints) -> Sequence[object]:
        """Return some keys as Python's objects."""
        if self._integers:
            integers: Sequence[int] = self._code(keys)[indexes].tolist()  # in a twentieth of pyarrow's time
            return integers
        texts: Sequence[str] = keys.take(pa.array(indexes)).to_pylist()
        return texts

    def _array(self, keys: Sequence[object]) -> Keys:
        return pa.array(keys, pa.int64() if self._integers else pa.string())

    def _code(self, keys: Keys) -> Ints:
        if self._integers:
            codes: Ints = keys.to_numpy(zero_copy_only=False)
            return codes
        return np.fromiter(map(self._hash, keys.to_pylist()), np.int64, len(keys))

    def _has_duplicates(self, keys: Keys) -> bool:
        if not self._integers:
            return len(pc.unique(keys)) < len(keys)
        codes = np.sort(self._code(keys))  # a sixth of the time of pyarrow's hash table
        return bool((codes[1:] == codes[:-1]).any())

    def _slots(self, keys: Keys) -> Ints:
        """Return the indexes of the keys in the arrays, -1 for others."""
        codes = self._code(keys)
        if not len(self._codes):
            return np.full(len(codes), -1, np.int64)
        order = np.argsort(codes)  # neighbours share cache lines: 15,000 of 1,000,000 keys take a third of the time
        slots = np.empty(len(codes), np.int64)
        slots[order] = np.searchsorted(self._codes, codes[order])
        capped = np.minimum(slots, len(self._codes) - 1)
        slots = np.where(self._codes[capped] == codes, capped, -1)
        if self._integers:
            return slots
        candidates = np.flatnonzero(slots >= 0)
        stored = self._texts.take(pa.array(slots[candidates])).cast(pa.string())
        equal = pc.equal(stored, keys.take(pa.array(candidates))).to_numpy(zero_copy_only=False)
        for index in candidates[~equal]:  # other texts have the same hash
            slots[index] = self._next_slot(int(slots[index]) + 1, int(codes[index]), keys[int(index)].as_py())
        return slots

    def _next_slot(self, slot: int, code: int, text: str) -> int:
        while slot < len(self._codes) and self._codes[slot] == code:
            if self._texts[slot].as_py() == text:
                return slot
            slot += 1
        return -1

    def _merge(self, keys: Keys, locations: Ints) -> None:
        """Merge keys that are not in the arrays into them, and drop keys without a row."""
        kept = np.flatnonzero(self._locations != ABSENT)
        codes = np.concatenate([self._codes[kept], self._code(keys)])
        order = np.argsort(codes, kind="stable")
        if not self._integers:
            texts = pa.concat_arrays([self._texts.take(pa.array(kept)), keys.cast(pa.large_string())])
            self._texts = texts.take(pa.array(order))
        self._codes, self._locations = codes[order], np.concatenate([self._locations[kept], locations])[order]
        self._merges += 1
