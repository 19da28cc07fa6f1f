"""The index of row keys, beside a dictionary."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_connectors.lakehouse.direct import key_index
from headrace_connectors.lakehouse.direct.key_index import ABSENT, DuplicateKey, KeyIndex, locations

Model = dict[int, tuple[int, int]]
"""File and row by key."""

KEYS = st.integers(-9, 9)
PUT = st.dictionaries(KEYS, st.one_of(st.none(), st.integers(0, 2**31)), max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), PUT),
        st.tuples(st.just("remove rows"), st.lists(KEYS, max_size=4)),
        st.tuples(st.just("remove file"), st.integers(0, 4)),
    ),
    max_size=12,
)


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
    integers: bool, hash_of: Callable[[str], int], merge_from: int, steps: list[tuple[str, object]]
) -> None:
    """After any puts and removals, also of keys that are not there, with equal hashes and merged at any time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_index, "_MERGE_FROM", merge_from)
        index, model = KeyIndex(integers=integers, hash_of=hash_of), Model()
        for file, (step, given_keys) in enumerate(steps):
            if step == "put":
                assert isinstance(given_keys, Mapping)
                where = [ABSENT if row is None else int(locations(file, np.int64(row))) for row in given_keys.values()]
                index.put(array(list(given_keys), integers), np.array(where, np.int64))
                for key, row in given_keys.items():
                    model.pop(key, None)
                    if row is not None:
                        model[key] = (file, row)
            elif step == "remove file":
                index.remove_file(given_keys)  # type: ignore[arg-type]
                model = {key: place for key, place in model.items() if place[0] != given_keys}
            else:
                for key in given_keys:  # type: ignore[attr-defined]
                    removed, row = model.pop(key, (99, 0))
                    index.remove_rows(removed, np.array([row], np.int64))
            expected = [int(locations(*map(np.int64, model[key]))) if key in model else ABSENT for key in range(-9, 10)]
            assert index.find(array(list(range(-9, 10)), integers)).tolist() == expected
            assert len(index) == len(model)


@pytest.mark.parametrize("integers", [True, False])
def test_two_rows_with_one_key_are_refused(integers: bool) -> None:
    """Within a file, and in two files."""
    index = KeyIndex(integers=integers)
    with pytest.raises(DuplicateKey):
        index.add(array([1, 1], integers), locations(0, np.arange(2)))
    index.add(array([1, 2], integers), locations(0, np.arange(2)))
    with pytest.raises(DuplicateKey):
        index.add(array([2, 3], integers), locations(1, np.arange(2)))


def test_an_integer_key_takes_16_bytes() -> None:
    index = KeyIndex(integers=True)
    index.add(pa.array(range(100_000), pa.int64()), locations(0, np.arange(100_000)))
    assert index.nbytes == 1_600_000
