"""Tests of source positions that restart, which fail the task; repeated records do not (``merge.md`` section 2.6)."""

from __future__ import annotations

import pytest
from contracts.pipeline_suite import opened
from properties.columns import changes_of, table_id
from properties.reference_model import Event
from support.lake.lake_actions import commit, text

from headrace.core.model.errors import Fatal
from headrace.core.model.events import CellState, Operation, RowVersion, Truncate
from headrace.ports import TableOptions
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse, MemoryTable

HOUR = 3_600_000_000


@pytest.fixture
def table() -> MemoryTable:
    return MemoryLakehouse().table("shop", "orders", TableOptions())


@pytest.fixture
def pipeline(table: MemoryTable) -> TablePipeline:
    return opened("shop.orders", table)


def event(operation: Operation, position: int, offset: int, hour: float, key: int = 1) -> Event:
    version = RowVersion(text(position), "t", 0, offset, int(hour * HOUR))
    return Event(operation, key, version, {"a": (CellState.VALUE, position)})


def write(pipeline: TablePipeline, *events: Event) -> None:
    pipeline.write(changes_of(list(events)), commit())


def test_positions_that_start_again_below_a_row(pipeline: TablePipeline) -> None:
    """An update a day later with a later offset but a lower position than the stored row fails the task."""
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    with pytest.raises(Fatal, match=r"t-0 at offset 1 has position \S+10, the stored row has \S+1000.* 86400 s"):
        write(pipeline, event(Operation.UPDATE, 10, 1, 24))


def test_a_record_before_the_row_is_read_again(pipeline: TablePipeline, table: MemoryTable) -> None:
    """A repeated record with a lower position is dropped, although its source time is later than the stored row's."""
    before, long_statement = event(Operation.UPDATE, 100, 0, 2), event(Operation.UPDATE, 200, 1, 0.5)
    write(pipeline, before, long_statement)
    again = opened("shop.orders", table)
    write(again, before)
    write(again, before, long_statement)
    assert [row["a"] for row in table.rows().values()] == [200]


def test_positions_that_start_again_below_a_delete(pipeline: TablePipeline, table: MemoryTable) -> None:
    """An insert a day later with a position below the row's delete fails the task. A late update is dropped."""
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    write(pipeline, event(Operation.DELETE, 1001, 1, 0))
    write(pipeline, event(Operation.UPDATE, 10, 2, 0.5), event(Operation.CREATE, 1002, 3, 0.5, key=2))
    assert list(table.rows()) == ["=2"]
    with pytest.raises(Fatal, match=r"t-0 at offset 4 has position \S+11, the row's delete has \S+1001 "):
        write(pipeline, event(Operation.CREATE, 11, 4, 24), event(Operation.CREATE, 1003, 5, 24, key=3))


def test_positions_that_start_again_below_a_truncate(pipeline: TablePipeline, table: MemoryTable) -> None:
    """A truncate or insert a day later with a position below the last truncate fails. A repeated truncate does not."""
    first, second = truncate(1001, 1, 0), truncate(1005, 2, 0)
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    for each in (first, second, first):
        pipeline.write(each, commit())
    for again in (truncate(10, 3, 24), changes_of([event(Operation.CREATE, 10, 3, 24)])):
        with pytest.raises(Fatal, match=r"t-0 at offset 3 has position \S+10, the table's last truncate has \S+1005 "):
            pipeline.write(again, commit())
    assert not table.rows()


def truncate(position: int, offset: int, hour: int) -> Truncate:
    return Truncate(table_id(0), RowVersion(text(position), "t", 0, offset, hour * HOUR))
