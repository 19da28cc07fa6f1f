"""Offsets never pass what is durable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.batch.offsets import OffsetTracker


def test_a_chunk_counts_when_all_its_tables_are_durable() -> None:
    """Two tables got records of one chunk: the offset waits for both."""
    tracker = OffsetTracker()
    ticket = tracker.begin("p", 10, 2)
    assert tracker.done([ticket]) == {}
    assert tracker.done([ticket]) == {"p": 10}


def test_offsets_move_in_order() -> None:
    """The second chunk is durable first: nothing moves until the first is."""
    tracker = OffsetTracker()
    first, second = tracker.begin("p", 10, 1), tracker.begin("p", 20, 1)
    assert tracker.done([second]) == {}
    assert tracker.done([first]) == {"p": 20}


def test_a_chunk_without_rows_passes_at_once() -> None:
    """Heartbeats move the offset without a batch."""
    tracker = OffsetTracker()
    tracker.begin("p", 10, 0)
    assert tracker.advance() == {"p": 10}


@given(st.data())
def test_any_order_of_completion(data: st.DataObject) -> None:
    """Whatever completes first, a committed offset covers only complete chunks, and all of them at the end."""
    tracker, chunks = OffsetTracker(), data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=8))
    tickets = [tracker.begin("p", (i + 1) * 10, parts) for i, parts in enumerate(chunks)]
    parts = data.draw(st.permutations([i for i, count in enumerate(chunks) for _ in range(count)]))
    missing, committed = list(chunks), 0
    for part in parts:
        missing[part] -= 1
        committed = tracker.done([tickets[part]]).get("p", committed)
        assert all(left == 0 for left in missing[: committed // 10])
    assert committed == len(chunks) * 10
