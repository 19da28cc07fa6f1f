"""A worker on memory stores with stand-in tasks, and a client of its REST API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pyarrow as pa
from fastapi import FastAPI
from support.fix_asyncio import eventually
from support.rest.asgi import Answer, request
from support.rest.stand_in import StandInTasks, dead_letters_of, health_of, resnapshots_of

from headrace.config import WorkerConfig
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableReport, TableStatus
from headrace.core.connect.table_activity import LastBatch, ReselectUse, TableActivity
from headrace.core.model.errors import Retriable
from headrace.core.model.events import Operation
from headrace.core.model.table_files import TableFiles
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.ports import EngineStatus, OpenRowSource, RowSource, TopicPartition
from headrace.rest.app import WorkerParts, create_app
from headrace.rest.server import Endpoint, RestServer, bind
from headrace.rest.source_connector import examined_source_connector
from headrace.runtime.doctor import Doctor
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.sink_offsets import StoredOffsets, no_stored_offsets
from headrace.runtime.worker.stores import utc_now
from headrace.runtime.worker.worker import Worker, always_running
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds
from headrace_dev.memory.signals import MemorySignals
from headrace_dev.memory.stores import MemoryStores

WORKER = {
    "bootstrap.servers": "127.0.0.1:9092",
    "group.id": "headrace",
    "config.storage.topic": "configs",
    "status.storage.topic": "status",
    "task.retry.backoff.max.ms": "1",
}
SHOP = {
    "connector.class": "LakehouseSink",
    "topics": ",".join(f"shop.public.{table}" for table in ("orders", "items", "people", "places")),
}
"""Enough topics for as many tasks as a test asks for."""


def no_source(database: DatabaseOptions, options: ReselectOptions) -> RowSource:
    """A database that cannot be opened."""
    raise Retriable(f'database "{database.dbname}" does not answer')


class Api:
    """A worker with its application on memory stores, which outlive the worker."""

    def __init__(
        self,
        stores: MemoryStores | None = None,
        held: StoredOffsets = no_stored_offsets,
        host: str = "worker",
        port: int = 8083,
        now: Callable[[], datetime] = utc_now,
        engine: Callable[[], EngineStatus] = always_running,
        connector_class: type[LakehouseSinkConnector] = LakehouseSinkConnector,
        open_source: OpenRowSource = no_source,
        feeds: MemoryFeeds | None = None,
        **properties: str,
    ) -> None:
        self.stores = stores or MemoryStores()
        self.tasks = StandInTasks()
        self.feeds = feeds or MemoryFeeds(MemoryBroker())
        """The dead letter queues; the tasks read nothing."""
        self.lakehouse = MemoryLakehouse()
        config = WorkerConfig({**WORKER, **properties})
        self.metrics = Metrics()
        self.worker = Worker(
            config,
            self.stores,
            self.tasks,
            (host, port),
            self.metrics,
            now,
            engine=engine,
            connector_class=connector_class,
        )
        self.metrics.watch(
            self.worker.configs, self.worker.statuses, self.worker.worker_id, self.worker.connector_class
        )
        self.herder = Herder(self.worker, stored=held)
        self.health = health_of(self.worker)
        self.directory = ConnectorDirectory(self.worker, self.herder)
        self.metrics.watch_directory(self.directory)
        self.metrics.watch_timeline(self.worker.timeline)
        doctor = Doctor(self.stores, open_source, examined_source_connector)
        self.signals = MemorySignals()
        self.resnapshots = resnapshots_of(self.worker, open_source, self.signals)
        self.parts = WorkerParts(
            self.worker,
            self.herder,
            self.health,
            self.directory,
            self.metrics.scrape,
            doctor,
            self.metrics.flows,
            dead_letters_of(self.worker, self.herder, self.feeds, self.lakehouse),
            self.resnapshots,
        )
        self.app: FastAPI = create_app(self.parts)

    async def call(self, method: str, target: str, body: object = None) -> Answer:
        """Send a JSON request."""
        if body is None:
            return await request(self.app, method, target)
        return await request(self.app, method, target, {"Content-Type": "application/json"}, json.dumps(body).encode())

    async def create(self, name: str = "shop", **config: str) -> Answer:
        """Create a connector."""
        return await self.call("POST", "/connectors", {"name": name, "config": {**SHOP, **config}})

    async def status(self, name: str = "shop") -> dict[str, Any]:
        """The status as JSON."""
        answer: dict[str, Any] = (await self.call("GET", f"/connectors/{name}/status")).json()
        return answer

    async def until(self, connector: str, *tasks: str, name: str = "shop") -> None:
        """Wait until the status shows these states."""
        await eventually(lambda: self._states(name) == (connector, *tasks))

    def _states(self, name: str) -> tuple[str, ...]:
        seen = self.worker.statuses.connector(name)
        return (seen.state if seen else "none", *(task.state for _, task in self.worker.statuses.tasks(name)))


@asynccontextmanager
async def leader_and_follower(host: str, **options: str) -> AsyncIterator[tuple[Api, Api]]:
    """Two workers of a cluster with these options; the leader listens on ``host``."""
    listener = bind(host, 0)
    leader = Api(host=host, port=listener.getsockname()[1], **options)
    follower = Api(MemoryStores(shared=leader.stores), host="follower", **options)
    server = RestServer(leader.app, [Endpoint(listener)])
    server.start()
    await leader.worker.start()
    await follower.worker.start()
    try:
        yield leader, follower
    finally:
        await follower.worker.stop()
        await leader.worker.stop()
        await server.stop()


def table_report(table: str, state: TableState = TableState.RUNNING) -> TableReport:
    """A table without a last batch or error."""
    return TableReport(table, state, [f"shop.{table}"], 0, 0, None, None, None, None)


def detailed_table(table: str, text: str = "note") -> TableReport:
    """A table with all details; ``text`` is the name of a column and of a topic."""
    operations = {Operation.CREATE: 1, Operation.UPDATE: 3}
    batch = LastBatch(4, 2048, 0.25, 1_700_000_001.0, None, "rows", {TopicPartition(text, 3): 4711}, operations)
    activity = TableActivity()
    for column_type in (pa.int32(), pa.int64()):
        activity.on_columns(pa.schema([("id", column_type), (text, pa.string())]), 1_700_000_000.0)
    activity.on_columns(pa.schema([("id", pa.int64())]), 1_700_000_002.0)
    activity.on_columns(pa.schema([("id", pa.int64()), (text, pa.string())]), 1_700_000_003.0)
    activity.on_batch(batch, 1_700_000_000_000_000)
    use = ReselectUse({"cache": 3, "source": 1}, {"hit": 3, "miss": 1, "bypassed": 9}, {"ok": 2, "timeout": 1}, 5, 1)
    details = partial(activity.details, TableFiles(12, 3, 48_210_433, 1_000, 250), 1_700_000_000.0, use)
    return replace(table_report(table), last_batch=batch, details=details)


def failed_table(table: str) -> TableStatus:
    return TableStatus(table, TableState.FAILED, "the cause", 1_700_000_000.0)
