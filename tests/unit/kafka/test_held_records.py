"""Records that wait for others of their partition."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.ports import TopicPartition
from headrace_connectors.kafka.held_records import SECONDS_A_PARTITION, TICK_SECONDS, Fetched, HeldRecords
from headrace_connectors.kafka.records import FetchedRecord

MOST = 1000
MOST_SECONDS = 0.5


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def fetched(table: int, begin: int, end: int, behind: int = 0, since: float = 0.0) -> Fetched:
    records = [FetchedRecord(f"t{table}", 0, offset, 0, None, None, ()) for offset in range(begin, end)]
    return Fetched(TopicPartition(f"t{table}", 0), records, end, behind, since, at=float(end))


def offsets(taken: Sequence[Fetched]) -> dict[str, list[int]]:
    return {one.partition.topic: [record.offset for record in one.records] for one in taken}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def held(clock: Clock) -> HeldRecords:
    return HeldRecords(MOST_SECONDS, clock)


def test_records_of_one_partition_do_not_wait(held: HeldRecords) -> None:
    assert held.seconds_left(MOST) > 1e9
    held.hold(fetched(0, 5, 6))
    assert held.seconds_left(MOST) <= 0
    assert offsets(held.take(MOST)) == {"t0": [5]}


def test_records_of_several_polls_are_taken_together(held: HeldRecords, clock: Clock) -> None:
    """Each partition for as long as there are others when its first record comes."""
    for table in range(30):
        held.hold(fetched(table, 10, 11, behind=7, since=1.0))
    clock.now += SECONDS_A_PARTITION
    held.hold(fetched(29, 11, 13, behind=5, since=2.0))
    clock.now += 29 * SECONDS_A_PARTITION - TICK_SECONDS / 2
    taken = held.take(MOST)
    assert len(taken) == 30
    newest = taken[-1]
    assert [record.offset for record in newest.records] == [10, 11, 12]
    assert (newest.end, newest.behind, newest.since, newest.at) == (13, 5, 1.0, 13.0)
    assert held.seconds_left(MOST) > 1e9
    assert not held.partitions


def test_partitions_are_due_at_different_times(held: HeldRecords, clock: Clock) -> None:
    """Not all at once with the first of them, which is due at once."""
    for table in range(30):
        held.hold(fetched(table, 0, 1))
    assert held.seconds_left(MOST) <= 0
    soon = int(TICK_SECONDS / 2 / SECONDS_A_PARTITION)
    assert len(held.take(MOST)) == soon + 1
    assert held.seconds_left(MOST) == pytest.approx((soon + 1) * SECONDS_A_PARTITION)
    # All of them have had records, so the next ones of each wait for the others.
    held.hold(fetched(0, 1, 2))
    clock.now += 29 * SECONDS_A_PARTITION
    assert len(held.take(MOST)) == 30 - soon


def test_partitions_without_records_do_not_count(held: HeldRecords, clock: Clock) -> None:
    for table in range(30):
        held.hold(fetched(table, 0, 1))
    clock.now += 2
    held.take(MOST)
    held.hold(fetched(3, 1, 2))
    assert held.seconds_left(MOST) <= 0


def test_no_records_wait_longer_than_the_limit(held: HeldRecords) -> None:
    for table in range(500):
        held.hold(fetched(table, 0, 1))
    while held.seconds_left(MOST) <= 0:
        held.take(MOST)
    assert 0 < held.seconds_left(MOST) <= MOST_SECONDS


def test_large_chunks_and_full_polls_do_not_wait(held: HeldRecords) -> None:
    held.hold(fetched(0, 0, 1))
    held.take(MOST)
    for table in (1, 2):
        held.hold(fetched(table, 0, 31))
    assert held.seconds_left(MOST) > 0
    assert held.seconds_left(62) <= 0
    held.hold(fetched(1, 31, 33))
    assert held.seconds_left(MOST) <= 0
    assert len(held.take(63)) == 2


def test_no_chunk_contains_a_gap(held: HeldRecords) -> None:
    held.hold(fetched(0, 0, 2))
    held.hold(fetched(0, 4, 5))  # offsets 2 and 3 are markers of transactions, or lost
    assert offsets(held.take(MOST)) == {"t0": [0, 1]}
    assert set(held.partitions) == {TopicPartition("t0", 0)}
    assert held.seconds_left(MOST) <= 0
    assert offsets(held.take(MOST)) == {"t0": [4]}


def test_records_behind_several_gaps_stay_in_order(held: HeldRecords, clock: Clock) -> None:
    """As during a pause, in which nothing is taken."""
    for begin, end in ((0, 2), (4, 5), (5, 6), (8, 9)):
        held.hold(fetched(0, begin, end))
    assert held.seconds_left(5) <= 0
    clock.now += 1
    assert [offsets(held.take(MOST))["t0"] for _ in range(3)] == [[0, 1], [4, 5], [8]]
    assert held.seconds_left(MOST) > 1e9


def test_a_position_behind_the_last_record_is_no_gap(held: HeldRecords) -> None:
    before = fetched(0, 0, 2)
    held.hold(Fetched(before.partition, before.records, 4, 0, 0.0, 0.0))  # the fetch ended with two markers
    held.hold(fetched(0, 4, 5))
    assert offsets(held.take(MOST)) == {"t0": [0, 1, 4]}


def test_discarded_records_are_not_taken(held: HeldRecords) -> None:
    held.hold(fetched(0, 0, 2))
    held.hold(fetched(0, 4, 5))
    held.clear()
    assert not held.take(MOST)
    assert not held.partitions
