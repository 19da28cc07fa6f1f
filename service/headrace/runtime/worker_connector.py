"""One connector on this worker: brings what runs in line with what the config topic wants.

Requests only write what is wanted; this file alone acts on it. Each connector converges in an asyncio task of its own,
so that one that blocks keeps nobody else waiting, and a request that comes meanwhile is seen in the next round.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.config import SinkConnectorConfig
from headrace.config.validation import WorkerDefaults
from headrace.core.errors import ConfigError, Retriable
from headrace.core.lifecycle import CONNECTOR, Event, State, TargetState, next_state
from headrace.core.status import Status
from headrace.runtime.config_providers import ConfigProviders
from headrace.runtime.plugins import ConnectorPlugin, Plugins
from headrace.runtime.stores import ConfigStore, StatusStore
from headrace.runtime.trace import render, summary
from headrace.runtime.worker_task import Supervision, TaskFactory, WorkerTask

log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What every connector of a worker shares."""

    configs: ConfigStore
    statuses: StatusStore
    plugins: Plugins
    defaults: WorkerDefaults
    providers: ConfigProviders
    task_factory: TaskFactory
    supervision: Supervision
    worker_id: str
    task_gone: Callable[[str, int], None]


class WorkerConnector:
    """A connector's instance and tasks. Only ``close`` waits; everything else asks for another round."""

    def __init__(self, name: str, context: ConnectorContext) -> None:
        self.name = name
        self._context = context
        self._tasks: dict[int, WorkerTask] = {}
        self._restarts: set[int] = set()
        self._deleted = False
        self._wake = asyncio.Event()
        self._state = State.UNASSIGNED
        self._loop = asyncio.create_task(self._converge_forever(), name=f"connector-{name}")
        self.changed()

    def changed(self) -> None:
        """Configuration or target state have changed. A deletion counts even if the name is taken again at once."""
        self._deleted |= self._context.configs.state.connector_config(self.name) is None
        self._wake.set()

    def restart(self, *, connector: bool, tasks: Sequence[int] = ()) -> None:
        """Restart the instance and the given tasks; they show RESTARTING from now on."""
        if connector:
            self._move(Event.RESTART)
        for number in tasks:
            if number in self._tasks:
                self._tasks[number].restarting()
                self._restarts.add(number)
        self._wake.set()

    @property
    def gone(self) -> bool:
        """Whether the connector has been deleted and nothing of it is left; a new one needs a new object."""
        return self._loop.done()

    async def close(self) -> None:
        """Stop everything because the worker goes; what is wanted stays stored."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        await self._end_tasks(list(self._tasks), Event.RELEASE)
        if self._state not in (State.STOPPED, State.DESTROYED):
            self._move(Event.RELEASE)

    async def _converge_forever(self) -> None:
        while self._state is not State.DESTROYED or self._wake.is_set():
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._converge()
            except Retriable as error:
                log.warning("Connector %s waits: %s", self.name, summary(error))
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()
            except Exception as error:  # the border of the connector: it becomes the connector's state
                log.error("Connector %s failed: %s", self.name, summary(error))
                self._fail(render(error))

    async def _converge(self) -> None:
        if self._deleted:
            self._deleted = False
            await self._delete()
        state = self._context.configs.state
        config = state.connector_config(self.name)
        if config is None:
            return
        if state.target_state(self.name) is TargetState.STOPPED:
            await self._stop()
        elif state.target_state(self.name) is TargetState.PAUSED:
            self._move(Event.PAUSE)
            await self._align(state.task_configs(self.name), running=False)
        else:
            await self._start(config)

    def _fail(self, trace: str) -> None:
        """Fail, and with it the tasks that do not run: what another worker has seen of them holds no longer."""
        self._move(Event.FAIL, trace)
        for number in range(len(self._context.configs.state.task_configs(self.name))):
            if number not in self._tasks:
                self._context.statuses.put_task(self.name, number, self._seen(State.FAILED, trace))

    async def _delete(self) -> None:
        await self._end_tasks(list(self._tasks), Event.DELETE)
        self._forget_task_statuses(0)
        self._context.statuses.forget_topics(self.name)
        self._state = State.DESTROYED
        self._context.statuses.put_connector(self.name, None)

    async def _stop(self) -> None:
        await self._end_tasks(list(self._tasks), Event.DELETE)
        self._forget_task_statuses(0)
        if self._context.configs.state.task_configs(self.name):
            await self._context.configs.put_task_configs(self.name, [])
        self._move(Event.STOP)

    async def _start(self, config: Mapping[str, str]) -> None:
        plugin = self._plugin(config)
        typed = self._checked(plugin, config)
        wanted = [task_config(plugin, config)] * typed.get_int("tasks.max")
        if wanted != self._context.configs.state.task_configs(self.name):
            await self._context.configs.put_task_configs(self.name, wanted)
        self._move(Event.START)
        await self._align(wanted, running=True)

    def _plugin(self, config: Mapping[str, str]) -> ConnectorPlugin:
        name = config.get("connector.class", "")
        plugin = self._context.plugins.find(name)
        if plugin is None:
            raise ConfigError(
                f"There is no connector class {name!r} on this worker; PUT a configuration with one of GET "
                "/connector-plugins, or DELETE the connector",
                "connector.class",
            )
        return plugin

    def _checked(self, plugin: ConnectorPlugin, config: Mapping[str, str]) -> SinkConnectorConfig:
        """A stored configuration may have been accepted by another version: check it again."""
        resolved = self._context.providers.resolve(config)
        errors = resolved.hide(plugin.validate(resolved.properties, self._context.defaults)).errors()
        if errors:
            raise ConfigError("The stored configuration is not valid here: " + "; ".join(errors))
        return self._typed(plugin, config)

    def _typed(self, plugin: ConnectorPlugin, config: Mapping[str, str]) -> SinkConnectorConfig:
        """The configuration with what its config providers say now. Raises ConfigError."""
        return plugin.config(self._context.providers.properties(config), self._context.defaults)

    async def _align(self, configs: Sequence[Mapping[str, str]], *, running: bool) -> None:
        """Have exactly the tasks of ``configs``, all of them running or none."""
        restarts, self._restarts = self._restarts, set()
        outdated = [n for n, task in self._tasks.items() if n >= len(configs) or task.given != configs[n]]
        await self._end_tasks(outdated, Event.DELETE)
        self._forget_task_statuses(len(configs))
        await asyncio.gather(*(self._tasks[n].stop(Event.RESTART) for n in restarts if n in self._tasks))
        for number in restarts:  # what still holds is noted again
            self._context.statuses.forget_notes(self.name, number)
        for number, config in enumerate(configs):
            task = self._tasks.get(number) or self._new_task(number, config)
            await (task.run() if running else task.pause())

    def _new_task(self, number: int, config: Mapping[str, str]) -> WorkerTask:
        context = self._context
        plugin = self._plugin(config)
        report = partial(self._report_task, plugin.version)
        typed = partial(self._typed, plugin, config)
        task = WorkerTask(self.name, number, config, typed, context.task_factory, context.supervision, report)
        self._tasks[number] = task
        return task

    async def _end_tasks(self, numbers: Sequence[int], event: Event) -> None:
        ending = [self._tasks.pop(number) for number in numbers]
        await asyncio.gather(*(task.stop(event) for task in ending))

    def _forget_task_statuses(self, first: int) -> None:
        for number, _ in self._context.statuses.tasks(self.name):
            if number >= first:
                self._context.statuses.put_task(self.name, number, None)

    def _report_task(self, version: str, number: int, state: State, trace: str | None) -> None:
        seen = None if state is State.DESTROYED else Status(state, self._context.worker_id, 1, version, trace)
        self._context.statuses.put_task(self.name, number, seen)
        if seen is None:
            self._context.task_gone(self.name, number)

    def _move(self, event: Event, trace: str | None = None) -> None:
        before = State.UNASSIGNED if self._state is State.DESTROYED else self._state
        self._state = next_state(CONNECTOR, before, event)
        seen = self._seen(self._state, trace)
        if seen != self._context.statuses.connector(self.name):
            self._context.statuses.put_connector(self.name, seen)

    def _seen(self, state: State, trace: str | None) -> Status:
        config = self._context.configs.state.connector_config(self.name) or {}
        plugin = self._context.plugins.find(config.get("connector.class", ""))
        return Status(state, self._context.worker_id, 1, plugin.version if plugin else None, trace)


def task_config(plugin: ConnectorPlugin, config: Mapping[str, str]) -> dict[str, str]:
    """A task's configuration: the connector's, and the class of the task."""
    return {**config, "task.class": plugin.task_class}
