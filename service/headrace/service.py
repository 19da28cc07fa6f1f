"""A worker process: creates, starts and stops its parts in order (``kafka-client.md`` section 4).

It is given its connectors (``headrace_app/composition.py``).

At a stop the worker is not ready any more, tasks finish the write in flight and leave their groups, then feeds, REST
server and Spark are closed. If a step hangs, a timer ends the process. Records that are not committed are read again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.config import SinkConnectorConfig, WorkerConfig
from headrace.core.connect.lifecycle import TargetState
from headrace.core.connect.status import TableStatus
from headrace.core.connect.timeline import Trigger, TriggerType, short
from headrace.core.decode.record_decoder import Sources
from headrace.core.model.errors import ConfigError, HeadraceError, RestError
from headrace.ports import EngineStatus, Feeds, Lakehouse, OpenRowSource, ReplayFeeds, Stores
from headrace.rest.app import WorkerParts
from headrace.rest.server import Endpoints, rest_servers
from headrace.rest.source_connector import configured_source_connector, examined_source_connector
from headrace.rest.webhook import AlertWebhook
from headrace.runtime.dead_letters.replay import Edges
from headrace.runtime.dead_letters.replays import DeadLetters, ReplayParts
from headrace.runtime.doctor import Doctor
from headrace.runtime.metrics.metrics import Metrics, TaskMetrics
from headrace.runtime.metrics.summaries import SummaryLog
from headrace.runtime.resnapshot.resnapshot_run import ResnapshotParts
from headrace.runtime.resnapshot.snapshot_target import OpenSignalTopic
from headrace.runtime.resnapshot.worker_resnapshots import WorkerResnapshots
from headrace.runtime.retry import retrying
from headrace.runtime.task.conversions import OpenRegistry
from headrace.runtime.task.flow_control import MemoryBudget
from headrace.runtime.task.task_factory import HistoryOffsets, OpenRows, SinkTaskFactory
from headrace.runtime.threads import WorkerThreads
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.continuous_verification import ContinuousVerification
from headrace.runtime.verify.kafka_offsets import KafkaOffsets, run_on
from headrace.runtime.worker.config_providers import config_providers
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.connector_files import read_connector
from headrace.runtime.worker.health import WorkerHealth
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.memory_plan import memory_plan
from headrace.runtime.worker.sink_connector import ConnectorCheck, LakehouseSinkConnector
from headrace.runtime.worker.timeline import triggered_by
from headrace.runtime.worker.worker import Worker, worker_defaults

log = logging.getLogger(__name__)
_STOP_MARGIN_SECONDS = 30.0
_END_SECONDS = 10.0
"""The time limit of what follows ``Stopped``: the end of the event loop and of threads."""
_LAST_LOG_SECONDS = 2.0
_IDLE = "_worker"
"""The innermost function of a thread of ``concurrent.futures`` that has nothing to do."""
_ENGINE_BACKOFF_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class ConnectorFile:
    """A connector of standalone mode, with its file."""

    path: Path
    name: str
    config: Mapping[str, str | None]
    initial: TargetState | None


@dataclass(frozen=True, slots=True)
class Connectors:
    """What a worker reaches: the implementations of the ports, and the check of what a connector names of them."""

    feeds: Feeds
    stores: Stores
    lakehouse: Lakehouse
    dead_letters: ReplayFeeds
    open_row_source: OpenRowSource
    open_rows: OpenRows
    open_registry: OpenRegistry
    open_signal_topic: OpenSignalTopic
    sources: Sources
    check: ConnectorCheck


def _open_verification(connectors: Connectors, config: SinkConnectorConfig) -> ContinuousVerification | None:
    """Return the verification of a task. Called on the worker's event loop; raises ConfigError."""
    if not config.verify.interval:
        return None
    tables = ConnectorTables(config, connectors.open_row_source, connectors.lakehouse)
    offsets = KafkaOffsets(connectors.stores, config, run_on(asyncio.get_running_loop()))
    return ContinuousVerification(config.verify, tables, offsets)


class Service:
    """One worker process."""

    def __init__(self, config: WorkerConfig, connectors: Connectors) -> None:
        """Bind the ports and create the parts without starting them. Raises ConfigError."""
        self._config = config
        self._endpoints = Endpoints.listen(config)
        self._threads = WorkerThreads.start(config.lake.threads)
        self._metrics = Metrics(tables=config.metrics.tables)
        self._feeds, self._lakehouse = connectors.feeds, connectors.lakehouse
        self._memory = memory_plan(config.lake.memory, self._lakehouse.memory())
        changes = MemoryBudget(self._memory.changes)
        self._metrics.watch_memory(lambda: changes.total, self._memory.changes)
        tasks = SinkTaskFactory(
            self._feeds,
            self._lakehouse,
            connectors.open_row_source,
            self._threads,
            changes,
            connectors.open_rows,
            self._observe,
            self._metrics.reselects,
            connectors.open_registry,
            blocked=self._blocked_tables,
            open_verification=partial(_open_verification, connectors),
            sources=connectors.sources,
        )
        host = config.rest.advertised_host or config.listener.host or socket.gethostname()
        address = host, config.rest.advertised_port or self._endpoints.port(config)
        self.worker = Worker(config, connectors.stores, tasks, address, self._metrics, engine=self._engine)
        self._metrics.watch(
            self.worker.configs, self.worker.statuses, self.worker.worker_id, self.worker.connector_class
        )
        self.herder = Herder(
            self.worker,
            [connectors.check, lambda connector: self._feeds.check(connector.name, connector.kafka)],
            HistoryOffsets(self._lakehouse, self._threads.maintenance),
        )
        pools = {"decoding threads": self._threads.decoding}
        self._health = WorkerHealth(self.worker, self._engine, pools, self._feeds.beat)
        self._metrics.watch_engine(self._engine)
        self._engine_start: asyncio.Task[None] | None = None
        self._directory = ConnectorDirectory(self.worker, self.herder)
        self._metrics.watch_directory(self._directory)
        self._metrics.watch_timeline(self.worker.timeline)
        self._summaries = SummaryLog(self._metrics.summaries)
        self._webhook = AlertWebhook(config.alerts, self.worker, self.herder)
        edges = Edges(self._lakehouse, connectors.open_row_source, connectors.open_registry, connectors.sources)
        replay_parts = ReplayParts(connectors.dead_letters, edges, self._threads, changes)
        self._dead_letters = DeadLetters(self.worker, self.herder, replay_parts)
        doctor = Doctor(connectors.stores, connectors.open_row_source, examined_source_connector, memory=self._memory)
        self._resnapshots = WorkerResnapshots(
            self.worker,
            ResnapshotParts(
                connectors.stores,
                self._lakehouse,
                connectors.open_row_source,
                connectors.open_signal_topic,
                configured_source_connector,
            ),
        )
        parts = WorkerParts(
            self.worker,
            self.herder,
            self._health,
            self._directory,
            self._metrics.scrape,
            doctor,
            self._metrics.flows,
            self._dead_letters,
            self._resnapshots,
        )
        self._servers = rest_servers(parts, self._endpoints)

    async def run(self, connectors: Sequence[Path] = ()) -> None:
        """Serve until SIGTERM or SIGINT. Raises ConfigError if the worker cannot start.

        The connector files are validated first, without Kafka, so that errors in them are reported at once.
        """
        try:
            files = self._read_connectors(connectors)
        except ConfigError:
            for server in self._servers:
                server.close()
            raise
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        working = asyncio.create_task(self._start(files), name="start")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not stop.is_set():
                await working
                await stopping
        except HeadraceError as error:
            log.error("Worker: cannot start: %s", error)  # at once: the stop may take some seconds
            raise
        finally:
            for task in (working, stopping):
                task.cancel()
            await asyncio.gather(working, stopping, return_exceptions=True)
            await self._stop()

    def _read_connectors(self, paths: Sequence[Path]) -> list[ConnectorFile]:
        """Read and validate the connector files. Raises ConfigError with the file."""
        files: list[ConnectorFile] = []
        for path in paths:
            name, config, initial = read_connector(path)
            try:
                self.herder.check(name, config)
            except RestError as error:
                raise ConfigError(f"{path}: {error}") from error
            if other := next((file.path for file in files if file.name == name), None):
                raise ConfigError(f"{path}: connector {name} is already in {other}; give it another name")
            files.append(ConnectorFile(path, name, config, initial))
        return files

    async def _start(self, connectors: Sequence[ConnectorFile]) -> None:
        for server in self._servers:
            server.start()
        log.info("REST API on %s", self.worker.url)
        if self._memory.fits:
            log.info("Memory: %s", self._memory)
        else:
            advice = "lower spark.driver.memory or worker.memory.bytes, or give the worker more memory"
            log.warning("Memory: %s; %s", self._memory, advice)
        await self._feeds.start(self.worker.worker_id)
        self._health.start()
        self._engine_start = asyncio.create_task(self._start_engine(), name="start-spark")
        await self.worker.start()
        for file in connectors:
            try:
                with triggered_by(Trigger(TriggerType.FILE, path=short(file.path.name))):
                    await self.herder.create(file.name, file.config, file.initial)
            except RestError as error:
                raise ConfigError(f"{file.path}: {error}") from error
        self._directory.start()
        self._summaries.start()
        self._webhook.start()
        self._resnapshots.start()

    async def _start_engine(self) -> None:
        """Start Spark while the worker reads its topics, so that the first batch need not wait for it."""

        def failed(error: BaseException, pause: float) -> None:
            log.warning("%s. The next attempt is in %.0f s", error, pause)

        try:
            await retrying(_ENGINE_BACKOFF_SECONDS, failed)(asyncio.to_thread, self._lakehouse.start)
        except HeadraceError as error:
            log.error("%s", error)

    async def _stop(self) -> None:
        log.info("Stopping")
        graceful = self._config.timing.shutdown_timeout
        exit_after(graceful + _STOP_MARGIN_SECONDS, status=1)
        if self._engine_start is not None:
            self._engine_start.cancel()
        await self._directory.stop()
        await self._summaries.stop()
        await self._webhook.stop()
        await self._dead_letters.stop()
        await self._resnapshots.stop()
        await self.worker.stop()
        await self._health.stop()
        await self._feeds.close()
        for server in self._servers:
            await server.stop()
        await asyncio.to_thread(self._lakehouse.close)
        self._threads.stop()
        exit_after(_END_SECONDS, status=1)
        log.info("Stopped")

    def _engine(self) -> EngineStatus:
        return self._lakehouse.engine

    def _blocked_tables(self, connector: str, task_number: int) -> Sequence[TableStatus]:
        """Return the tables that did not run when the status of a task was written last, perhaps by another worker."""
        seen = self.worker.statuses.task(connector, task_number)
        return seen.tables if seen is not None else ()

    def _observe(self, connector: str, task_number: int) -> TaskMetrics:
        """Return the observer of a task.

        It passes active topics, notes and blocked tables to the task's status, and events of tables to the timeline.
        """
        topic_read = partial(self.worker.topic_read, connector, task_number)
        note = partial(self.worker.statuses.note, connector, task_number)
        set_note = partial(self.worker.statuses.set_note, connector, task_number)
        tables = partial(self.worker.put_blocked_tables, connector, task_number)
        record = partial(self.worker.timeline.record_soon, connector, task_number)
        return self._metrics.task(connector, task_number, topic_read, note, set_note, tables, record)


def checked_connector(config: WorkerConfig, path: Path) -> SinkConnectorConfig:
    """Return the configuration in a connector file, validated as by a worker. Raises ConfigError."""
    name, given, _ = read_connector(path)
    properties = {key: value for key, value in {**given, "name": name}.items() if value is not None}
    providers = config_providers(config.provider_properties, config.own_secrets)
    connector_class = LakehouseSinkConnector(worker_defaults(config), providers)
    if not connector_class.runs(properties):
        raise ConfigError(f"{path}: connector.class is not a class of Headrace", "connector.class")
    return connector_class.resolve(properties, str(path))


def exit_after(seconds: float, status: int) -> None:
    """End the process after ``seconds``, even if threads are still running, or asyncio tasks that ignore their end."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # the event loop has ended
        loop = None
    timer = threading.Timer(seconds, _exit, (status, loop))
    timer.daemon = True
    timer.start()


def _exit(status: int, loop: asyncio.AbstractEventLoop | None) -> None:
    """End the process. Log what still runs, unless the thread that hangs keeps the log."""
    last = threading.Thread(target=_log_what_runs, args=(loop,), daemon=True)
    last.start()
    last.join(_LAST_LOG_SECONDS)
    os._exit(status)


def _log_what_runs(loop: asyncio.AbstractEventLoop | None) -> None:
    tasks = [] if loop is None else [task.get_name() for task in asyncio.all_tasks(loop)]
    frames = sys._current_frames()
    threads = [
        f"{thread.name} in {frame.f_code.co_name}"
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.main_thread()
        if (frame := frames.get(thread.ident or 0)) is not None and frame.f_code.co_name != _IDLE
    ]
    log.error(
        "Worker: the stop exceeded its time limit and the process ends now. Uncommitted records are read again. Still "
        "running: asyncio tasks %s; threads %s",
        ", ".join(sorted(tasks)) or "none",
        ", ".join(sorted(threads)) or "none",
    )
