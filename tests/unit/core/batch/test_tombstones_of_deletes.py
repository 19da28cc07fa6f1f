"""The queue drops the tombstone that directly follows its delete, also if it arrives in a later fetch."""

from __future__ import annotations

from support.records.change_events import changes, create, delete, tombstone
from support.task.task_queues import TaskQueues

from headrace.core.batch.batch import Batch, BatchPolicy
from headrace.core.model.events import Changes, Operation

CREATED = create(1, 90, a=1)
SENT_AGAIN = delete(1, 30)


def manager() -> TaskQueues:
    return TaskQueues(BatchPolicy(linger=0.0))


def written(batches: TaskQueues) -> Batch | None:
    return batches.next("t", 100.0)


def operations(batch: Batch | None) -> list[int]:
    assert batch is not None
    assert isinstance(batch.content, Changes)
    return batch.content.operation.tolist()


def test_a_tombstone_in_the_next_batch_is_the_delete_before_it() -> None:
    """The queue drops the tombstone of a delete that was sent again, so that it does not remove the newer row."""
    batches = manager()
    batches.add("p", 2, [("t", changes(CREATED, SENT_AGAIN))], now=0.0)
    first = written(batches)
    assert first is not None
    assert operations(first) == [Operation.CREATE, Operation.DELETE]
    batches.add("p", 3, [("t", changes(tombstone(1)))], now=0.0)
    assert written(batches) is None
    assert batches.settled() == {}  # the first batch is not complete
    assert batches.complete(first) == {"p": 3}


def test_events_behind_the_tombstone_are_written() -> None:
    """The queue drops only the tombstone; it writes a create behind it in the same chunk."""
    batches = manager()
    batches.add("p", 1, [("t", changes(SENT_AGAIN))], now=0.0)
    batches.add("p", 3, [("t", changes(tombstone(1), create(1, 95, a=2)))], now=0.0)
    assert operations(written(batches)) == [Operation.DELETE, Operation.CREATE]


def test_a_tombstone_on_its_own_is_a_delete() -> None:
    """A tombstone of another key, in another partition or behind another record is written as a delete."""
    batches = manager()
    batches.add("p", 1, [("t", changes(SENT_AGAIN))], now=0.0)
    batches.add("q", 1, [("t", changes(tombstone(1)))], now=0.0)
    batches.add("p", 2, [("t", changes(tombstone(2)))], now=0.0)
    batches.add("p", 3, [("t", changes(tombstone(1)))], now=0.0)
    assert operations(written(batches)) == [Operation.DELETE, *[Operation.TOMBSTONE] * 3]


def test_the_offset_stays_at_a_delete_while_kafka_has_more() -> None:
    """While Kafka has more records the offset stays at the delete, so that a restart reads both records again."""
    batches = manager()
    batches.add("p", 2, [("t", changes(CREATED, SENT_AGAIN))], now=0.0, behind=1)
    first = written(batches)
    assert first is not None
    assert batches.complete(first) == {"p": 1}
    batches.add("p", 3, [("t", changes(tombstone(1)))], now=0.0)
    assert batches.settled() == {"p": 3}


def test_the_last_record_of_a_partition_is_not_held_back() -> None:
    """The offset passes a delete that is the last record in Kafka, so that topics without tombstones have no lag."""
    batches = manager()
    batches.add("p", 2, [("t", changes(CREATED, SENT_AGAIN))], now=0.0)
    first = written(batches)
    assert first is not None
    assert batches.complete(first) == {"p": 2}
