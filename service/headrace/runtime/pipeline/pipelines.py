"""The pipeline of each table of a task, opened with the table's first batch."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from headrace.core.batch.batch import Batch
from headrace.core.model.errors import Fatal
from headrace.core.model.versioned_writes import VersionedWrites
from headrace.ports import Lakehouse, LakeTable, TableOptions
from headrace.runtime.clock import now
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.pipeline.versioned_writes_pipeline import VersionedWritesPipeline

Pipeline = TablePipeline | HistoryPipeline | VersionedWritesPipeline


class OpenTable(NamedTuple):
    """A table, the pipeline that writes it, and its ``name`` with the namespace."""

    name: str
    table: LakeTable
    pipeline: Pipeline


class Pipelines:
    """The pipelines of one task's tables, all in ``namespace``."""

    def __init__(
        self,
        namespace: str,
        tables: TableOptions,
        options: PipelineOptions,
        lakehouse: Lakehouse,
        reselect: Reselect,
        observer: Observer,
    ) -> None:
        self._namespace = namespace
        self._tables = tables
        self._options = options
        self._lakehouse = lakehouse
        self._reselect = reselect
        self._observer = observer
        self._open: dict[tuple[str, bool], OpenTable] = {}

    def open_table(self, batch: Batch) -> OpenTable:
        """Return the open table of a batch. The first one starts the lakehouse, which takes a while. Raises Fatal."""
        key = batch.table, isinstance(batch.content, VersionedWrites)
        if (opened := self._open.get(key)) is not None:
            return opened
        table = self._lakehouse.table(self._namespace, batch.table, self._tables)
        name = f"{self._namespace}.{batch.table}"
        pipeline: Pipeline
        if isinstance(batch.content, VersionedWrites):
            if self._tables.history:
                raise Fatal(
                    f"{name}: insert.mode=insert does not support {batch.content.source}, whose events are writes of "
                    "cells, not rows to append; use insert.mode=upsert"
                )
            retention, may_grow = self._options.tombstone_retention, self._options.evolve
            pipeline = VersionedWritesPipeline(name, table, retention, now, new_columns=may_grow)
        else:
            pipeline_class = HistoryPipeline if self._tables.history else TablePipeline
            stages = partial(self._observer.stage, batch.table)
            pipeline = pipeline_class(name, table, self._reselect, self._options, now=now, stages=stages)
        opened = self._open[key] = OpenTable(name, table, pipeline)
        return opened

    def discard(self, table: str) -> None:
        """Open a table again with its next batch."""
        for is_versioned in (False, True):  # not a loop over ``_open``, to which writer threads add tables
            self._open.pop((table, is_versioned), None)

    def begin_assignment(self) -> None:
        for opened in list(self._open.values()):
            opened.pipeline.begin_assignment()
