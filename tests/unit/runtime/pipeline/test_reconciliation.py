"""Tests of merges whose counts no rule explains."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest
from support.records.change_events import changes, create

from headrace.core.model.actions import Actions
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import Commit, LakeTable, MergeCounts, TableOptions
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reconciliation import UnexplainedCounts
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace_dev.memory import MemoryLakehouse


class CountsNothing:
    """A table of which another writer removes what was merged, before it is counted."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        return MergeCounts(0, 0)


def test_unexplained_counts_are_a_contradiction() -> None:
    """Each of the attempts reports the table, so that it is verified. A table with the expected counts is silent."""
    reported: list[tuple[str, str, str]] = []
    reselect = Reselect(
        ReselectOptions(), on_contradiction=lambda topic, table, kind: reported.append((topic, table.table, kind))
    )
    batch = changes(create(1, 1, a=1), columns=("a",))
    table = MemoryLakehouse().table("shop", "orders", TableOptions())

    def write(written: LakeTable) -> None:
        options = PipelineOptions()
        pipeline = TablePipeline("shop.orders", written, reselect, options, lambda: 0, lambda stage: nullcontext())
        pipeline.write(batch, Commit(1, "sink", "connect-sink", {}))

    with pytest.raises(UnexplainedCounts, match="another writer may write to this table"):
        write(cast(LakeTable, CountsNothing(table)))
    assert set(reported) == {(batch.version.topic, batch.table.table, "unexplained_counts")}
    assert len(reported) == 3
    reported.clear()
    write(table)
    assert reported == []
