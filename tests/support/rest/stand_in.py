"""Replaces Kafka Connect's FileStreamSink, the connector of the recorded requests, and its tasks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from fastapi import FastAPI

from headrace.config import SinkConnectorConfig, validation
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.config.kafka import CLIENT_OVERRIDES
from headrace.config.validation import Properties
from headrace.core.connect.config_def import (
    ConfigDef,
    ConfigInfo,
    ConfigInfos,
    ConfigKey,
    ConfigValue,
    Importance,
    Type,
)
from headrace.core.connect.paused_tables import PausedTables
from headrace.core.connect.status import TableReport
from headrace.ports import EngineState, EngineStatus, OpenRowSource, SignalChannel
from headrace.rest.app import WorkerParts, create_app
from headrace.rest.source_connector import configured_source_connector, examined_source_connector
from headrace.runtime.dead_letters.replay import Edges
from headrace.runtime.dead_letters.replays import DeadLetters, ReplayParts
from headrace.runtime.doctor import Doctor
from headrace.runtime.resnapshot.resnapshot_run import ResnapshotParts
from headrace.runtime.resnapshot.worker_resnapshots import WorkerResnapshots
from headrace.runtime.task.conversions import no_registries
from headrace.runtime.task.flow_control import unlimited
from headrace.runtime.threads import WorkerThreads
from headrace.runtime.worker.connector_directory import ConnectorDirectory
from headrace.runtime.worker.health import WorkerHealth
from headrace.runtime.worker.herder import Herder
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.worker import Worker
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker, MemoryFeeds
from headrace_dev.memory.row_source import MemoryRowSource
from headrace_dev.memory.signals import MemorySignals


def health_of(worker: Worker, engine: EngineState = EngineState.RUNNING) -> WorkerHealth:
    """Return the health of a worker with an engine in this state."""
    return WorkerHealth(worker, lambda: EngineStatus(engine, time.time()), {}, lambda callback: callback())


def application(worker: Worker) -> FastAPI:
    """Return the application of a worker without metrics."""
    herder = Herder(worker)
    directory = ConnectorDirectory(worker, herder)
    doctor = Doctor(worker.stores, lambda database, options: MemoryRowSource(), examined_source_connector)
    health = health_of(worker)
    letters = dead_letters_of(worker, herder, MemoryFeeds(MemoryBroker()), MemoryLakehouse())
    return create_app(
        WorkerParts(
            worker,
            herder,
            health,
            directory,
            lambda: (b"", "text/plain"),
            doctor,
            lambda connector: (),
            letters,
            resnapshots_of(worker, lambda database, options: MemoryRowSource(), MemorySignals()),
        )
    )


def dead_letters_of(worker: Worker, herder: Herder, feeds: MemoryFeeds, lakehouse: MemoryLakehouse) -> DeadLetters:
    """Return the dead letters in these queues, which are replayed to this lake."""
    edges = Edges(lakehouse, lambda database, options: MemoryRowSource(), no_registries, {})
    return DeadLetters(worker, herder, ReplayParts(feeds, edges, WorkerThreads.start(1), unlimited()))


def resnapshots_of(worker: Worker, open_source: OpenRowSource, signals: SignalChannel) -> WorkerResnapshots:
    """Return the resnapshots of a worker on a lakehouse in memory, whose signals go to ``signals``."""
    parts = ResnapshotParts(
        worker.stores,
        MemoryLakehouse(),
        open_source,
        lambda connector, topic, key, run: signals,
        configured_source_connector,
    )
    return WorkerResnapshots(worker, parts)


class FileStreamSinkConnector(LakehouseSinkConnector):
    """A connector that accepts any key, as Connect does."""

    class_name = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    task_class = "org.apache.kafka.connect.file.FileStreamSinkTask"
    version = "4.3.1"

    def definitions(self) -> ConfigDef:
        """Its only option and those of the framework."""
        return ConfigDef((_FILE,)) + FRAMEWORK_OPTIONS.with_defaults({"connector.plugin.version": self.version})

    def infos(self, properties: Properties) -> ConfigInfos:
        """Headrace's checks, without those that Connect does not have and those of tables."""
        infos = validation.validate(properties, replace(self.defaults, version=self.version))
        shown = [info for info in infos.configs if _is_connects(info)]
        own = [ConfigInfo(_FILE, ConfigValue("file", properties.get("file")))]
        groups = tuple(dict.fromkeys([*infos.groups[:4], *(info.definition.group for info in shown)]))
        return replace(
            infos,
            groups=tuple(group for group in groups if group),
            configs=tuple(sorted((*shown, *own), key=lambda info: info.definition.name.endswith(_STRING_OPTIONS))),
        )

    def config(self, properties: Mapping[str, str]) -> SinkConnectorConfig:
        """The typed form, without transforms: Connect accepts an unknown predicate until the tasks start."""
        return super().config({name: value for name, value in properties.items() if name != "transforms"})

    def task_count(self, config: SinkConnectorConfig) -> int:
        """tasks.max, for any topics."""
        return config.framework.tasks_max


_STRING_OPTIONS = ("converter.converter.type", "converter.converter.encoding")
_FILE = ConfigKey("file", Type.STRING, None, Importance.HIGH, "Where to write.")
_ALIASES = ("transforms.", "predicates.")


def _is_connects(info: ConfigInfo) -> bool:
    """Whether Connect lists the option: one of the framework, or an invalid one of the configuration."""
    name, errors = info.definition.name, info.value.errors
    if name in FRAMEWORK_OPTIONS or name.startswith((*CLIENT_OVERRIDES, *_ALIASES)) or name.endswith(_STRING_OPTIONS):
        return True
    return bool(errors) and not errors[0].startswith("Unknown configuration")


class StandInTask:
    """A task that does nothing; a test can make it fail."""

    def __init__(self, connector: str, number: int, fail: Callable[[BaseException], None]) -> None:
        self.name = f"{connector}-{number}"
        self.waits_for = "its turn"
        self.fail = fail
        self.calls: list[str] = []
        self.slow = False
        """Whether its start does not end."""
        self.tables: list[TableReport] = []
        """What it says of its tables."""
        self.paused_tables: PausedTables = {}
        self.write_in_flight: asyncio.Event | None = None
        """If it is set to an event, a write ends with that."""
        self.stopped = False
        """Whether a stop has run to its end."""

    async def start(self) -> None:
        """Started."""
        self.calls.append("start")
        if self.slow:
            await asyncio.Event().wait()

    async def stop(self) -> None:
        """Stopped."""
        self.calls.append("stop")
        await self._write_ended()
        self.stopped = True

    async def leave(self) -> None:
        """Out of the group."""
        self.calls.append("leave")
        await self._write_ended()

    async def _write_ended(self) -> None:
        if self.write_in_flight is not None:
            await self.write_in_flight.wait()

    async def pause(self) -> None:
        """Paused."""
        self.calls.append("pause")

    async def resume(self) -> None:
        """Resumed."""
        self.calls.append("resume")

    def reports(self) -> list[TableReport]:
        """The tables of the task."""
        return self.tables

    def topics(self) -> list[str]:
        """The topics of its tables."""
        return [topic for table in self.tables for topic in table.topics]

    def set_paused_tables(self, paused: PausedTables) -> None:
        """Keep the paused tables."""
        self.paused_tables = paused

    def restart_table(self, table: str, *, recreate: bool = False) -> bool:
        """Record the restart of a table."""
        found = table in {each.table for each in self.tables}
        if found:
            self.calls.append(f"restart {table}" + " as it is" * recreate)
        return found


class StandInTasks:
    """A task factory that keeps the newest task of each number and its options, and can let starts fail."""

    def __init__(self) -> None:
        self.tasks: dict[str, StandInTask] = {}
        self.configs: dict[str, SinkConnectorConfig] = {}
        self.refusal: BaseException | None = None
        self.made = 0
        self.slow = False

    async def __call__(
        self, connector: str, number: int, config: SinkConnectorConfig, on_failure: Callable[[BaseException], None]
    ) -> StandInTask:
        """Make a task, or raise the error that a test has set."""
        self.made += 1
        if self.refusal is not None:
            raise self.refusal
        task = StandInTask(connector, number, on_failure)
        task.slow = self.slow
        self.tasks[task.name] = task
        self.configs[task.name] = config
        return task
