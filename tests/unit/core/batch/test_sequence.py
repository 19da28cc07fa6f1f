"""A task checks that chunks of the consumer arrive without a gap."""

from __future__ import annotations

import pytest

from headrace.core.batch.offsets import ChunkSequence
from headrace.core.model.errors import Fatal


@pytest.fixture
def sequence() -> ChunkSequence:
    """Return the check of an assignment, after a chunk that may begin at any offset: the group's offset decides."""
    sequence = ChunkSequence()
    sequence.admit(0, "a", 5, 8)
    return sequence


def test_consecutive_chunks_are_admitted(sequence: ChunkSequence) -> None:
    """The sequence number rises over all partitions; the offsets are consecutive per partition."""
    sequence.admit(1, "b", 100, 101)
    sequence.admit(2, "a", 8, 8)


@pytest.mark.parametrize(("number", "begin", "end"), [(2, 8, 9), (1, 9, 10), (1, 7, 9), (1, 8, 7)])
def test_a_gap_is_fatal(sequence: ChunkSequence, number: int, begin: int, end: int) -> None:
    """A missing sequence number, a gap or an overlap of offsets, or an end before the begin is fatal."""
    with pytest.raises(Fatal, match="a gap in the fetched records"):
        sequence.admit(number, "a", begin, end)
