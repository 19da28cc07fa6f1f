"""What a sink task works with in all of its assignments; ``task_factory.py`` makes it from a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headrace.config.framework import ErrorSettings
from headrace.config.sink_options import TableSettings
from headrace.converters.conversion import Conversion
from headrace.core.batch.batch import BatchPolicy
from headrace.core.connect.status import TableStatus
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.record_decoder import Sources
from headrace.core.model.errors import Stage
from headrace.core.tables.field_selection import FieldSelection
from headrace.core.tables.naming import TableNaming
from headrace.core.tables.table_sources import TableSources
from headrace.ports import DeadLetterQueue, Feed, Lakehouse, TableOptions
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.pipelines import Pipelines
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace.runtime.task.flow_control import TaskResources
from headrace.runtime.task.freshness_notes import FreshnessNotes
from headrace.runtime.task.message_router import MessageRouter
from headrace.runtime.task.table_upkeep import TableUpkeep
from headrace.runtime.task.task_tables import TaskTables
from headrace.runtime.task.write_checks import TableOwnership
from headrace.transforms.chain import Chain

_ERRORS, _TABLES = ErrorSettings(), TableSettings()


@dataclass(frozen=True, slots=True)
class SinkTaskOptions:
    """What a connector's configuration says to its tasks."""

    connector: str
    group: str
    namespace: str
    task: int = field(default=0, kw_only=True)
    naming: TableNaming
    envelope: EnvelopeOptions
    batches: BatchPolicy
    tables: TableOptions
    pipeline: PipelineOptions
    fields: FieldSelection = field(default_factory=FieldSelection)
    fills_defaults: bool = False
    dead_letters_unresolved: bool = False
    transforms: Chain = field(default_factory=Chain)
    tolerate_errors: bool = _ERRORS.tolerate
    isolate_tables: bool = _TABLES.isolation.isolate
    adopts_from: Sequence[str] = _TABLES.adopts_from
    log_errors: bool = _ERRORS.log
    log_messages: bool = _ERRORS.log_messages
    converters: Mapping[Stage, str] = field(default_factory=dict)

    @property
    def tables_are_shared(self) -> bool:
        """Whether several source tables may share a lake table: the operator has named a key, or rows are appended."""
        return self.tables.history or bool(self.envelope.key_fields) or self.transforms.merges


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
    freshness: FreshnessNotes

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
                *(options.envelope, options.transforms, options.fields, conversion, sources),
                *(reselect.catalog, observer, threads.decoding, resources.slots.observe_decoding),
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
            FreshnessNotes(connector, observer, resources.slots.events_per_second),
        )
