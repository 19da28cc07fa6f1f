"""The index of row keys, beside a dictionary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_connectors.lakehouse.direct import key_index
from headrace_connectors.lakehouse.direct.key_index import ABSENT, DuplicateKey, KeyIndex, row_locations

Model = dict[int, tuple[int, int]]
"""File and row by key."""

ALL_KEYS = list(range(-9, 10))
KEYS = st.sampled_from(ALL_KEYS)


def have_own_rows(put: dict[int, int | None]) -> bool:
    """Return whether no two keys of a put have the same row."""
    rows = [row for row in put.values() if row is not None]
    return len(set(rows)) == len(rows)


PUT = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 2**31)), max_size=6).filter(have_own_rows)
STEPS = st.lists(st.one_of(PUT, st.lists(KEYS, max_size=4), st.integers(0, 4), st.just("move")), max_size=12)
"""Puts by key, keys whose rows are removed, two files that are removed, and a move of most rows to a new file."""


def array(keys: list[int], integers: bool) -> pa.Array:
    return pa.array(keys, pa.int64()) if integers else pa.array([f"={key}" for key in keys], pa.string())


def constant(_: str) -> int:
    return 7


@pytest.mark.parametrize("merge_from", [1, 4, 10_000])
@pytest.mark.parametrize(
    ("integers", "hash_of"), [(True, hash), (False, hash), (False, constant)], ids=["integers", "texts", "one hash"]
)
@given(steps=STEPS)
def test_an_index_finds_what_a_dictionary_finds(
    integers: bool,
    hash_of: Callable[[str], int],
    merge_from: int,
    steps: list[dict[int, int | None] | list[int] | int | str],
) -> None:
    """After any puts and removals, also of keys that are not there, with equal hashes and merged at any time.

    The keys of a put were looked for before the step before.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_MERGE_FROM", merge_from)
        index, model = KeyIndex(integers=integers, hash_of=hash_of), Model()
        found = index.find(array(ALL_KEYS, integers))
        for file, step in enumerate(steps):
            before, found = found, index.find(array(ALL_KEYS, integers))
            if isinstance(step, dict):
                rows = [step[key] for key in sorted(step)]
                put = [ABSENT if row is None else int(row_locations(file, np.int64(row))) for row in rows]
                index.put(before.filter(np.array([key in step for key in ALL_KEYS])), np.array(put, np.int64))
                model = {key: row for key, row in model.items() if key not in step}
                model |= {key: (file, row) for key, row in step.items() if row is not None}
            elif step == "move":
                moved = sorted(model, key=lambda key: model[key])[1:]
                after = {key: (file, number) for number, key in enumerate(moved)}
                places = [[int(row_locations(*map(np.int64, of[key]))) for key in moved] for of in (model, after)]
                index.move(*(np.array(each, np.int64) for each in places))
                model |= after
            elif isinstance(step, int):
                files = {step, step + 2}
                index.remove_files(files)
                model = {key: location for key, location in model.items() if location[0] not in files}
            else:
                removed = [model.pop(key, (99, 0)) for key in step]
                index.remove_rows(np.array([int(row_locations(*map(np.int64, each))) for each in removed], np.int64))
            expected = [int(row_locations(*map(np.int64, model[key]))) if key in model else ABSENT for key in ALL_KEYS]
            assert index.find(array(ALL_KEYS, integers)).locations.tolist() == expected
            assert len(index) == len(model)


@pytest.mark.parametrize("integers", [True, False])
def test_two_rows_with_one_key_are_refused(integers: bool) -> None:
    """Within a file, and in two files."""
    index = KeyIndex(integers=integers)
    with pytest.raises(DuplicateKey):
        index.add(array([1, 1], integers), row_locations(0, np.arange(2)))
    with pytest.raises(DuplicateKey):
        index.add(array([1, 2, 1], integers), row_locations(0, np.arange(3)))
    index.add(array([1, 2], integers), row_locations(0, np.arange(2)))
    with pytest.raises(DuplicateKey):
        index.add(array([2, 3], integers), row_locations(1, np.arange(2)))


def test_an_integer_key_takes_16_bytes() -> None:
    index = KeyIndex(integers=True)
    index.add(pa.array(range(100_000), pa.int64()), row_locations(0, np.arange(100_000)))
    assert index.nbytes == 1_600_000
