"""A table's queue closes a batch by age, rows or bytes; only a completed batch moves offsets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.records.change_events import TABLE, changes, create, delete, update, version
from support.task.task_queues import TaskQueues

from headrace.core.batch.batch import BatchPolicy, Trigger, late_events
from headrace.core.batch.table_queue import FAR_BEHIND
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Changes, Truncate


def manager(**policy: float) -> TaskQueues:
    return TaskQueues(BatchPolicy(**policy))  # type: ignore[arg-type] # limits of rows and bytes are integers


def rows(count: int, begin: int = 0) -> Changes:
    return changes(*(create(begin + i, begin + i + 1, a=i) for i in range(count)))


def test_a_batch_closes_by_age() -> None:
    """A batch closes when its oldest record is as old as the linger; ``due`` returns that time."""
    batches = manager(linger=2.0)
    batches.add("p", 3, [("t", rows(3))], now=10.0)
    assert batches.next("t", 11.9) is None
    assert batches.due("t") == 12.0
    batch = batches.next("t", 12.0)
    assert batch is not None
    assert (batch.trigger, dict(batch.offsets)) == (Trigger.AGE, {"p": 3})


def test_a_partition_far_behind_gets_larger_batches() -> None:
    """A batch waits ten times the linger while its partition is far behind, and one linger when it has caught up."""
    batches = manager(linger=1.0)
    batches.add("p", 3, [("t", rows(3))], now=0.0, behind=FAR_BEHIND)
    batches.add("p", 6, [("t", rows(3, 3))], now=5.0, behind=1)
    assert batches.next("t", 9.9) is None
    assert batches.due("t") == 10.0
    batches.add("p", 7, [("t", rows(1, 6))], now=6.0, behind=0)
    assert batches.due("t") == 1.0
    batch = batches.next("t", 6.0)
    assert batch is not None
    assert dict(batch.offsets) == {"p": 7}


def test_a_partition_slightly_behind_does_not_wait_longer() -> None:
    """A partition with fewer than ``FAR_BEHIND`` records to read, as under steady load, does not prolong the linger."""
    batches = manager(linger=1.0)
    batches.add("p", 3, [("t", rows(3))], now=0.0, behind=FAR_BEHIND - 1)
    assert batches.due("t") == 1.0


@pytest.mark.parametrize(
    ("policy", "trigger"), [({"max_records": 3}, Trigger.ROWS), ({"max_bytes": 100}, Trigger.BYTES)]
)
def test_a_full_batch_closes_at_once(policy: dict[str, float], trigger: Trigger) -> None:
    """A batch closes when its rows or bytes reach the limit; ``crowded`` names its table until then."""
    batches = manager(linger=99.0, **policy)
    batches.add("p", 3, [("t", rows(3))], now=0.0)
    assert batches.crowded() == {"t"}
    batch = batches.next("t", 0.0)
    assert batch is not None
    assert batch.trigger is trigger
    assert batches.crowded() == frozenset()


def test_a_truncate_is_a_separate_batch() -> None:
    """The queue returns the changes before a truncate, the truncate, and the changes after it as three batches."""
    batches = manager(linger=99.0)
    truncate = Truncate(TABLE, version(5, 1))
    batches.add("p", 5, [("t", rows(1)), ("t", truncate), ("t", rows(1, 7))], now=0.0)
    contents = [batches.next("t", 0.0, flush=True) for _ in range(3)]
    assert [type(batch.content) for batch in contents if batch] == [Changes, Truncate, Changes]


def test_offsets_move_when_every_table_is_durable() -> None:
    """The offset passes a chunk with records of two tables when the batches of both tables are complete."""
    batches = manager(linger=0.0)
    batches.add("p", 9, [("t", rows(1)), ("u", rows(1))], now=0.0)
    first, second = batches.next("t", 0.0), batches.next("u", 0.0)
    assert first is not None
    assert second is not None
    assert batches.complete(first) == {}
    assert batches.complete(second) == {"p": 9}
    assert batches.idle


def test_completing_twice_is_an_error() -> None:
    """A batch that is completed again fails, because it would move offsets past records that are not durable."""
    batches = manager(linger=0.0)
    batches.add("p", 1, [("t", rows(1))], now=0.0)
    batch = batches.next("t", 0.0)
    assert batch is not None
    batches.complete(batch)
    with pytest.raises(Fatal, match="completed twice"):
        batches.complete(batch)


def test_a_new_assignment_discards_incomplete_batches() -> None:
    """A reset empties the queues; the worker reads their records again from the committed offset."""
    batches = manager(linger=0.0)
    batches.add("p", 1, [("t", rows(1))], now=0.0)
    batches.reset()
    assert batches.idle
    assert batches.next("t", 0.0) is None


def test_the_oldest_unwritten_change_is_reported_until_it_is_durable() -> None:
    """``unwritten`` includes changes in the queue, in a batch that is being written, and in a held key change."""
    batches = TaskQueues(BatchPolicy(linger=1.0))
    assert batches.unwritten() == {}
    first, second = changes(create(1, 1, a=1)), changes(update(1, 2, a=2))
    batches.add("p0", 1, [("orders", first), ("items", first)], 10.0)
    batches.add("p0", 2, [("orders", second)], 20.0)
    since = {name: each.since for name, each in batches.unwritten().items()}
    assert since == {"orders": 10.0, "items": 10.0}
    assert batches.unwritten()["orders"].source_time == first.newest_source_time
    batch = batches.next("orders", 30.0)
    assert batch is not None
    assert batches.unwritten()["orders"].since == 10.0, "the batch is being written"
    batches.complete(batch)
    assert set(batches.unwritten()) == {"items"}
    half = changes(replace(delete(3, 30, moved=True), new_key=4))
    batches.add("p0", 3, [("orders", half)], 40.0)
    assert batches.next("orders", 41.5) is None, "the queue holds it until the other half arrives"
    assert batches.unwritten()["orders"].since == 40.0
    batches.reset()
    assert batches.unwritten() == {}


@pytest.mark.parametrize(("now", "late"), [(10.0, 0), (11.5, 1), (13.5, 2)])
def test_late_events_count_by_their_own_source_times(now: float, late: int) -> None:
    """Each event of a batch has its own source time; of one without a time the time counts from the read."""
    batches = manager(linger=0.0)
    first, second = (replace(create(second, second, a=1), offset=second * 1000) for second in (1, 3))
    batches.add("p", 3001, [("t", changes(first, second))], 0.0)
    batch = batches.next("t", 0.0)
    assert batch is not None
    assert late_events(batch, 10.0, 0.0, int(now * 1_000_000)) == late


@pytest.mark.parametrize(("waited", "late"), [(9.0, 0), (11.0, 1)])
def test_events_without_a_source_time_count_from_their_read(waited: float, late: int) -> None:
    """The age of an event is then the time since the oldest one of its batch was read."""
    batches = manager(linger=0.0)
    batches.add("p", 1, [("t", Truncate(TABLE, replace(version(1, 0), source_time=0)))], 0.0)
    batch = batches.next("t", 0.0)
    assert batch is not None
    assert late_events(batch, 10.0, waited, 1_000_000_000_000_000) == late
