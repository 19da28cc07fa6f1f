"""Tasks of one connector over a broker and a lakehouse in memory."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from support.kafka.kafka_settings import settings_of
from support.records.envelopes import change, key

from headrace.cassandra.decoder import CassandraDecoder
from headrace.converters.conversion import Conversion
from headrace.core.batch.batch import BatchPolicy, TableValues
from headrace.core.connect.status import TableStatus
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.cache.rows import RowStore
from headrace.core.reselect.options import ReselectOptions
from headrace.core.tables.field_selection import FieldSelection
from headrace.core.tables.naming import TableNaming
from headrace.core.tables.table_layout import Maintenance
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.observation import NO_OBSERVER, Observer
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.task.asyncio_agent import AsyncioAgent
from headrace.runtime.task.flow_control import MemoryBudget, TaskResources, WriteSlots, unlimited
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.task.task_parts import SinkTaskOptions, SinkTaskParts
from headrace.runtime.threads import WorkerThreads
from headrace.transforms.chain import Chain
from headrace_dev.memory import MemoryLakehouse, MemoryRowSource
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds

TOPIC = "shop.public.items"
GROUP = "connect-items"
FIRST = TopicPartition(TOPIC, 0)
ITEMS = TableId("shop", "shop", "public", "items")
INT, TEXT = SqlType(20, "pg_catalog", "int8"), SqlType(25, "pg_catalog", "text")


@dataclass
class Harness:
    """A broker, a lakehouse, and tasks of one connector over them."""

    broker: MemoryBroker
    lakehouse: MemoryLakehouse
    threads: WorkerThreads
    memory: MemoryBudget = field(default_factory=unlimited)
    failures: list[BaseException] = field(default_factory=list)
    dead_letters: MemoryDeadLetterQueue | None = None

    def task(
        self,
        number: int = 0,
        *,
        tolerate: bool = False,
        linger: float = 0.0,
        freshness: float = 10.0,
        commits_per_hour: float = 0.0,
        max_records: int = 500_000,
        processor: Reselect | None = None,
        history: bool = False,
        maintenance: Maintenance = Maintenance.BACKGROUND,
        fields: FieldSelection | None = None,
        observer: Observer = NO_OBSERVER,
        dead_letters: bool = False,
        plain: bool = False,
        transforms: Chain | None = None,
        key_fields: tuple[str, ...] = (),
        recreate: bool = False,
        isolated: bool = False,
        conversion: Conversion | None = None,
        on_failure: Callable[[BaseException], None] | None = None,
        blocked: Sequence[TableStatus] = (),
        **logged: Any,
    ) -> SinkTask:
        options = SinkTaskOptions(
            connector="items",
            group=GROUP,
            namespace="lake",
            naming=TableNaming("${topic}"),
            envelope=EnvelopeOptions(not plain, not plain, keyless=history, key_fields=key_fields),
            batches=BatchPolicy(
                max_records,
                linger=linger,
                freshness=TableValues(freshness),
                commits_per_hour=TableValues(commits_per_hour),
            ),
            tables=TableOptions(history=history, recreate=recreate, maintenance=maintenance),
            pipeline=PipelineOptions(unresolved_insert_mode="dlq" if dead_letters else "auto", shared=bool(key_fields)),
            dead_letters_unresolved=dead_letters,
            fields=fields or FieldSelection(),
            transforms=transforms or Chain(),
            tolerate_errors=tolerate,
            isolate_tables=isolated,
            **logged,
        )
        feed = MemoryFeeds(self.broker).open("items", number, settings_of({"topics.regex": "shop.*"}))
        parts = SinkTaskParts.of(
            options,
            feed,
            self.lakehouse,
            processor or Reselect(ReselectOptions()),
            self.dead_letters,
            TaskResources(
                self.threads, WriteSlots(self.threads.writers, self.threads.cores), self.memory, AsyncioAgent
            ),
            observer,
            conversion,
            {"cassandra": CassandraDecoder},
            blocked,
        )
        return SinkTask(parts, on_failure or self.failures.append)

    def rows(self, table: str = "shop_public_items") -> dict[str, dict[str, Any]]:
        return self.lakehouse.table("lake", table, TableOptions()).rows()

    def offset(self) -> int:
        return self.broker.committed(GROUP).get(FIRST, 0)

    def insert(self, number: int, lsn: int, name: str = "new") -> None:
        row = {"id": number, "name": name}
        self.broker.append(TOPIC, change("c", row, lsn), key({"id": number}))


@asynccontextmanager
async def running(task: SinkTask) -> AsyncIterator[SinkTask]:
    await task.start()
    try:
        yield task
    finally:
        await task.stop()


def flattened(row: dict[str, Any]) -> bytes:
    """Return a flattened row, without its envelope."""
    types = {int: "int64", str: "string"}
    fields = [{"type": types[type(value)], "optional": True, "field": name} for name, value in row.items()]
    schema = {"type": "struct", "name": "shop.public.items.Value", "fields": fields}
    return json.dumps({"schema": schema, "payload": row}, separators=(",", ":")).encode()


def cached_reselect(name_now: str, rows: RowStore | None = None, **options: Any) -> Reselect:
    """Return Reselect with a cache (or other ``options``), from a database where row 1 has this name."""
    return reselect([name_now], rows, **{"cache_enabled": True, "cache_admission": "always"} | options)


def reselect(names: Sequence[str], rows: RowStore | None = None, **options: Any) -> Reselect:
    """Return Reselect from a database whose rows, from id 1 on, have these names."""
    columns = (CatalogColumn("id", 1, INT, attlen=8), CatalogColumn("name", 2, TEXT, attstorage="x"))
    schema = Schema("struct", fields=(Field("id", Schema("int64")), Field("name", Schema("string"))))
    source, stored = MemoryRowSource(), [{"id": number, "name": name} for number, name in enumerate(names, 1)]
    source.add(CatalogTable(ITEMS, "r", "d", columns, (KeyColumn("id", INT),)), schema, stored)
    return Reselect(ReselectOptions(**{"null_values": False} | options), source, rows=rows)
