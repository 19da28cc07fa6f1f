"""The halves of a key change wait for each other, and for nothing else (``core/batch/held_halves.py``)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from change_events import UNCHANGED, Event, changes, create, delete, tombstone, update
from task_queues import TaskQueues

from headrace.core.batch.batch import BatchPolicy
from headrace.core.batch.held_halves import LATE, PATIENCE, PATIENCE_BEHIND, RECHECK
from headrace.core.model.events import Changes

AWAY = replace(delete(1, 20, moved=True), new_key=2)
INTO = Event(create(2, 20).operation, 2, 20, {"a": UNCHANGED}, old_key=1)


def manager(most: int = 500_000) -> TaskQueues:
    return TaskQueues(BatchPolicy(most, linger=0))


def add(batches: TaskQueues, partition: int, first: int, *events: Event, now: float = 0.0, behind: int = 0) -> None:
    numbered = [replace(event, partition=partition, offset=first + n) for n, event in enumerate(events)]
    batches.add(partition, first + len(events), [("t", changes(*numbered))], now, behind)


def taken(batches: TaskQueues, now: float, *, flush: bool = False) -> list[tuple[int, int]]:
    """Partition and offset of the next batch's events; its end counts as durable."""
    batch = batches.next("t", now, flush=flush)
    if batch is None:
        return []
    assert isinstance(batch.content, Changes)
    batches.complete(batch)
    version = batch.content.version
    return list(zip(version.partition.tolist(), version.offset.tolist(), strict=True))


@pytest.mark.parametrize("most", [1, 2])
def test_no_limit_divides_a_key_change(most: int) -> None:
    """A fetch ends between the halves, and a batch may hold no more than the first one."""
    batches = manager(most)
    add(batches, 0, 0, AWAY, replace(tombstone(1), moved=True))
    assert taken(batches, 1.0) == []
    add(batches, 0, 2, INTO, update(2, 30, a=1), now=1.0)
    assert taken(batches, 1.0)[:2] == [(0, 0), (0, 2)]


def test_a_second_half_whose_key_is_held_keeps_its_first_half() -> None:
    """Row 1 moves to key 3 elsewhere, then row 4 onto key 1: a fetch ends between the halves of the second change."""
    batches = manager()
    add(batches, 0, 0, replace(AWAY, new_key=3), replace(tombstone(1), moved=True))
    add(batches, 0, 2, replace(AWAY, key=4, lsn=30, new_key=1), replace(tombstone(4), moved=True))
    add(batches, 0, 4, replace(INTO, key=1, lsn=30, old_key=4), create(4, 40, a=1))
    assert taken(batches, 1.0) == []
    add(batches, 1, 0, replace(INTO, key=3))
    assert taken(batches, 1.0) == [(0, 0), (1, 0), (0, 2), (0, 4), (0, 5)]


def test_a_flush_does_not_write_a_lone_half() -> None:
    """What has to wait counts as nothing to do, so that a pause ends."""
    batches = manager()
    add(batches, 0, 0, update(3, 10, a=1), AWAY)
    assert taken(batches, 0.0, flush=True) == [(0, 0)]
    assert taken(batches, 0.0, flush=True) == []
    assert batches.idle


def test_only_the_old_key_waits_and_offsets_stay_before_the_first_half() -> None:
    """The key's next row follows its old one once the other partition has brought the second half."""
    batches = manager()
    add(batches, 0, 0, AWAY, create(1, 30, a=1), update(3, 40, a=1))
    batch = batches.next("t", 0.0)
    assert batch is not None
    assert batch.offsets == {0: 0}
    assert batches.complete(batch) == {}
    add(batches, 1, 0, INTO)
    assert taken(batches, 0.0) == [(0, 0), (1, 0), (0, 1)]


def test_a_half_that_no_other_follows_is_released() -> None:
    """A filter at the source dropped the other half; should it come nevertheless, it does not wait."""
    batches = manager()
    add(batches, 0, 0, AWAY, create(1, 30, a=1))
    assert taken(batches, 1.0) == []
    assert batches.due("t") == PATIENCE
    assert taken(batches, PATIENCE) == [(0, 0), (0, 1)]
    add(batches, 1, 0, INTO, now=6.0)
    assert taken(batches, 6.0) == [(1, 0)]


def test_a_half_waits_longer_while_another_partition_has_more_to_read() -> None:
    """The other half may be in there; at last nothing waits for it."""
    batches = manager()
    add(batches, 1, 0, update(9, 1, a=1), behind=1000)
    add(batches, 0, 0, AWAY)
    assert taken(batches, 0.0) == [(1, 0)]
    now = PATIENCE
    while now < PATIENCE_BEHIND:
        assert taken(batches, now) == []
        due = batches.due("t")
        assert due is not None
        assert now < due <= now + RECHECK
        now = due
    assert taken(batches, now) == [(0, 0)]


def test_a_first_half_waits_longer_while_its_own_partition_has_more_to_read() -> None:
    """The other half is the next record there, if it is there; behind any other record only other partitions count."""
    batches = manager()
    add(batches, 0, 0, AWAY, behind=1)
    assert taken(batches, PATIENCE + 1.0) == []
    add(batches, 0, 1, INTO, now=20.0)
    assert taken(batches, 20.0) == [(0, 0), (0, 1)]
    batches = manager()
    add(batches, 0, 0, AWAY, behind=1000)
    add(batches, 0, 1, update(3, 40, a=1), behind=999)
    assert taken(batches, PATIENCE) == [(0, 1), (0, 0)]


def test_a_first_half_waits_longer_also_behind_events_of_its_key_that_wait() -> None:
    """1 to 2 and on to 3, where the second move waits for the first one."""
    batches = manager()
    again = replace(delete(2, 30, moved=True), new_key=3)
    last = Event(create(3, 30).operation, 3, 30, {"a": UNCHANGED}, old_key=2)
    add(batches, 1, 0, INTO, again, behind=1)
    add(batches, 0, 0, AWAY, now=1.0)
    assert taken(batches, 1.0) == [(0, 0), (1, 0)]
    assert taken(batches, PATIENCE + 1.0) == []
    add(batches, 1, 2, last, now=20.0)
    assert taken(batches, 20.0) == [(1, 1), (1, 2)]


def test_a_worker_that_stood_still_writes_no_lone_half_at_once() -> None:
    """It may have lost its partitions, and hears of it only now."""
    batches = manager()
    add(batches, 0, 0, AWAY)
    awake = PATIENCE + LATE
    assert taken(batches, awake) == []
    assert taken(batches, awake + PATIENCE) == [(0, 0)]


def test_a_chain_over_partitions_is_released_in_order() -> None:
    """1 to 2 to 3, whose halves come in the worst order: each second half behind the first half that waits for it."""
    batches = manager()
    again = replace(delete(2, 30, moved=True), new_key=3)
    last = Event(create(3, 30).operation, 3, 30, {"a": UNCHANGED}, old_key=2)
    add(batches, 2, 0, last)
    add(batches, 1, 0, INTO, again)
    assert taken(batches, 0.0) == []
    add(batches, 0, 0, AWAY)
    assert taken(batches, 0.0) == [(0, 0), (1, 0), (1, 1), (2, 0)]


def test_too_much_that_waits_is_released() -> None:
    """A queue of the old key's events that grows beyond a batch's bytes is not kept in memory."""
    batches = TaskQueues(BatchPolicy(max_bytes=1000, linger=0))
    add(batches, 0, 0, AWAY, *(update(1, 30 + n, a=n) for n in range(20)))
    assert len(taken(batches, 0.0)) > 0


def test_histories_hold_nothing() -> None:
    """Each event is a row there."""
    batches = TaskQueues(BatchPolicy(linger=0), holds_halves=False)
    add(batches, 0, 0, AWAY)
    assert taken(batches, 0.0) == [(0, 0)]


def test_a_half_that_is_released_stays_behind_earlier_events_of_its_key() -> None:
    """These may still wait for the writer."""
    batches = manager()
    add(batches, 0, 0, update(1, 10, a=1), AWAY)
    assert taken(batches, PATIENCE) == [(0, 0), (0, 1)]
