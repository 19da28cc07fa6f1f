"""Tests of ``schema.evolution=none``, with which no pipeline adds a column to a table."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from support.records.change_events import changes, create

from headrace.cassandra.cell_writes import Cell, CellWrites, comparison_bytes
from headrace.cassandra.rows import CassandraWrites
from headrace.core.model.errors import Fatal
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, TableOptions
from headrace.runtime.pipeline.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.pipeline.versioned_writes_pipeline import VersionedWritesPipeline
from headrace_dev.memory import MemoryLakehouse, MemoryTable

COMMIT = Commit(1, "sink", "connect-sink", {})


def writes(*names: str) -> CassandraWrites:
    """Return a batch of one row of text columns of the Cassandra connector."""
    fields = (Field("k", Schema("int32")), *(Field(name, Schema("string", optional=True)) for name in names))
    cells = {name: Cell(1, "text", comparison_bytes("string", "text")) for name in names}
    version = RowVersion(b"", "shop.hr.kv", 0, 1, 9)
    return CassandraWrites(TableId("shop", "", "hr", "kv"), ("k",), fields, (CellWrites((1,), cells),), version)


def events(*names: str) -> Any:
    """Return the changes of one row of numbers of Debezium's other connectors."""
    event = create(1, len(names), **dict.fromkeys(names, 1))
    return changes(replace(event, offset=len(names)), columns=names)


def cassandra(table: MemoryTable, evolve: bool) -> Any:
    return VersionedWritesPipeline("hr.kv", table, 10**15, lambda: 0, new_columns=evolve)


def others(kind: Callable[..., Any]) -> Callable[[MemoryTable, bool], Any]:
    reselect = Reselect(ReselectOptions())
    return lambda table, evolve: kind(
        "hr.kv", table, reselect, PipelineOptions(evolve=evolve), lambda: 0, lambda stage: nullcontext()
    )


@pytest.mark.parametrize(
    ("pipeline", "batch", "history"),
    [(cassandra, writes, False), (others(TablePipeline), events, False), (others(HistoryPipeline), events, True)],
    ids=["cassandra", "table", "history"],
)
def test_a_new_column_is_refused_before_anything_is_written(
    pipeline: Callable[[MemoryTable, bool], Any], batch: Callable[..., Any], history: bool
) -> None:
    """The first batch creates the table. A batch with a new column fails before the write, and the error names it."""
    table: MemoryTable = MemoryLakehouse().table("hr", "kv", TableOptions(history=history))
    pipeline(table, False).write(batch("a"), COMMIT)
    before = table.schema(), len(table.commits)
    with pytest.raises(Fatal, match=r"^hr\.kv: new column\(s\) b, and schema\.evolution is none$"):
        pipeline(table, False).write(batch("a", "b"), COMMIT)
    assert (table.schema(), len(table.commits)) == before
    pipeline(table, True).write(batch("a", "b"), COMMIT)
    assert (table.schema() or pa.schema([])).get_field_index("b") >= 0
