"""A task checks that chunks of the consumer arrive without a gap."""

from __future__ import annotations

import pytest

from headrace.core.batch.offsets import ChunkSequence
from headrace.core.model.errors import Fatal


def following() -> ChunkSequence:
    sequence = ChunkSequence()
    sequence.begin(3)
    assert sequence.admit(3, 0, "a", 5, 8)
    return sequence


def test_consecutive_chunks_are_admitted() -> None:
    """The sequence number rises over all partitions; the offsets are consecutive per partition."""
    sequence = following()
    assert sequence.admit(3, 1, "b", 100, 101)
    assert sequence.admit(3, 2, "a", 8, 8)


def test_chunks_of_another_assignment_are_ignored() -> None:
    """A task ignores chunks of an earlier assignment; the partition's present owner reads them again."""
    assert not following().admit(2, 1, "a", 8, 9)


@pytest.mark.parametrize(("sequence", "begin", "end"), [(2, 8, 9), (1, 9, 10), (1, 7, 9), (1, 8, 7)])
def test_a_gap_is_fatal(sequence: int, begin: int, end: int) -> None:
    """A missing sequence number, a gap or an overlap of offsets, or an end before the begin is fatal."""
    with pytest.raises(Fatal, match="a gap in the fetched records"):
        following().admit(3, sequence, "a", begin, end)


def test_a_new_assignment_starts_anywhere() -> None:
    """The first chunk of a new assignment may begin at any offset, since the group's offset decides."""
    sequence = following()
    sequence.begin(4)
    assert sequence.admit(4, 0, "a", 0, 1)
