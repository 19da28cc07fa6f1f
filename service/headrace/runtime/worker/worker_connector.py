"""One connector on this worker: brings what runs in line with what the config topic wants.

Requests only write what is wanted; this file alone acts on it. Each connector converges in an asyncio task of its own,
so that one that blocks keeps nobody else waiting, and a request that comes meanwhile is seen in the next round.

Every worker runs those tasks that the cluster has given it. The connector's instance, which does nothing but say which
tasks there are, runs on the worker that leads, since only that one may write it down.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.config import SinkConnectorConfig
from headrace.config.validation import WorkerDefaults
from headrace.core.connect.config_state import MAX_TASKS, RestartRequest
from headrace.core.connect.lifecycle import CONNECTOR, Event, State, TargetState, next_state
from headrace.core.connect.status import Status
from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.observation import StateObserver
from headrace.runtime.trace import render, summary
from headrace.runtime.worker import log_format
from headrace.runtime.worker.cluster import Cluster
from headrace.runtime.worker.config_providers import ConfigProviders
from headrace.runtime.worker.plugins import ConnectorPlugin, Plugins
from headrace.runtime.worker.stores import ConfigStore, StatusStore
from headrace.runtime.worker.worker_task import Supervision, TaskFactory, WorkerTask

log = logging.getLogger(__name__)

_TASK_CLASS = "task.class"
"""Stands in the tasks' configurations beside what the connector's says."""
_RETRY_SECONDS = 1.0
_LEAVE_SECONDS = 15.0
"""How long a worker that stops waits for tasks that leave their groups with a write in flight: it ends the process."""


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """What every connector of a worker shares."""

    configs: ConfigStore
    statuses: StatusStore
    cluster: Cluster
    plugins: Plugins
    defaults: WorkerDefaults
    providers: ConfigProviders
    task_factory: TaskFactory
    supervision: Supervision
    worker_id: str
    states: StateObserver


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
        self._told_in = context.cluster.generation
        self._loop = asyncio.create_task(self._converge_forever(), name=f"connector-{name}")
        self.changed()

    def changed(self) -> None:
        """Configuration, target state or the worker's share have changed.

        A deletion counts even if the name is taken again at once.
        """
        self._deleted |= self._context.configs.state.connector_config(self.name) is None
        self._wake.set()

    def restart(self, *, connector: bool, tasks: Collection[int] = ()) -> None:
        """Restart the instance and the given tasks, if they are here; they show RESTARTING from now on."""
        if connector and self._context.cluster.leads:
            self._move(Event.RESTART)
        for number in tasks:
            if number in self._tasks:
                self._tasks[number].restarting()
                self._restarts.add(number)
        self._wake.set()

    def restart_asked(self, request: RestartRequest) -> None:
        """Restart what a request to the cluster selects of what is here."""
        tasks = [number for number, task in self._tasks.items() if self._is_asked(request, number, task)]
        self.restart(connector=request.takes(self._state), tasks=tasks)

    def _is_asked(self, request: RestartRequest, number: int, task: WorkerTask) -> bool:
        seen = self._context.statuses.task(self.name, number)
        return request.takes_task(task.state, failed_tables=seen is not None and seen.has_failed_tables)

    @property
    def gone(self) -> bool:
        """Whether the connector has been deleted and nothing of it is left; a new one needs a new object."""
        return self._loop.done()

    async def close(self) -> None:
        """Stop everything because the worker goes; what is wanted stays stored."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        ending = asyncio.ensure_future(self._end_tasks(list(self._tasks), Event.RELEASE))
        await asyncio.wait({ending}, timeout=self._context.supervision.stop + _LEAVE_SECONDS)
        if self._context.cluster.leads and self._state not in (State.STOPPED, State.DESTROYED):
            self._move(Event.RELEASE)

    async def _converge_forever(self) -> None:
        log_format.enter(self.name)
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
        config = self._context.configs.state.connector_config(self.name)
        if config is None:
            return
        target = self._context.configs.state.target_state(self.name)
        if self._context.cluster.leads:
            await self._lead(config, target)
        else:
            self._state = State.UNASSIGNED
        tasks = self._context.configs.state.task_configs(self.name) if target is not TargetState.STOPPED else []
        await self._align(tasks, running=target is TargetState.STARTED)

    async def _lead(self, config: Mapping[str, str], target: TargetState) -> None:
        """Be the connector's instance: say which tasks there are. Raises ConfigError and Retriable."""
        if target is TargetState.STOPPED:
            await self._end_tasks(list(self._tasks), Event.DELETE)
            await self._write_tasks(config, target, [])
            self._move(Event.STOP)
        elif target is TargetState.PAUSED:
            self._move(Event.PAUSE)
        else:
            plugin = self._plugin(config)
            typed = self._checked(plugin, config)
            count, wanted = plugin.task_count(typed), typed.framework.tasks_max
            tasks = [task_config(plugin, config)] * count
            if count < wanted and tasks != self._context.configs.state.task_configs(self.name):
                log.warning(
                    "Connector %s: runs %d tasks of tasks.max=%d: a topic belongs to one task, and a connector has %d "
                    "tasks at most",
                    *(self.name, count, wanted, MAX_TASKS),
                )
            await self._write_tasks(config, target, tasks)
            self._move(Event.START)
        self._forget_task_statuses(len(self._context.configs.state.task_configs(self.name)))

    async def _write_tasks(
        self, config: Mapping[str, str], target: TargetState, tasks: Sequence[Mapping[str, str]]
    ) -> None:
        """Have the tasks that follow from ``config`` and ``target``; the next round has them if those have changed."""
        configs = self._context.configs
        async with configs.changing(f"writing task configs for connector {self.name} to the config topic"):
            if (configs.state.connector_config(self.name), configs.state.target_state(self.name)) != (config, target):
                return
            if tasks != configs.state.task_configs(self.name):
                await self._context.cluster.write(configs.put_task_configs(self.name, tasks))

    def _fail(self, trace: str) -> None:
        """Fail, and with it our tasks that do not run: what another worker has seen of them holds no longer."""
        if self._context.cluster.leads:
            self._move(Event.FAIL, trace)
        for number in range(len(self._context.configs.state.task_configs(self.name))):
            if number not in self._tasks and self._context.cluster.owns(self.name, number):
                self._context.statuses.put_task(self.name, number, self._seen(State.FAILED, trace))

    async def _delete(self) -> None:
        await self._end_tasks(list(self._tasks), Event.DELETE)
        self._state = State.DESTROYED
        self._context.states.connector_state(self.name, self._state)
        if self._context.cluster.leads:
            self._forget_task_statuses(0)
            self._context.statuses.forget_topics(self.name)
            self._context.statuses.put_connector(self.name, None)

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
        """A stored configuration with what its config providers say now. Raises ConfigError, without what they say.

        It may have been accepted by another version, and a provider may say what none would have accepted.
        """
        resolved = self._context.providers.resolve({k: value for k, value in config.items() if k != _TASK_CLASS})
        errors = resolved.hide(plugin.validate(resolved.properties, self._context.defaults)).errors()
        if errors:
            raise ConfigError("The stored configuration is not valid here: " + "; ".join(errors))
        properties = {name: value for name, value in resolved.properties.items() if value is not None}
        return plugin.config(properties, self._context.defaults)

    async def _align(self, configs: Sequence[Mapping[str, str]], *, running: bool) -> None:
        """Have exactly those tasks of ``configs`` that are ours, all of them running or none."""
        restarts, self._restarts = self._restarts, set()
        ours = [number for number in range(len(configs)) if self._context.cluster.owns(self.name, number)]
        outdated = [n for n, task in self._tasks.items() if n >= len(configs) or task.given != configs[n]]
        await self._end_tasks(outdated, Event.DELETE)
        await self._end_tasks([n for n in self._tasks if n not in ours], Event.RELEASE)
        await asyncio.gather(*(self._tasks[n].stop(Event.RESTART) for n in restarts if n in self._tasks))
        for number in restarts:  # what still holds is noted again
            self._context.statuses.forget_notes(self.name, number)
        self._tell_again()
        for number in ours:
            task = self._tasks.get(number) or self._new_task(number, configs[number])
            await (task.run() if running else task.pause())

    def _tell_again(self) -> None:
        """The states of tasks that have stayed while the group moved.

        A worker that slept may have missed that a task was another's for a while: that one's word must not be the last.
        """
        generation, told_in = self._context.cluster.generation, self._told_in
        self._told_in = generation
        for number, task in self._tasks.items() if generation != told_in else ():
            self._put_task(self._plugin(task.given).version, number, task.state, task.trace)

    def _new_task(self, number: int, config: Mapping[str, str]) -> WorkerTask:
        context = self._context
        plugin = self._plugin(config)
        report = partial(self._report_task, plugin.version)
        typed = partial(self._checked, plugin, config)
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
        """Status of a task of ours; that of one that has moved is its new owner's to tell."""
        ours = self._context.cluster.owns(self.name, number)
        if ours or state is State.DESTROYED or self._was_seen_here(number):
            self._put_task(version, number, state, trace)
        self._context.states.task_state(self.name, number, state if ours else State.DESTROYED)

    def _put_task(self, version: str, number: int, state: State, trace: str | None) -> None:
        self._context.statuses.put_task(self.name, number, self._shown(state, version, trace))

    def _was_seen_here(self, number: int) -> bool:
        seen = self._context.statuses.task(self.name, number)
        return seen is not None and seen.worker_id == self._context.worker_id

    def _shown(self, state: State, version: str | None, trace: str | None) -> Status | None:
        if state is State.DESTROYED:
            return None
        return Status(state, self._context.worker_id, self._context.cluster.generation, version, trace)

    def _move(self, event: Event, trace: str | None = None) -> None:
        before = State.UNASSIGNED if self._state is State.DESTROYED else self._state
        self._state = next_state(CONNECTOR, before, event)
        self._context.states.connector_state(self.name, self._state)
        seen = self._seen(self._state, trace)
        if seen != self._context.statuses.connector(self.name):
            self._context.statuses.put_connector(self.name, seen)

    def _seen(self, state: State, trace: str | None) -> Status:
        config = self._context.configs.state.connector_config(self.name) or {}
        plugin = self._context.plugins.find(config.get("connector.class", ""))
        generation = self._context.cluster.generation
        return Status(state, self._context.worker_id, generation, plugin.version if plugin else None, trace)


def task_config(plugin: ConnectorPlugin, config: Mapping[str, str]) -> dict[str, str]:
    """A task's configuration: the connector's, and the class of the task."""
    return {**config, _TASK_CLASS: plugin.task_class}
