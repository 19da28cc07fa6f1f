"""What a sink task works with in all of its assignments; ``task_factory.py`` makes it from a configuration."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.converters.conversion import Conversion
from headrace.core.connect.status import TableStatus
from headrace.core.decode.record_decoder import Sources
from headrace.core.model.events import TableId
from headrace.core.model.proof import VerificationReport
from headrace.core.tables.table_sources import TableSources
from headrace.ports import DeadLetterQueue, Feed, Lakehouse
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.pipelines import Pipelines
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task.chunk_decoder import ChunkDecoder
from headrace.runtime.task.errant_reporter import ErrantReporter
from headrace.runtime.task.flow_control import TaskResources
from headrace.runtime.task.freshness_notes import FreshnessNotes
from headrace.runtime.task.message_router import MessageRouter
from headrace.runtime.task.table_upkeep import TableUpkeep
from headrace.runtime.task.task_options import SinkTaskOptions
from headrace.runtime.task.task_tables import TaskTables
from headrace.runtime.task.write_checks import TableOwnership


class Verification(Protocol):
    """Compares the tables of a task with their source beside its writes (``runtime/verify``)."""

    async def run(self, ready: Callable[[], Collection[str]], repaired: Callable[[TableId, str, int], None]) -> None:
        """Verify the tables of the topics that are ``ready``, again and again, until it is cancelled.

        ``repaired`` is called in a thread, with source table, lake table and number of rows that were repaired.
        """

    def begin_with(self, topic: str, table: TableId, contradiction: str) -> None:
        """Verify a source table next, and before the interval has passed: its changes contain a contradiction.

        Called in any thread.
        """

    def close(self) -> None:
        """End without waiting for what runs. Idempotent."""

    def reports(self, topics: Collection[str]) -> Mapping[str, VerificationReport]:
        """Return the report of each table of ``topics`` that was opened for a verification, by the table's name."""


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
    verification: Verification | None = None

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
        verification: Verification | None = None,
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
            verification,
        )
