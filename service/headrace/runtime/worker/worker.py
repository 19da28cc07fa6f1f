"""The worker: starts and stops stores, cluster membership and connectors in order (``kafka-client.md`` section 4).

It follows the config topic. ``cluster.py`` decides which tasks it runs, ``worker_connector.py`` runs a connector, and
``herder.py`` implements the REST requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from headrace import __version__
from headrace.config import WorkerConfig
from headrace.config.rest_options import authority
from headrace.config.validation import WorkerDefaults
from headrace.core.connect.config_state import RestartRequest
from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.problems import headline
from headrace.core.connect.status import TableStatus, TopicStatus
from headrace.core.connect.timeline import Kind, moved_tasks, name_list
from headrace.core.connect.work import Task
from headrace.core.model.errors import HeadraceError, RestError
from headrace.core.tables.naming import other_catalogs
from headrace.ports import EngineState, EngineStatus, Stores
from headrace.runtime.observation import NO_STATE_OBSERVER, StateObserver
from headrace.runtime.retry import retrying
from headrace.runtime.trace import summary
from headrace.runtime.worker.cluster import Cluster
from headrace.runtime.worker.config_providers import config_providers
from headrace.runtime.worker.loggers import Loggers
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.stores import ConfigStore, StatusStore, WorkerStage, utc_now
from headrace.runtime.worker.timeline import Timeline
from headrace.runtime.worker.worker_connector import ConnectorContext, WorkerConnector
from headrace.runtime.worker.worker_task import Supervision, TaskFactory

log = logging.getLogger(__name__)
_STORE_BACKOFF_SECONDS = 5.0
ENGINE_SECONDS = 0.5
"""Time between two looks at the state of the engine."""
_STOPPING = "stopping"
_CONNECTORS_PER_TURN = 100
"""Connectors whose changes are handed on without giving other work of the event loop a turn."""
_STUCK = timedelta(seconds=10)
"""Kafka Connect's health check waits as long for a request that changes something."""


def always_running() -> EngineStatus:
    """Return the status of an engine that needs no start."""
    return EngineStatus(EngineState.RUNNING, 0.0)


class Worker:
    """The connectors and tasks of this process, with their stores."""

    def __init__(
        self,
        config: WorkerConfig,
        stores: Stores,
        task_factory: TaskFactory,
        advertised: tuple[str, int],
        states: StateObserver = NO_STATE_OBSERVER,
        now: Callable[[], datetime] = utc_now,
        loggers: Loggers | None = None,
        engine: Callable[[], EngineStatus] = always_running,
        connector_class: type[LakehouseSinkConnector] = LakehouseSinkConnector,
    ) -> None:
        self.config = config
        self.advertised = advertised
        self.stores = stores
        self.configs = ConfigStore(stores.configs, now)
        self.statuses = StatusStore(stores.statuses)
        self.timeline = Timeline(stores.statuses, self.worker_id, now)
        self.cluster = Cluster(self.address, stores.member(self.address), self.configs)
        self.providers = config_providers(config.provider_properties, config.own_secrets)
        self.connector_class = connector_class(worker_defaults(config), self.providers)
        self.cluster_id: str | None = None
        self.ready = False
        self.now = now
        self.loggers = loggers or Loggers(now)
        self._engine = engine
        self._following: asyncio.Task[None] | None = None
        self.stage = WorkerStage("starting", now())
        self._connectors: dict[str, WorkerConnector] = {}
        self._changes: dict[str, bool] = {}
        """Connectors with changes that are not handed on yet, and whether they were deleted since the last time."""
        self._tasks_changed = False
        self.replays: set[str] = set()
        """The replays of dead letters that run in this process (``Replay.run``)."""
        self._owners: Mapping[Task, str] = {}
        self._wake = asyncio.Event()
        self._handing_on: asyncio.Task[None] | None = None
        self._context = ConnectorContext(
            self.configs,
            self.statuses,
            self.cluster,
            self.connector_class,
            task_factory,
            supervision(config),
            self.worker_id,
            states,
            lambda: self.waits_for,
            self.replays,
            self.timeline,
        )

    @property
    def worker_id(self) -> str:
        """``host:port`` at which clients reach this worker."""
        return authority(*self.advertised)

    @property
    def url(self) -> str:
        return f"{self.config.listener.scheme}://{self.worker_id}"

    @property
    def address(self) -> str:
        """The address for other workers: ``host:port``, which earlier releases know, or the URL if it is https."""
        return self.url if self.config.advertises_https else self.worker_id

    @property
    def waits_for(self) -> str | None:
        """What the tasks wait for before they write: the engine while it does not run, None if it does."""
        engine = self._engine()
        if engine.state is EngineState.RUNNING:
            return None
        error = engine.error.partition("\n")[0]
        return f"Spark, which does not run: {error}" if error else "Spark, which is starting"

    @property
    def stopping(self) -> bool:
        return self.stage.name == _STOPPING

    async def start(self) -> None:
        """Read the stores and start the connectors. Retry while brokers are down. Raises ConfigError."""
        self._handing_on = asyncio.create_task(self._hand_on_changes(), name="connector-changes")
        await self._reach("connecting to Kafka", self.stores.start)
        self.cluster_id = await self.stores.cluster_id()
        await self._reach("reading the status topic", partial(self.statuses.start, self.timeline.apply))
        self.timeline.start()
        read = partial(self.configs.start, self._config_changed, self._apply_level, self._apply_restart)
        await self._reach("reading the config topic", read)
        await self._reach("joining the group of workers", partial(self.cluster.start, self._assignment_changed))
        self._following = asyncio.create_task(self._follow_engine(), name="engine")
        self.stage = WorkerStage("serving", self.now())
        self.ready = True
        self.timeline.record(Kind.WORKER_STARTED, text=f"Headrace {__version__}")
        log.info("Worker %s is ready with %d connectors", self.worker_id, len(self.configs.state.connectors()))

    async def stop(self) -> None:
        """Finish the writes in flight, leave the consumer groups, write the last statuses."""
        self.ready = False
        self.stage = WorkerStage(_STOPPING, self.now())
        for following in (self._handing_on, self._following):
            if following is not None:
                following.cancel()
        await asyncio.gather(*(connector.close() for connector in self._connectors.values()))
        await self.cluster.stop()
        self.timeline.record(Kind.WORKER_STOPPED)
        await self.timeline.close()
        await self.statuses.close()
        await self.configs.close()
        await self.stores.close()

    async def catch_up(self) -> None:
        """Read the config topic to its end, so that later requests to this worker see what the leader has written."""
        try:
            await self.configs.catch_up()
        except HeadraceError as error:
            log.warning("Config topic: could not be read to its end: %s", summary(error))

    def not_ready(self) -> str:
        """Return why the worker does not answer requests."""
        busy = _STOPPING if self.stopping else "still starting up"
        return f"Worker is {busy}. {self.stage.sentence()}"

    def stuck(self) -> WorkerStage | None:
        """Return the change that has blocked other changes for too long, or None."""
        change = self.configs.change
        return change if change is not None and self.now() - change.began > _STUCK else None

    def connector(self, name: str) -> WorkerConnector | None:
        return self._connectors.get(name)

    def topic_read(self, connector: str, task_number: int, topic: str) -> None:
        """Record that a task has read from a topic, which makes it an active topic of the connector (KIP-558)."""
        tracked = self.config.tracking.enabled
        if tracked and self.configs.state.connector_config(connector) is not None:
            now = int(self.now().timestamp() * 1000)
            self.statuses.put_topic(TopicStatus(topic, connector, task_number, now))

    def put_blocked_tables(self, connector: str, task_number: int, blocked: Sequence[TableStatus]) -> None:
        """Write the tables of a task that do not run to its status, and those that have failed to the timeline."""
        seen = self.statuses.task(connector, task_number)
        failed = {table.table for table in seen.tables if table.state is TableState.FAILED} if seen is not None else ()
        for table in blocked:
            if table.state is TableState.FAILED and table.table not in failed:
                self.timeline.record(
                    Kind.TABLE_FAILED, connector, headline(table.trace), task=task_number, table=table.table
                )
        self.statuses.put_tables(connector, task_number, blocked)

    async def _follow_engine(self) -> None:
        """Write the states of tasks again when the engine has started or ended. It has no other way to report that."""
        shown = None
        while True:
            waits_for = self.waits_for
            if waits_for != shown:
                for count, connector in enumerate(list(self._connectors.values()), 1):
                    connector.engine_changed()
                    if count % _CONNECTORS_PER_TURN == 0:
                        await asyncio.sleep(0)
            shown = waits_for
            await asyncio.sleep(ENGINE_SECONDS)

    def _config_changed(self, name: str) -> None:
        deleted = not self.configs.state.has_connector(name)
        self._changes[name] = self._changes.get(name, False) or deleted
        self._tasks_changed = True
        self._wake.set()

    def _assignment_changed(self) -> None:
        """Hand the assignment on. The leader records which tasks have moved: each worker knows all owners."""
        before, self._owners = self._owners, self.cluster.owners
        if self.cluster.leads and (moves := moved_tasks(before, self._owners)):
            self.timeline.record(Kind.TASKS_MOVED, text=name_list(moves))
        for name in (*self.configs.state.connectors(), *self.statuses.connectors()):
            self._changes.setdefault(name, False)
        self._wake.set()

    async def _hand_on_changes(self) -> None:
        """Hand changes on to the cluster and to the connectors.

        The records of one poll may change thousands of connectors. The tasks are offered once for all of them, and
        other work of the event loop has its turns, such as the answers to probes.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            if self._tasks_changed:
                self._tasks_changed = False
                self.cluster.refresh()
            self._connectors = {name: connector for name, connector in self._connectors.items() if not connector.gone}
            changes, self._changes = self._changes, {}
            for count, (name, deleted) in enumerate(changes.items(), 1):
                if self.stopping:
                    continue
                connector = self._connectors.get(name)
                if connector is None or connector.gone:
                    self._connectors[name] = WorkerConnector(name, self._context)
                else:
                    connector.on_change(deleted=deleted)
                if count % _CONNECTORS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _apply_restart(self, name: str, request: RestartRequest) -> None:
        if (connector := self._connectors.get(name)) is not None and not self.stopping:
            connector.apply_restart(request)

    def _apply_level(self, logger: str, level: str) -> None:
        """Apply a request of KIP-976, which any worker of the cluster may have received."""
        try:
            self.loggers.set_level(logger, level)
        except RestError as error:
            log.error("Logger %s: the level in the config topic is not applied: %s", logger, error)

    async def _reach(self, stage: str, step: Callable[[], Awaitable[None]]) -> None:
        def on_failure(error: BaseException, pause: float) -> None:
            log.warning("Worker %s: still %s, and retries: %s", self.worker_id, stage, summary(error))

        self.stage = WorkerStage(stage, self.now())
        await retrying(_STORE_BACKOFF_SECONDS, on_failure)(step)


def supervision(config: WorkerConfig) -> Supervision:
    """Return the deadlines of tasks in seconds."""
    return Supervision(config.timing.start_timeout, config.timing.shutdown_timeout, config.timing.retry_backoff_max)


def worker_defaults(config: WorkerConfig) -> WorkerDefaults:
    """Return the values that connectors inherit from this worker."""
    warehouse = config.lake.warehouse
    if urlsplit(warehouse).scheme in ("", "file"):
        warehouse = str(Path(urlsplit(warehouse).path).absolute())
    return WorkerDefaults(
        config.converter_properties,
        __version__,
        config.group_id,
        config.overrides.policy,
        config.consumer.get("group.id"),
        warehouse,
        other_catalogs(config.spark_properties()),
    )
