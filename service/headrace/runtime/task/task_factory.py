"""Create sink tasks with their parts from the configuration of a connector, and ask its tables while no task runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from headrace.config import SinkConnectorConfig
from headrace.core.connect.status import TableStatus
from headrace.core.decode.json_converter import JsonConverter
from headrace.core.decode.record_decoder import Sources
from headrace.core.model.errors import RestError
from headrace.core.model.events import TableId
from headrace.core.reselect.cache.rows import MemoryRowStore
from headrace.core.reselect.options import ReselectOptions
from headrace.core.tables.naming import KEY
from headrace.ports import Feeds, Lakehouse, OpenRowSource, RowSource, RowStore, RowStoreOptions, TopicPartition
from headrace.runtime.observation import NO_OBSERVER, Observer
from headrace.runtime.pipeline.reselect import OnContradiction, Reselect
from headrace.runtime.pipeline.source_database import DatabaseRouter, NoMetrics, ReselectMetrics
from headrace.runtime.task.conversions import OpenRegistry, no_registries, open_conversion
from headrace.runtime.task.flow_control import MemoryBudget, TaskResources, WriteSlots
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.task.task_options import SinkTaskOptions, sink_task_options, table_options
from headrace.runtime.task.task_parts import SinkTaskParts, Verification
from headrace.runtime.threads import WorkerThreads

log = logging.getLogger(__name__)

_DEFAULTS = (
    "%s: transform %s writes a column's default where its value is null, so tables may differ from their source; set "
    "transforms.%s.replace.null.with.default to false"
)
_SCHEMAS_OF_ALL_TOPICS = 4096
OpenRows = Callable[[str, RowStoreOptions], RowStore]
"""Opens the store that ``reselect.cache.type`` names."""
Observe = Callable[[str, int], Observer]
BlockedTables = Callable[[str, int], Sequence[TableStatus]]
"""Returns the tables of a task that did not run when its status was written last."""
OpenVerification = Callable[[SinkConnectorConfig], Verification | None]
"""Returns the verification of a task's tables; None if the connector has none."""
_IGNORED: OnContradiction = lambda topic, table, kind: None  # noqa: E731 - a default with a name
CountReselects = Callable[[str, int], ReselectMetrics]


class SinkTaskFactory:
    """Makes the tasks of a worker out of its shared parts (``runtime/worker/worker_task.py: TaskFactory``)."""

    def __init__(
        self,
        feeds: Feeds,
        lakehouse: Lakehouse,
        open_row_source: OpenRowSource,
        threads: WorkerThreads,
        memory: MemoryBudget,
        open_rows: OpenRows = lambda kind, options: MemoryRowStore(options.limits),
        observe: Observe = lambda connector, task: NO_OBSERVER,
        count_reselects: CountReselects = lambda connector, task: NoMetrics(),
        open_registry: OpenRegistry = no_registries,
        adjust: Callable[[SinkTaskOptions], SinkTaskOptions] = lambda options: options,
        blocked: BlockedTables = lambda connector, task: (),
        open_verification: OpenVerification = lambda config: None,
        *,
        sources: Sources,
    ) -> None:
        self._feeds = feeds
        self._lakehouse = lakehouse
        self._open_row_source = open_row_source
        self._resources = TaskResources(threads, WriteSlots(threads.writers, threads.cores), memory, feeds.agent)
        self._open_rows = open_rows
        self._observe = observe
        self._count_reselects = count_reselects
        self._blocked = blocked
        self._open_verification = open_verification
        self._open_registry = open_registry
        self._adjust = adjust
        self._sources = sources

    async def __call__(
        self,
        connector: str,
        number: int,
        config: SinkConnectorConfig,
        on_failure: Callable[[BaseException], None],
    ) -> SinkTask:
        """Make the task without starting it. Raises ConfigError for what validation could not see."""
        options = config.reselect
        if config.tables.history:  # a cached value may belong to another moment than the event
            options = replace(options, cache_enabled=False)
        for alias in config.transforms.defaulting:
            log.warning(_DEFAULTS, connector, alias, alias)
        conversion = open_conversion(config, self._open_registry)
        values = JsonConverter(config.schemas_enabled("value"), _SCHEMAS_OF_ALL_TOPICS)
        divide = values.divide if conversion.value is None else None
        feed = self._feeds.open(connector, number, config.kafka, divide)
        dead_letter_queue = await self._feeds.dead_letter_queue(connector, number, config.kafka)
        verification: Verification | None = None
        try:
            verification = self._open_verification(config)
            compacted = self._feeds.compacted(connector, number, config.kafka)
            source, rows = self._row_source(options), None
            if options.cache_enabled:  # opened after what may fail: a cache on disk is locked for the next attempt
                store = RowStoreOptions(options.cache_limits, connector, number, options.cache_properties)
                rows = self._open_rows(options.cache_type, store)
            reselect = Reselect(
                options,
                source,
                metrics=self._count_reselects(connector, number),
                may_cache=lambda topic: not compacted(topic),
                rows=rows,
                on_contradiction=_IGNORED if verification is None else verification.begin_with,
            )
        except BaseException:  # it is tried again, with a queue of its own
            if verification is not None:
                verification.close()
            if dead_letter_queue is not None:
                await dead_letter_queue.close()
            raise
        parts = SinkTaskParts.of(
            self._adjust(replace(sink_task_options(config), task=number)),
            feed,
            self._lakehouse,
            reselect,
            dead_letter_queue,
            self._resources,
            self._observe(connector, number),
            conversion,
            self._sources,
            self._blocked(connector, number),
            verification,
        )
        return SinkTask(parts, on_failure)

    def _row_source(self, reselect: ReselectOptions) -> RowSource | None:
        """Return the databases from which rows are read again, as one source; None if none is configured."""
        if reselect.databases:
            opened = [
                (database, self._open_row_source(database, replace(reselect, database=database)))
                for database in reselect.databases
            ]
            return DatabaseRouter(opened)
        return None if reselect.database is None else self._open_row_source(reselect.database, reselect)


_NO_SOURCE = TableId("", "", "", "")


class HistoryOffsets:
    """Reads the offsets from the lakehouse (``runtime/worker/sink_offsets.py: StoredOffsets``)."""

    def __init__(self, lakehouse: Lakehouse, executor: Executor) -> None:
        self._lakehouse = lakehouse
        self._executor = executor

    async def __call__(self, config: SinkConnectorConfig, topics: Collection[str]) -> Mapping[TopicPartition, int]:
        """The next offsets that the tables of ``topics`` hold. Raises RestError 400 where their names are not known."""
        names = sorted({_table(config, topic) for topic in topics})
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._ask, config, names)

    def _ask(self, config: SinkConnectorConfig, names: Collection[str]) -> Mapping[TopicPartition, int]:
        held: dict[TopicPartition, int] = {}
        for name in names:
            table = self._lakehouse.table(config.tables.namespace, name, table_options(config.tables))
            held.update(table.offsets(config.group_id))
        return held


def _table(config: SinkConnectorConfig, topic: str) -> str:
    """The table's name, as far as it follows from the topic alone."""
    naming = config.tables.naming
    if naming.by_source or config.framework.transforms:
        raise RestError(
            f"{KEY}={config.tables.name_format} or a transform names the connector's histories by what stands in the "
            "events, so it is not known which events they hold already: each is appended once, and reading it again "
            "would append nothing. Create a connector with another name that writes to other tables",
            400,
        )
    return naming.name(topic, _NO_SOURCE)
