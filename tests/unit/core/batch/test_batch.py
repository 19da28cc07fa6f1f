"""The source time up to which a table contains the changes of all its partitions."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.records.change_events import TABLE, changes, create, delete, read, tombstone, update, version

from headrace.core.batch.batch import Batch, Trigger, Watermarks, operations
from headrace.core.model.absent_columns import ColumnDefaults
from headrace.core.model.events import Content, Operation, Truncate


def batch(content: Content, table: str = "items") -> Batch:
    return Batch(0, table, content, {}, Trigger.AGE, 0.0, ())


@pytest.fixture
def watermarks() -> Watermarks:
    return Watermarks(["t", "t", "other"])


def test_the_slowest_partition_counts(watermarks: Watermarks) -> None:
    """The watermark is the lowest source time of all partitions, or -1 until each had a change."""
    first, second = replace(create(1, 1, a=1), offset=7), replace(update(2, 2, a=1), partition=1, offset=3)
    assert watermarks.advance(batch(changes(first))) == -1
    assert watermarks.advance(batch(changes(second))) == 3000
    assert watermarks.advance(batch(changes(replace(delete(2, 3), partition=1, offset=9)))) == 7000
    assert watermarks.advance(batch(changes(replace(update(1, 4, a=2), offset=5)))) == 7000
    assert watermarks.advance(batch(Truncate(TABLE, version(5, 8)))) == 8000


def test_each_table_has_its_own_watermark(watermarks: Watermarks) -> None:
    """Tables have separate watermarks."""
    both = changes(replace(create(1, 1, a=1), offset=4), replace(create(2, 2, a=1), partition=1, offset=3))
    assert watermarks.advance(batch(both)) == 3000
    assert watermarks.advance(batch(changes(create(1, 1, a=1)), "others")) == -1


def test_times_of_reads_and_tombstones_do_not_count() -> None:
    """Reads and tombstones do not raise the watermark, since older changes may follow them."""
    watermarks = Watermarks(["t"])
    assert watermarks.advance(batch(changes(read(1, a=1), tombstone(2)))) == -1
    assert watermarks.advance(batch(changes(create(1, 1, a=1), read(2, a=1), tombstone(3)))) == 0


def test_the_operations_of_a_batch_are_counted() -> None:
    """A truncate is a batch of its own, and the defaults of new columns are no operation of the source."""
    content = changes(create(1, 1), read(2), update(1, 2), update(2, 3), delete(1, 4), tombstone(1))
    assert operations(content) == {
        Operation.CREATE: 1,
        Operation.READ: 1,
        Operation.UPDATE: 2,
        Operation.DELETE: 1,
        Operation.TOMBSTONE: 1,
    }
    assert operations(Truncate(TABLE, version(5, 5))) == {Operation.TRUNCATE: 1}
    assert operations(ColumnDefaults(TABLE, version(6, 6), ())) == {}
