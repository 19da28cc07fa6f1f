"""What a sink task works with in all of its assignments, made in ``task_factory.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from headrace.converters.conversion import Conversion
from headrace.core.connect.table_status import TableStatus
from headrace.core.decode.record_decoder import Sources
from headrace.core.tables.table_sources import TableSources
from headrace.ports import DeadLetterQueue, Feed, Lakehouse
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.pipelines import Pipelines
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace.runtime.task.message_router import MessageRouter
from headrace.runtime.task.options import SinkTaskOptions
from headrace.runtime.task.resources import TaskResources
from headrace.runtime.task.table_ownership import TableOwnership
from headrace.runtime.task.table_upkeep import TableUpkeep
from headrace.runtime.task.task_tables import TaskTables
from headrace.runtime.threads import run_in


@dataclass(frozen=True, slots=True)
class SinkTaskParts:
    """The parts of one task, and what its worker lends to it (``resources``)."""

    options: SinkTaskOptions
    feed: Feed
    lakehouse: Lakehouse
    resources: TaskResources
    observer: Observer
    reselect: Reselect
    decoder: ChunkDecoder
    errants: ErrantReporter
    router: MessageRouter
    sources: TableSources
    tables: TaskTables
    pipelines: Pipelines
    ownership: TableOwnership
    upkeep: TableUpkeep

    @classmethod
    def of(
        cls,
        options: SinkTaskOptions,
        feed: Feed,
        lakehouse: Lakehouse,
        reselect: Reselect,
        dead_letter_queue: DeadLetterQueue | None,
        resources: TaskResources,
        observer: Observer,
        conversion: Conversion | None,
        sources: Sources,
        blocked: Sequence[TableStatus] = (),
    ) -> SinkTaskParts:
        """Make the parts; ``blocked`` are the tables that did not run in an earlier run of the task."""
        connector = options.connector
        pipelines = Pipelines(options.namespace, options.tables, options.pipeline, lakehouse, reselect, observer)
        threads = resources.threads
        return cls(
            options,
            feed,
            lakehouse,
            resources,
            observer,
            reselect,
            ChunkDecoder(
                connector,
                options.envelope,
                options.transforms,
                options.fields,
                conversion,
                sources,
                reselect.catalog,
                observer,
                partial(run_in, threads.decoding),
            ),
            ErrantReporter(
                f"{connector}-{options.task}",
                dead_letter_queue,
                tolerate_errors=options.tolerate_errors,
                log_errors=options.log_errors,
                log_messages=options.log_messages,
                converters=options.converters,
                observer=observer,
            ),
            MessageRouter(connector, reselect, observer, fills_defaults=options.fills_defaults),
            TableSources(shared=options.tables_are_shared, merged=options.transforms.merges),
            TaskTables(observer, blocked if options.isolate_tables else ()),
            pipelines,
            TableOwnership(connector, options.group, shared=options.tables_are_shared, adopts_from=options.adopts_from),
            TableUpkeep(connector, pipelines, threads.maintenance, options.tables.maintenance, observer),
        )
