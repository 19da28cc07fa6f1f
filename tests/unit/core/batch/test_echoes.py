"""A tombstone that comes in a later fetch than its delete is that delete."""

from __future__ import annotations

from change_events import changes, create, delete, tombstone
from task_queues import TaskQueues

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
    """The delete may be stale, having been sent again; its tombstone must not remove the row that stands."""
    batches = manager()
    batches.add("p", 2, [("t", changes(CREATED, SENT_AGAIN))], now=0.0)
    first = written(batches)
    assert first is not None
    assert operations(first) == [Operation.CREATE, Operation.DELETE]
    batches.add("p", 3, [("t", changes(tombstone(1)))], now=0.0)
    assert written(batches) is None
    assert batches.settled() == {}  # the first batch is not complete
    assert batches.complete(first) == {"p": 3}


def test_what_follows_the_tombstone_stays() -> None:
    """Only the one record is left out."""
    batches = manager()
    batches.add("p", 1, [("t", changes(SENT_AGAIN))], now=0.0)
    batches.add("p", 3, [("t", changes(tombstone(1), create(1, 95, a=2)))], now=0.0)
    assert operations(written(batches)) == [Operation.DELETE, Operation.CREATE]


def test_a_tombstone_on_its_own_is_a_delete() -> None:
    """Of another key, in another partition, in another table, or after something else."""
    batches = manager()
    batches.add("p", 1, [("t", changes(SENT_AGAIN))], now=0.0)
    batches.add("q", 1, [("t", changes(tombstone(1)))], now=0.0)
    batches.add("p", 2, [("t", changes(tombstone(2)))], now=0.0)
    batches.add("p", 3, [("t", changes(tombstone(1)))], now=0.0)
    assert operations(written(batches)) == [Operation.DELETE, *[Operation.TOMBSTONE] * 3]


def test_nobody_begins_to_read_between_a_delete_and_its_tombstone() -> None:
    """While more waits in Kafka the offset stays at the delete, which is read again without effect."""
    batches = manager()
    batches.add("p", 2, [("t", changes(CREATED, SENT_AGAIN))], now=0.0, behind=1)
    first = written(batches)
    assert first is not None
    assert batches.complete(first) == {"p": 1}
    batches.add("p", 3, [("t", changes(tombstone(1)))], now=0.0)
    assert batches.settled() == {"p": 3}


def test_the_last_record_of_a_partition_is_not_held_back() -> None:
    """A connector without tombstones has no lag."""
    batches = manager()
    batches.add("p", 2, [("t", changes(CREATED, SENT_AGAIN))], now=0.0)
    first = written(batches)
    assert first is not None
    assert batches.complete(first) == {"p": 2}
