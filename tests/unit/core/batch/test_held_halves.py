"""A half of a key change is held until the other half arrives or a time has passed (``core/batch/held_halves.py``)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.records.change_events import TABLE, UNCHANGED, Event, changes, create, delete, tombstone, update
from support.task.task_queues import TaskQueues

from headrace.core.batch.batch import BatchPolicy
from headrace.core.batch.held_halves import HALF_TIMEOUT, HALF_TIMEOUT_BEHIND, LATE, RECHECK
from headrace.core.model.events import Changes, RowVersion, Truncate

AWAY = replace(delete(1, 20, moved=True), new_key=2)
INTO = Event(create(2, 20).operation, 2, 20, {"a": UNCHANGED}, old_key=1)


def manager(most: int = 500_000) -> TaskQueues:
    return TaskQueues(BatchPolicy(most, linger=0))


def add(batches: TaskQueues, partition: int, first: int, *events: Event, now: float = 0.0, behind: int = 0) -> None:
    numbered = [replace(event, partition=partition, offset=first + n) for n, event in enumerate(events)]
    batches.add(partition, first + len(events), [("t", changes(*numbered))], now, behind)


def taken(batches: TaskQueues, now: float, *, flush: bool = False) -> list[tuple[int, int]]:
    """Complete the next batch, and return partition and offset of its events."""
    batch = batches.next("t", now, flush=flush)
    if batch is None:
        return []
    assert isinstance(batch.content, Changes)
    batches.complete(batch)
    version = batch.content.version
    return list(zip(version.partition.tolist(), version.offset.tolist(), strict=True))


@pytest.mark.parametrize("most", [1, 2])
def test_no_limit_divides_a_key_change(most: int) -> None:
    """A batch contains both halves although a fetch ended between them and ``max_records`` is lower."""
    batches = manager(most)
    add(batches, 0, 0, AWAY, replace(tombstone(1), moved=True))
    assert taken(batches, 1.0) == []
    add(batches, 0, 2, INTO, update(2, 30, a=1), now=1.0)
    assert taken(batches, 1.0)[:2] == [(0, 0), (0, 2)]


def test_a_second_half_whose_key_is_held_keeps_its_first_half() -> None:
    """Row 1 moves to key 3 in another partition, then row 4 to key 1; the queue holds both halves of both changes."""
    batches = manager()
    add(batches, 0, 0, replace(AWAY, new_key=3), replace(tombstone(1), moved=True))
    add(batches, 0, 2, replace(AWAY, key=4, lsn=30, new_key=1), replace(tombstone(4), moved=True))
    add(batches, 0, 4, replace(INTO, key=1, lsn=30, old_key=4), create(4, 40, a=1))
    assert taken(batches, 1.0) == []
    add(batches, 1, 0, replace(INTO, key=3))
    assert taken(batches, 1.0) == [(0, 0), (1, 0), (0, 2), (0, 4), (0, 5)]


def test_a_flush_does_not_write_a_lone_half() -> None:
    """A flush does not release a held half, and the queue counts as idle, so that a pause can complete."""
    batches = manager()
    add(batches, 0, 0, update(3, 10, a=1), AWAY)
    assert taken(batches, 0.0, flush=True) == [(0, 0)]
    assert taken(batches, 0.0, flush=True) == []
    assert batches.idle


def test_only_the_old_key_waits_and_offsets_stay_before_the_first_half() -> None:
    """Later events of the old key wait for the second half, and no offset passes the first half."""
    batches = manager()
    add(batches, 0, 0, AWAY, create(1, 30, a=1), update(3, 40, a=1))
    batch = batches.next("t", 0.0)
    assert batch is not None
    assert batch.offsets == {0: 0}
    assert batches.complete(batch) == {}
    add(batches, 1, 0, INTO)
    assert taken(batches, 0.0) == [(0, 0), (1, 0), (0, 1)]


def test_a_half_that_no_other_follows_is_released() -> None:
    """The queue releases a half after ``HALF_TIMEOUT``, and does not hold the other half if that arrives afterwards."""
    batches = manager()
    add(batches, 0, 0, AWAY, create(1, 30, a=1))
    assert taken(batches, 1.0) == []
    assert batches.due("t") == HALF_TIMEOUT
    assert taken(batches, HALF_TIMEOUT) == [(0, 0), (0, 1)]
    add(batches, 1, 0, INTO, now=6.0)
    assert taken(batches, 6.0) == [(1, 0)]


def test_a_half_waits_longer_while_another_partition_has_more_to_read() -> None:
    """A half waits up to ``HALF_TIMEOUT_BEHIND`` while another partition may still contain the other half."""
    batches = manager()
    add(batches, 1, 0, update(9, 1, a=1), behind=1000)
    add(batches, 0, 0, AWAY)
    assert taken(batches, 0.0) == [(1, 0)]
    now = HALF_TIMEOUT
    while now < HALF_TIMEOUT_BEHIND:
        assert taken(batches, now) == []
        due = batches.due("t")
        assert due is not None
        assert now < due <= now + RECHECK
        now = due
    assert taken(batches, now) == [(0, 0)]


def test_a_half_waits_for_an_assigned_partition_that_brought_nothing_yet() -> None:
    """A half waits for the first chunk of another partition, because that may contain the other half."""
    batches = manager()
    batches.assign([0, 1])
    add(batches, 0, 0, AWAY)
    for now in (HALF_TIMEOUT, HALF_TIMEOUT + RECHECK, HALF_TIMEOUT_BEHIND - RECHECK):
        assert taken(batches, now) == []
    add(batches, 1, 0, INTO, now=HALF_TIMEOUT_BEHIND - RECHECK)
    assert taken(batches, HALF_TIMEOUT_BEHIND - RECHECK) == [(0, 0), (1, 0)]


def test_an_empty_partition_does_not_hold_a_half() -> None:
    """A half is released once every partition was seen at its end after ``HALF_TIMEOUT``."""
    batches = manager()
    batches.assign([0, 1])
    add(batches, 0, 0, AWAY)
    batches.caught_up(1, HALF_TIMEOUT - 1.0)
    assert taken(batches, HALF_TIMEOUT) == []
    batches.caught_up(1, HALF_TIMEOUT)
    assert taken(batches, HALF_TIMEOUT + RECHECK) == [(0, 0)]


def test_a_partition_that_never_answers_does_not_hold_a_half_without_end() -> None:
    """A half is released after ``HALF_TIMEOUT_BEHIND`` although a partition was not read: it may have no leader."""
    batches = manager()
    batches.assign([0, 1])
    add(batches, 0, 0, AWAY)
    now = 0.0
    while now < HALF_TIMEOUT_BEHIND:
        assert taken(batches, now) == []
        now = batches.due("t") or 0.0
    assert (taken(batches, now), now) == ([(0, 0)], HALF_TIMEOUT_BEHIND)


def test_a_half_waits_while_its_topic_is_not_read() -> None:
    """A half of a topic that another failed table stops waits until that is restarted, and then is read again.

    The stopped topic does not delay the halves of other topics.
    """
    batches = manager()
    batches.assign(["stopped", "read"])
    batches.stopped = {"stopped"}
    batches.add("stopped", 1, [("t", changes(AWAY))], 0.0, behind=1)
    batches.add("read", 1, [("t", changes(replace(AWAY, key=7, new_key=8, partition=1)))], 0.0)
    assert taken(batches, HALF_TIMEOUT) == [(1, 0)]
    now = HALF_TIMEOUT
    while now < 2 * HALF_TIMEOUT_BEHIND:
        assert taken(batches, now) == []
        now = batches.due("t") or 0.0


def test_the_wait_begins_again_after_a_pause() -> None:
    """A pause does not count: the first chunk after it releases no half, while another partition may have the other."""
    batches = manager()
    batches.assign([0, 1, 2])
    add(batches, 0, 0, AWAY)
    resumed = 2 * HALF_TIMEOUT_BEHIND
    batches.resume("t", resumed)
    add(batches, 2, 0, update(9, 50, a=1), now=resumed)
    assert taken(batches, resumed + HALF_TIMEOUT) == [(2, 0)]
    assert taken(batches, resumed + HALF_TIMEOUT) == []
    add(batches, 1, 0, INTO, now=resumed + 50.0)
    assert taken(batches, resumed + 50.0) == [(0, 0), (1, 0)]


def test_a_half_whose_other_half_waits_for_an_earlier_one_is_not_released_alone() -> None:
    """Row 1 moves to 2 and row 2 to 3 before, whose other half never arrives: only that one is written alone."""
    batches = manager()
    add(batches, 1, 0, AWAY, update(9, 50, a=1))
    add(batches, 0, 0, replace(delete(2, 10, moved=True), new_key=3))
    add(batches, 0, 1, INTO)
    assert taken(batches, 1.0) == [(1, 1)]
    batch = batches.next("t", HALF_TIMEOUT + 1.0)
    assert batch is not None
    assert isinstance(batch.content, Changes)
    assert list(zip(batch.content.version.partition.tolist(), batch.content.version.offset.tolist(), strict=True)) == [
        (0, 0),
        (1, 0),
        (0, 1),
    ]


def test_two_key_changes_that_wait_for_each_other_are_released() -> None:
    """A stretch that was sent again may bring the halves of two changes in opposite orders."""
    batches = manager()
    back = replace(delete(2, 30, moved=True), new_key=1)
    again = Event(create(1, 30).operation, 1, 30, {"a": UNCHANGED}, old_key=2)
    add(batches, 0, 0, AWAY, again)
    add(batches, 1, 0, back, INTO)
    assert taken(batches, 0.0) == []
    assert sorted(taken(batches, HALF_TIMEOUT)) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_barrier_does_not_divide_halves() -> None:
    """A truncate that came between the halves goes before both, and so do no later events of their keys."""
    batches = manager()
    add(batches, 0, 0, replace(delete(2, 10, moved=True), new_key=3))
    add(batches, 0, 1, INTO, update(2, 25, a=2), update(7, 26, a=1))
    batches.add(0, 5, [("t", Truncate(TABLE, RowVersion(b"05", "t", 0, 4, 0)))], 0.0)
    add(batches, 1, 0, AWAY, update(9, 50, a=1))
    assert taken(batches, 0.0) == [(0, 3)]
    assert taken(batches, HALF_TIMEOUT) == [(0, 0)]
    batch = batches.next("t", HALF_TIMEOUT)
    assert batch is not None
    assert isinstance(batch.content, Truncate)
    batches.complete(batch)
    assert taken(batches, HALF_TIMEOUT) == [(1, 1), (1, 0), (0, 1), (0, 2)]


def test_a_first_half_waits_longer_while_its_own_partition_has_more_to_read() -> None:
    """A first half that is the last fetched record of its partition waits longer, until the next record arrives."""
    batches = manager()
    add(batches, 0, 0, AWAY, behind=1)
    assert taken(batches, HALF_TIMEOUT + 1.0) == []
    add(batches, 0, 1, INTO, now=20.0)
    assert taken(batches, 20.0) == [(0, 0), (0, 1)]
    batches = manager()
    add(batches, 0, 0, AWAY, behind=1000)
    add(batches, 0, 1, update(3, 40, a=1), behind=999)
    assert taken(batches, HALF_TIMEOUT) == [(0, 1), (0, 0)]


def test_a_first_half_waits_longer_also_behind_events_of_its_key_that_wait() -> None:
    """A row moves from 1 to 2 to 3; the second move waits for its other half after the first move is written."""
    batches = manager()
    again = replace(delete(2, 30, moved=True), new_key=3)
    last = Event(create(3, 30).operation, 3, 30, {"a": UNCHANGED}, old_key=2)
    add(batches, 1, 0, INTO, again, behind=1)
    add(batches, 0, 0, AWAY, now=1.0)
    assert taken(batches, 1.0) == [(0, 0), (1, 0)]
    assert taken(batches, HALF_TIMEOUT + 1.0) == []
    add(batches, 1, 2, last, now=20.0)
    assert taken(batches, 20.0) == [(1, 1), (1, 2)]


def test_a_suspended_worker_writes_no_lone_half_at_once() -> None:
    """A half waits ``HALF_TIMEOUT`` again after a suspension, because the group may have replaced the worker."""
    batches = manager()
    add(batches, 0, 0, AWAY)
    awake = HALF_TIMEOUT + LATE
    assert taken(batches, awake) == []
    assert taken(batches, awake + HALF_TIMEOUT) == [(0, 0)]


def test_a_chain_over_partitions_is_released_in_order() -> None:
    """A row moves from 1 to 2 to 3 and the halves arrive in reverse order; the queue writes them in source order."""
    batches = manager()
    again = replace(delete(2, 30, moved=True), new_key=3)
    last = Event(create(3, 30).operation, 3, 30, {"a": UNCHANGED}, old_key=2)
    add(batches, 2, 0, last)
    add(batches, 1, 0, INTO, again)
    assert taken(batches, 0.0) == []
    add(batches, 0, 0, AWAY)
    assert taken(batches, 0.0) == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_held_events_beyond_the_batch_bytes_are_released() -> None:
    """The queue releases a half when the held events exceed ``max_bytes``."""
    batches = TaskQueues(BatchPolicy(max_bytes=1000, linger=0))
    add(batches, 0, 0, AWAY, *(update(1, 30 + n, a=n) for n in range(20)))
    assert len(taken(batches, 0.0)) > 0


def test_a_history_table_holds_no_halves() -> None:
    """The queue of a history table holds no halves, because each event is a row there."""
    batches = TaskQueues(BatchPolicy(linger=0), holds_halves=False)
    add(batches, 0, 0, AWAY)
    assert taken(batches, 0.0) == [(0, 0)]


def test_a_half_that_is_released_stays_behind_earlier_events_of_its_key() -> None:
    """The queue writes a released half after the earlier events of its key."""
    batches = manager()
    add(batches, 0, 0, update(1, 10, a=1), AWAY)
    assert taken(batches, HALF_TIMEOUT) == [(0, 0), (0, 1)]
