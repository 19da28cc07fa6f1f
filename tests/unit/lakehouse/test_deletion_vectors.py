"""Deletion vectors, and where deleted rows are in a file that was rewritten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_connectors.lakehouse.deletion_vectors import Positions, decode, encode, moved_positions

positions = st.sets(st.integers(0, 2**40), max_size=200).map(sorted)


@given(positions)
def test_a_vector_is_decoded_as_it_was_encoded(rows: list[int]) -> None:
    """Positions above 2^32 too."""
    assert decode(encode(np.array(rows, np.int64))).tolist() == rows


def test_a_damaged_vector_is_refused() -> None:
    """A changed byte anywhere is found by the magic number or the checksum."""
    blob = encode(np.array([1, 5, 70_000], np.int64))
    for index in range(4, len(blob)):
        damaged = bytearray(blob)
        damaged[index] ^= 1
        with pytest.raises(ValueError, match="deletion vector"):
            decode(bytes(damaged))


@given(st.lists(st.lists(st.sampled_from(["live", "before", "since"]), max_size=30), max_size=5))
def test_a_deleted_row_is_found_in_the_new_file(files: list[list[str]]) -> None:
    """The positions are those of the rows deleted since, in a list of all rows that were live before."""
    new_file = [state for file in files for state in file if state != "before"]
    expected = [row for row, state in enumerate(new_file) if state == "since"]
    before = [_where(file, "before") for file in files]
    now = [_where(file, "before", "since") for file in files]
    assert moved_positions([len(file) for file in files], before, now).tolist() == expected


def _where(file: list[str], *states: str) -> Positions:
    return np.array([row for row, state in enumerate(file) if state in states], np.int64)
