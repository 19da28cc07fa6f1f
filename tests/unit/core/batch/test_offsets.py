"""Committed offsets never pass a record that is not durable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.batch.offsets import OffsetTracker, Origin


def chunk(tracker: OffsetTracker, end: int, parts: int) -> Origin:
    """Begin a chunk whose records were added to ``parts`` tables."""
    origin = tracker.begin("p", end, 0.0)
    origin.missing += parts - 1
    return origin


def test_a_chunk_counts_when_all_its_tables_are_durable() -> None:
    """The offset passes a chunk with records of two tables when both tables are durable."""
    tracker = OffsetTracker()
    origin = chunk(tracker, 10, 2)
    origin.missing -= 1
    assert tracker.durable() == {}
    origin.missing -= 1
    assert tracker.durable() == {"p": 10}


def test_offsets_move_in_order() -> None:
    """The offset passes a second chunk that is durable first only when the first chunk is durable too."""
    tracker = OffsetTracker()
    first, second = chunk(tracker, 10, 1), chunk(tracker, 20, 1)
    second.missing -= 1
    assert tracker.durable() == {}
    first.missing -= 1
    assert tracker.durable() == {"p": 20}


def test_a_chunk_without_rows_passes_when_it_has_been_handed_out() -> None:
    """A chunk of heartbeats moves the offset without a batch, once all its records were handled."""
    tracker = OffsetTracker()
    origin = tracker.begin("p", 10, 0.0)
    assert tracker.durable() == {}
    origin.missing -= 1
    assert tracker.durable() == {"p": 10}


def test_no_offset_passes_a_chunk_that_cannot_be_written() -> None:
    """A blocked chunk stops its partition's offset before it; the offsets of other partitions move."""
    tracker = OffsetTracker()
    tracker.begin("p", 10, 0.0)
    chunk(tracker, 20, 1).missing -= 1
    tracker.begin("q", 5, 0.0).missing -= 1
    assert tracker.durable() == {"q": 5}


@given(st.data())
def test_any_order_of_completion(data: st.DataObject) -> None:
    """In any order of completion, a committed offset covers only complete chunks, and at the end all of them."""
    tracker, chunks = OffsetTracker(), data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    origins = [chunk(tracker, (i + 1) * 10, parts) for i, parts in enumerate(chunks)]
    parts = data.draw(st.permutations([i for i, count in enumerate(chunks) for _ in range(count)]))
    missing, committed = list(chunks), 0
    for part in parts:
        missing[part] -= 1
        origins[part].missing -= 1
        committed = tracker.durable().get("p", committed)
        assert all(left == 0 for left in missing[: committed // 10])
    assert committed == len(chunks) * 10
