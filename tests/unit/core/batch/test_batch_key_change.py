"""A batch contains both halves of a key change or neither, wherever chunks end (``merge.md`` section 6)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from support.task.task_queues import TaskQueues

from headrace.core.batch.batch import BatchPolicy
from headrace.core.batch.held_halves import HALF_TIMEOUT
from headrace.core.model.events import Changes, KeyChanges, Operation, RowVersion, TableId, Truncate, Versions

TABLE = TableId("server", "db", "public", "t")
D, T, C, U = Operation.DELETE, Operation.TOMBSTONE, Operation.CREATE, Operation.UPDATE


def changes(*operations: Operation, first_offset: int = 0, moved: tuple[int, ...] = (), partition: int = 0) -> Changes:
    count = len(operations)
    offsets = np.arange(first_offset, first_offset + count, dtype=np.int64)
    version = Versions("t", np.full(count, b"1"), np.full(count, partition, np.int32), offsets, offsets)
    keys = pa.array([f"={offset}" for offset in offsets])
    zeros = np.zeros(count, np.int64)
    return Changes(
        TABLE, ("id",), np.array(operations, np.uint8), keys, version, zeros, (), KeyChanges({}, frozenset(moved))
    )


def manager() -> TaskQueues:
    return TaskQueues(BatchPolicy(linger=0))


def offsets(batches: TaskQueues, now: float) -> list[int] | None:
    batch = batches.next("t", now)
    return None if batch is None else batch.content.version.offset.tolist()


def test_first_half_waits_for_the_second() -> None:
    """The queue holds a moved delete and its tombstone until the create arrives; it writes the records before them."""
    batches = manager()
    batches.add("p0", 2, [("t", changes(U, D, moved=(1,)))], 0.0)
    assert offsets(batches, 1.0) == [0]
    batches.add("p0", 3, [("t", changes(T, first_offset=2, moved=(0,)))], 1.0)
    assert offsets(batches, 1.0) is None
    batches.add("p0", 4, [("t", changes(C, first_offset=3))], 1.0)
    assert offsets(batches, 1.0) == [1, 2, 3]


def test_a_first_half_is_released_after_a_time() -> None:
    """The queue writes a first half alone after ``HALF_TIMEOUT``, since its second half may be in another partition."""
    batches = manager()
    batches.add("p0", 1, [("t", changes(D, moved=(0,)))], 0.0)
    assert offsets(batches, 1.0) is None
    assert batches.due("t") == HALF_TIMEOUT
    assert offsets(batches, HALF_TIMEOUT) == [0]


def test_later_contents_do_not_release_a_first_half_early() -> None:
    """A truncate and changes of another partition behind a first half wait too; ``due`` returns the end of its wait."""
    batches = manager()
    batches.add("p0", 1, [("t", changes(D, moved=(0,)))], 0.0)
    truncate = Truncate(TABLE, RowVersion(b"2", "t", 1, 0, 0))
    batches.add("p1", 1, [("t", truncate), ("t", changes(U, first_offset=1, partition=1))], 1.0)
    assert batches.next("t", 1.0) is None
    assert batches.due("t") == HALF_TIMEOUT
    assert offsets(batches, HALF_TIMEOUT) == [0]
    written = batches.next("t", HALF_TIMEOUT)
    assert written is not None
    assert written.content == truncate


def test_other_partitions_continue() -> None:
    """A held first half does not delay the changes of another partition."""
    batches = manager()
    batches.add("p0", 1, [("t", changes(D, moved=(0,)))], 0.0)
    batches.add("p1", 8, [("t", changes(U, first_offset=7, partition=1))], 0.0)
    assert offsets(batches, 1.0) == [7]
    assert offsets(batches, 1.0) is None


def test_offset_stays_before_the_first_half() -> None:
    """A chunk moves its partition's offset only when the held half at its end is durable too."""
    batches = manager()
    batches.add("p0", 2, [("t", changes(U, D, moved=(1,)))], 0.0)
    written = batches.next("t", 1.0)
    assert written is not None
    assert batches.complete(written) == {}
    batches.add("p0", 3, [("t", changes(C, first_offset=2))], 1.0)
    written = batches.next("t", 1.0)
    assert written is not None
    assert batches.complete(written) == {"p0": 3}
