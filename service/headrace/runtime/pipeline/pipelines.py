"""The pipeline of each table of a task, opened with the table's first batch."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from headrace.core.batch.batch import Batch
from headrace.core.model.cell_batch import CassandraBatch
from headrace.core.model.errors import Fatal
from headrace.ports import Lakehouse, LakeTable, TableOptions
from headrace.runtime.clock import now
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.cassandra_pipeline import CassandraPipeline
from headrace.runtime.pipeline.history_pipeline import HistoryPipeline
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline

Pipeline = TablePipeline | HistoryPipeline | CassandraPipeline


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
        table = batch.table, isinstance(batch.content, CassandraBatch)
        if table not in self._open:
            self._open[table] = self._opened(*table)
        return self._open[table]

    def discard(self, table: str) -> None:
        """Open a table again with its next batch."""
        self._open = {key: each for key, each in self._open.items() if key[0] != table}

    def begin_assignment(self) -> None:
        """Begin an assignment in all open pipelines."""
        for each in self._open.values():
            each.pipeline.begin_assignment()

    def _opened(self, name: str, cassandra: bool) -> OpenTable:
        table = self._lakehouse.table(self._namespace, name, self._tables)
        label = f"{self._namespace}.{name}"
        if cassandra and self._tables.history:
            raise Fatal(
                f"{label}: insert.mode=insert does not support Cassandra, whose events are writes of cells, not "
                "rows to append; use insert.mode=upsert"
            )
        if cassandra:
            retention, may_grow = self._options.tombstone_retention, self._options.evolve
            return OpenTable(label, table, CassandraPipeline(label, table, retention, now, new_columns=may_grow))
        pipeline = HistoryPipeline if self._tables.history else TablePipeline
        stages = partial(self._observer.stage, name)
        return OpenTable(label, table, pipeline(label, table, self._reselect, self._options, now=now, stages=stages))
