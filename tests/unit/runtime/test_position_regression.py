"""Source positions that start again stop the task; records that are read again do not (``merge.md`` section 2.6)."""

from __future__ import annotations

import pytest
from contracts.lake_actions import commit, text
from contracts.pipeline_suite import opened
from properties.columns import changes_of
from properties.reference_model import Event

from headrace.core.errors import Fatal
from headrace.core.events import CellState, Operation, RowVersion
from headrace.ports import TableOptions
from headrace.runtime.table_pipeline import TablePipeline
from headrace_connectors.memory import MemoryLakehouse, MemoryTable

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
    """A day later an update comes with a lower position, behind the row's own record."""
    write(pipeline, event(Operation.CREATE, 1000, 0, 0))
    with pytest.raises(Fatal, match=r"t-0 at offset 1 has position \S+10, the stored row has \S+1000.* 86400 s"):
        write(pipeline, event(Operation.UPDATE, 10, 1, 24))


def test_a_record_before_the_row_is_read_again(pipeline: TablePipeline, table: MemoryTable) -> None:
    """Its source time is the later one, since the row is of a statement that began long before it."""
    before, long_statement = event(Operation.UPDATE, 100, 0, 2), event(Operation.UPDATE, 200, 1, 0.5)
    write(pipeline, before, long_statement)
    again = opened("shop.orders", table)
    write(again, before)
    write(again, before, long_statement)
    assert [row["a"] for row in table.rows().values()] == [200]
