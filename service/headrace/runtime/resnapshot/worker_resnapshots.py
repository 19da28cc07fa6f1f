"""The resnapshots that a worker runs in the background: those that requests have stored in the config topic.

The worker whose task reads the topic of the table runs it, because the state of the table is there, and so is the way
to restart it. The first task does it for a topic that does not exist yet. After a rebalance or a restart the next
worker continues: the request is in the config topic, its progress in the status topic, the signal in its channel, and
what Debezium still has to read in the offsets of the source connector.

The steps are those of ``headrace resnapshot``. A worker runs one resnapshot of a connector at a time, and the others
wait for it.

Tests: ``tests/rest/test_resnapshots.py``, ``tests/integration/test_resnapshot.py``.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

from headrace.config import SinkConnectorConfig
from headrace.core.connect.resnapshots import (
    ResnapshotProgress,
    ResnapshotRequest,
    ResnapshotState,
    result_text,
    state_of,
)
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import ConfigError, HeadraceError
from headrace.runtime.resnapshot.resnapshot_run import ResnapshotParts, ResnapshotRun, WorkerTables
from headrace.runtime.resnapshot.snapshot_target import SnapshotTarget, snapshot_target, source_database
from headrace.runtime.trace import summary
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.kafka_offsets import run_on
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
MOST_AT_ONCE = 4
"""Resnapshots of a worker: each compares a complete table at its end."""
STOP_SECONDS = 10.0
_Key = tuple[str, str]


class WorkerResnapshots:
    """Runs the resnapshots of the tables whose tasks run on this worker. All methods but ``target`` are of the loop."""

    def __init__(self, worker: Worker, parts: ResnapshotParts) -> None:
        self._worker = worker
        self._parts = parts
        self._running: dict[_Key, ResnapshotRun] = {}
        self._threads: set[asyncio.Future[None]] = set()
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_forever(), name="resnapshots")

    async def stop(self) -> None:
        """Interrupt what runs: the next worker continues it. Idempotent.

        A thread that waits for another system for longer has no effect any more.
        """
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        for run in self._running.values():
            run.leave()
        if self._threads:
            await asyncio.wait(self._threads, timeout=STOP_SECONDS)

    def target(
        self, connector: SinkConnectorConfig, table: str, topics: Collection[str], source_table: str, topic: str
    ) -> SnapshotTarget:
        """Return what a request for a lake table means, with all checks. Blocks; raises ConfigError and Retriable.

        Without ``source_table`` it is the one of ``topics``, those of the lake table.
        """
        source = self._parts.open_source_connector(connector.source_connector)
        if not source_table:
            source_table, topic = self._source_table(connector, table, topics)
        with closing(source_database(connector, self._parts.open_row_source)) as database:
            target = snapshot_target(connector, source, database, source_table, topic or None)
        if target.table.lake_table != table:
            raise ConfigError(
                f"{source_table}: its lake table is {target.table.lake_table}; send the request to that table"
            )
        return target

    def _source_table(self, connector: SinkConnectorConfig, table: str, topics: Collection[str]) -> tuple[str, str]:
        """Return the source table of a lake table, and its topic. Raises ConfigError unless there is one."""
        tables = ConnectorTables(connector, self._parts.open_row_source, self._parts.lakehouse)
        with closing(tables):
            sources = [
                (f"{id.schema}.{id.table}", topic)
                for topic in sorted(topics)
                for id, _ in tables.of(topic)
                if tables.transformed.name(topic, id) == table
            ]
        if len(sources) != 1:
            found = f"has the source tables {', '.join(name for name, _ in sources)}" if sources else "is not known"
            raise ConfigError(
                f'table {table}: its source {found}; send {{"source.table": "SCHEMA.TABLE"}} with the request'
            )
        return sources[0]

    # -- which ones run ------------------------------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._look()
            except Exception as error:  # whatever it is: other resnapshots and later ones have to run
                log.warning("Resnapshots: they cannot be looked at now: %s", summary(error))

    async def _look(self) -> None:
        """Begin, cancel and interrupt the runs as the requests and the assignment of the tasks demand."""
        wanted: dict[_Key, ResnapshotRequest] = {}
        for name in self._worker.configs.state.connectors_with_resnapshots():
            for table, request in self._worker.configs.state.resnapshots(name).items():
                progress = self._worker.statuses.resnapshot(name, table)
                if state_of(request, progress).is_open and await self._runs_here(name, table, request.topic):
                    wanted[name, table] = request
        for key, run in self._running.items():
            current = wanted.get(key)
            if current is None or current.id != run.request.id:
                run.leave()
            elif current.is_cancelled:
                run.cancel()
        for key, request in sorted(wanted.items(), key=lambda item: item[1].requested):
            if key not in self._running:
                await self._begin_or_wait(*key, request)

    async def _runs_here(self, name: str, table: str, topic: str) -> bool:
        """Return whether a task of this worker reads the topic, or is the first one and nobody can read it yet."""
        connector = self._worker.connector(name)
        if connector is None:
            return False
        if connector.reads(table, topic):
            return True
        if not connector.runs(0):
            return False
        try:
            offsets = self._worker.stores.topic_offsets(name, self._config(name).kafka)
            return not await offsets.ends(re.escape(topic))
        except HeadraceError:  # the resnapshots of other connectors have to run
            return False

    async def _begin_or_wait(self, name: str, table: str, request: ResnapshotRequest) -> None:
        """Begin a run if it is its turn. A request that waited and is cancelled ends without one."""
        progress = self._worker.statuses.resnapshot(name, table)
        if progress is None or progress.request != request.id:
            former, progress = progress, ResnapshotProgress(request.id, ResnapshotState.WAITING, self._now())
            if former is not None:  # its signal may be open: of a request that has failed
                progress = replace(progress, signal=former.signal, is_read=former.is_read)
        blocking = [other for connector, other in self._running if connector == name]
        if request.is_cancelled and progress.state is ResnapshotState.WAITING:
            self._put(name, table, replace(progress, state=ResnapshotState.CANCELLED, waits_for=""))
        elif blocking or len(self._running) >= MOST_AT_ONCE:
            waits_for = f"the resnapshot of table {blocking[0]}" if blocking else "other resnapshots of the worker"
            if progress.waits_for != waits_for:
                self._put(name, table, replace(progress, waits_for=waits_for))
        else:
            self._begin(name, table, request, replace(progress, waits_for=""))

    def _begin(self, name: str, table: str, request: ResnapshotRequest, progress: ResnapshotProgress) -> None:
        try:
            config = self._config(name)
        except ConfigError as error:
            self._put(name, table, replace(progress, state=ResnapshotState.FAILED, error=str(error)))
            return
        loop = asyncio.get_running_loop()
        run_coroutine = run_on(loop)

        def put(progress: ResnapshotProgress) -> None:
            loop.call_soon_threadsafe(self._put, name, table, progress)

        sink = WorkerTables(self._worker, name, run_coroutine)
        run = ResnapshotRun(request, config, sink, self._parts, run_coroutine, progress, put, self._now)
        if request.is_cancelled:
            run.cancel()
        self._running[name, table] = run
        executor = ThreadPoolExecutor(1, "resnapshot")
        thread = loop.run_in_executor(executor, run.run)
        executor.shutdown(wait=False)
        self._threads.add(thread)
        thread.add_done_callback(lambda _: self._on_end(name, table, thread))

    def _on_end(self, name: str, table: str, thread: asyncio.Future[None]) -> None:
        self._threads.discard(thread)
        self._running.pop((name, table), None)

    def _config(self, name: str) -> SinkConnectorConfig:
        """Return the configuration of a connector. Raises ConfigError."""
        config = self._worker.configs.state.connector_config(name) or {}
        return self._worker.connector_class.resolve(config, f"Connector {name}")

    def _put(self, name: str, table: str, progress: ResnapshotProgress) -> None:
        """Store the progress, unless a newer request, or the removal of the connector, has made it obsolete.

        A result is final: a worker that learns late that it has lost the table does not replace it.
        """
        request = self._worker.configs.state.resnapshots(name).get(table)
        stored = self._worker.statuses.resnapshot(name, table)
        has_ended = stored is not None and stored.request == progress.request and not stored.state.is_open
        if request is not None and request.id == progress.request and not has_ended:
            self._worker.statuses.put_resnapshot(name, table, progress)
            if not progress.state.is_open:
                self._worker.timeline.record(Kind.RESNAPSHOT_ENDED, name, result_text(progress), table=table)

    def _now(self) -> float:
        return self._worker.now().timestamp()
