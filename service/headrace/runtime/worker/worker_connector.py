"""One connector on this worker: aligns its instance and tasks with the config topic.

Requests write the target to the config topic, and only this module acts on it. Each connector has its own asyncio
task, so a blocked connector does not delay the others. A change during a round is handled in the next one.

Every worker runs the tasks that the cluster assigns to it. The connector's instance, which only computes the task
configurations, runs on the leader, because only the leader may write them.

Tests: ``tests/rest/test_connectors.py``, ``tests/rest/test_slow_stops.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

from headrace.config import SinkConnectorConfig
from headrace.core.connect.config_state import MAX_TASKS, RestartRequest
from headrace.core.connect.dead_letters import Replay
from headrace.core.connect.lifecycle import CONNECTOR, Event, State, TargetState, next_state
from headrace.core.connect.problems import headline
from headrace.core.connect.status import Status, TableReport, report_of
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import ConfigError, Retriable
from headrace.runtime.observation import StateObserver
from headrace.runtime.trace import render, summary
from headrace.runtime.worker import log_format
from headrace.runtime.worker.cluster import Cluster
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace.runtime.worker.stores import ConfigStore, StatusStore, utc_now
from headrace.runtime.worker.timeline import Timeline
from headrace.runtime.worker.worker_task import Supervision, TaskFactory, WorkerTask

log = logging.getLogger(__name__)

_TASK_CLASS = "task.class"
"""The key that a task's configuration has in addition to the connector's."""
_RETRY_SECONDS = 1.0
_LEAVE_SECONDS = 15.0
"""How long a worker that stops waits for writes in flight whose tasks have left their groups."""


@dataclass(frozen=True, slots=True)
class ConnectorContext:
    """The parts that all connectors of a worker share."""

    configs: ConfigStore
    statuses: StatusStore
    cluster: Cluster
    connector_class: LakehouseSinkConnector
    task_factory: TaskFactory
    supervision: Supervision
    worker_id: str
    states: StateObserver
    waits_for: Callable[[], str | None]
    replays: Set[str]
    """The replays of dead letters that run in this process."""
    timeline: Timeline
    validations: asyncio.Lock = field(default_factory=asyncio.Lock)


class WorkerConnector:
    """A connector's instance and tasks. ``close`` waits for their end; the other methods request another round."""

    def __init__(self, name: str, context: ConnectorContext) -> None:
        self.name = name
        self._context = context
        self._tasks: dict[int, WorkerTask] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._restarts: set[int] = set()
        self._deleted = False
        self._wake = asyncio.Event()
        self._state = State.UNASSIGNED
        self._led: tuple[Mapping[str, str], Sequence[Mapping[str, str]]] | None = None
        """The configuration, and the task configurations that the running instance has computed from it."""
        self._reported_generation = context.cluster.generation
        self._is_replayed = False
        """Whether the tasks were paused for a replay of dead letters in the last round."""
        self._loop = asyncio.create_task(self._align_forever(), name=f"connector-{name}")
        self.on_change()

    def on_change(self, *, deleted: bool = False) -> None:
        """Handle a change of the configuration, the target state or the assignment.

        With ``deleted`` the connector was deleted, although one with the same name may have been created since.
        """
        self._deleted |= deleted or not self._context.configs.state.has_connector(self.name)
        self._wake.set()

    def engine_changed(self) -> None:
        """Write the states of this worker's tasks again, because they wait for something else, or for nothing more."""
        for task_number, task in self._tasks.items():
            if self._context.cluster.owns(self.name, task_number):
                self._put_task(task_number, task.state, task.trace)

    def restart(self, *, connector: bool, tasks: Collection[int] = ()) -> None:
        """Restart the instance and the given tasks, if this worker runs them. They are RESTARTING from now on."""
        self._led = None
        if connector and self._context.cluster.leads:
            self._move(Event.RESTART)
        for task_number in tasks:
            if task_number in self._tasks:
                self._tasks[task_number].restarting()
                self._restarts.add(task_number)
        self._wake.set()

    def reports(self) -> Sequence[tuple[int, TableReport]]:
        """Return the reports of this worker's tasks on their tables, with the number of the task.

        Of a task that does not run, the tables whose failure is in its status.
        """
        listing = []
        for number, task in self._tasks.items():
            reports = list(task.reports())
            seen = self._context.statuses.task(self.name, number)
            reported_tables = {report.table for report in reports}
            blocked = seen.tables if seen is not None else ()
            reports += [report_of(status) for status in blocked if status.table not in reported_tables]
            listing += [(number, report) for report in reports]
        return listing

    def restart_table(self, table: str, *, recreate: bool = False) -> bool:
        """Restart a table of this worker's tasks, with its task if that has failed. Return False for an unknown one.

        ``recreate``: as of ``Task.restart_table``.
        """
        for number, task in self._tasks.items():
            if task.restart_table(table, recreate=recreate):
                return True
            seen = self._context.statuses.task(self.name, number)
            if task.state is State.FAILED and seen is not None and table in {status.table for status in seen.tables}:
                if recreate:  # the next run of the task finds it in the status
                    tables = [
                        replace(status, recreate=status.recreate or status.table == table) for status in seen.tables
                    ]
                    self._context.statuses.put_tables(self.name, number, tables)
                self.restart(connector=False, tasks=[number])
                return True
        return False

    def reads(self, table: str, topic: str) -> bool:
        """Return whether a task of this worker reads a table's topic, or has failed because of the table."""
        for number, task in self._tasks.items():
            seen = self._context.statuses.task(self.name, number)
            blocked = seen.tables if seen is not None and task.state is State.FAILED else ()
            if topic in task.topics() or table in {status.table for status in blocked}:
                return True
        return False

    def runs(self, task_number: int) -> bool:
        """Return whether this worker runs a task."""
        task = self._tasks.get(task_number)
        return task is not None and task.state is State.RUNNING

    def apply_restart(self, request: RestartRequest) -> None:
        """Restart those of this worker's tasks, and the instance, that a request to the cluster selects."""
        tasks = []
        for task_number, task in self._tasks.items():
            seen = self._context.statuses.task(self.name, task_number)
            if request.takes_task(task.state, failed_tables=seen is not None and seen.has_failed_tables):
                tasks.append(task_number)
        self.restart(connector=request.takes(self._state), tasks=tasks)

    @property
    def gone(self) -> bool:
        """Whether the connector is deleted and all its tasks have ended. A new connector needs a new object."""
        return self._loop.done()

    async def close(self) -> None:
        """Stop the instance and the tasks because the worker stops. The target state stays stored."""
        self._loop.cancel()
        await asyncio.gather(self._loop, return_exceptions=True)
        ending = asyncio.ensure_future(self._end_tasks(list(self._tasks), Event.RELEASE))
        await asyncio.wait({ending, *self._ending}, timeout=self._context.supervision.stop + _LEAVE_SECONDS)
        if self._context.cluster.leads and self._state not in (State.STOPPED, State.DESTROYED):
            self._move(Event.RELEASE)

    async def _align_forever(self) -> None:
        log_format.enter(self.name)
        while self._state is not State.DESTROYED or self._wake.is_set():
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._align()
            except Retriable as error:
                log.warning("Connector %s: retries after an error: %s", self.name, summary(error))
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()
            except Exception as error:  # any error of a connector makes it FAILED and must not stop the worker
                log.error("Connector %s: failed: %s", self.name, summary(error))
                self._fail(render(error))

    async def _align(self) -> None:
        context, stored = self._context, self._context.configs.state
        if self._deleted:
            self._deleted = False
            await self._end_tasks(list(self._tasks), Event.DELETE)
            self._state = State.DESTROYED
            context.states.on_connector_state(self.name, self._state)
            if context.cluster.leads:
                self._remove_task_statuses(0)
                context.statuses.reset_topics(self.name)
                context.statuses.remove_resnapshots(self.name)
                context.statuses.put_connector(self.name, None)
        config = stored.connector_config(self.name)
        if config is None:
            return
        target = stored.target_state(self.name)
        if context.cluster.leads:
            await self._lead(config, target)
        else:
            self._state = State.UNASSIGNED
        tasks = stored.task_configs(self.name) if target is not TargetState.STOPPED else []
        replay = stored.replay(self.name)
        if replay is not None and replay.is_running and context.cluster.leads and replay.run not in context.replays:
            await self._end_replay(replay)
        is_replayed, was_replayed = self._pauses_for_replay, self._is_replayed
        await self._align_tasks(tasks, running=target is TargetState.STARTED and not is_replayed)
        self._is_replayed = is_replayed
        if was_replayed and not is_replayed:  # of a task that stays paused, the status would say what it waited for
            self.engine_changed()

    @property
    def _pauses_for_replay(self) -> bool:
        replay = self._context.configs.state.replay(self.name)
        return replay is not None and replay.pauses

    async def _end_replay(self, replay: Replay) -> None:
        """End a replay whose worker has stopped or is not the leader any more, so that the tasks resume."""
        configs = self._context.configs
        async with configs.changing(f"ending the replay of connector {self.name}'s dead letters in the config topic"):
            if configs.state.replay(self.name) == replay:
                ended = replay.with_interruption(utc_now().timestamp())
                log.warning("Connector %s: the replay of its dead letters has failed: %s", self.name, ended.error)
                await self._context.cluster.write(configs.put_replay(self.name, ended))
                if not ended.dry_run:
                    self._context.timeline.record(Kind.LETTERS_REPLAYED, self.name, ended.result)

    async def _lead(self, config: Mapping[str, str], target: TargetState) -> None:
        """Run the connector's instance: write its task configurations. Raises ConfigError and Retriable."""
        problem = self._context.configs.state.problem(self.name)
        if target is TargetState.STOPPED:
            await self._end_tasks(list(self._tasks), Event.DELETE)
            await self._write_tasks(config, target, [])
        if problem is not None and target is not TargetState.STARTED:
            self._fail(render(ConfigError(problem)))
        elif problem is not None:
            raise ConfigError(problem)
        elif target is TargetState.STOPPED:
            self._move(Event.STOP)
        elif target is TargetState.PAUSED:
            self._move(Event.PAUSE)
        elif self._state is State.RUNNING and self._led == (
            config,
            self._context.configs.state.task_configs(self.name),
        ):
            self._move(Event.START)  # of a later generation
        else:
            self._led = None
            typed = await self._read_stored(config)
            count, wanted = self._context.connector_class.task_count(typed), typed.framework.tasks_max
            tasks = [{**config, _TASK_CLASS: self._context.connector_class.task_class}] * count
            if count < wanted and tasks != self._context.configs.state.task_configs(self.name):
                log.warning(
                    "Connector %s: runs %d tasks although tasks.max=%d: a topic belongs to one task, and a connector "
                    "has at most %d tasks",
                    *(self.name, count, wanted, MAX_TASKS),
                )
            await self._write_tasks(config, target, tasks)
            self._led = config, tasks
            self._move(Event.START)
        self._remove_task_statuses(self._context.configs.state.task_count(self.name))

    async def _write_tasks(
        self, config: Mapping[str, str], target: TargetState, tasks: Sequence[Mapping[str, str]]
    ) -> None:
        """Write the tasks of ``config`` and ``target`` unless those have changed, which the next round handles."""
        configs = self._context.configs
        async with configs.changing_tasks(self.name):
            if (configs.state.connector_config(self.name), configs.state.target_state(self.name)) != (config, target):
                return
            if tasks != configs.state.task_configs(self.name):
                await self._context.cluster.write(configs.put_task_configs(self.name, tasks))

    def _fail(self, trace: str) -> None:
        """Set FAILED for the instance, and for this worker's tasks that do not run and have outdated statuses."""
        if self._context.cluster.leads:
            self._move(Event.FAIL, trace)
        for task_number in range(self._context.configs.state.task_count(self.name)):
            if task_number not in self._tasks and self._context.cluster.owns(self.name, task_number):
                self._context.statuses.put_task(self.name, task_number, self._instance_status(State.FAILED, trace))

    def _check_class(self, config: Mapping[str, str]) -> None:
        if not self._context.connector_class.runs(config):
            name = config.get("connector.class", "")
            raise ConfigError(
                f"connector.class: the class {name!r} is not installed on this worker; PUT a configuration with a "
                "class of GET /connector-plugins, or DELETE the connector",
                "connector.class",
            )

    async def _read_stored(self, config: Mapping[str, str]) -> SinkConnectorConfig:
        """Validate a stored configuration again, one connector after the other. Raises ConfigError.

        A validation takes milliseconds. Thousands in a row would keep the event loop from the answers to probes.
        """
        self._check_class(config)
        async with self._context.validations:
            await asyncio.sleep(0)
            given = {name: value for name, value in config.items() if name != _TASK_CLASS}
            return self._context.connector_class.resolve(given, "The stored configuration is not valid on this worker")

    async def _align_tasks(self, configs: Sequence[Mapping[str, str]], *, running: bool) -> None:
        """Run or pause exactly those tasks of ``configs`` that are assigned to this worker."""
        context = self._context
        restarts, self._restarts = self._restarts, set()
        assigned = [number for number in range(len(configs)) if context.cluster.owns(self.name, number)]
        outdated = [n for n, task in self._tasks.items() if n >= len(configs) or task.given != configs[n]]
        await self._end_tasks(outdated, Event.DELETE)
        await self._end_tasks([n for n in self._tasks if n not in assigned], Event.RELEASE)
        await asyncio.gather(*(self._tasks[n].stop(Event.RESTART) for n in restarts if n in self._tasks))
        for task_number in restarts:  # a task adds its notes again
            context.statuses.clear_notes(self.name, task_number)

        # Report the tasks again after each rebalance. A worker that was suspended may not know that another worker
        # owned a task in the meantime, and the status topic must not end with that worker's status.
        generation, reported = context.cluster.generation, self._reported_generation
        self._reported_generation = generation
        for task_number, task in self._tasks.items() if generation != reported else ():
            self._put_task(task_number, task.state, task.trace)

        for number in assigned:
            if number not in self._tasks:
                self._check_class(configs[number])
                read = partial(self._read_stored, configs[number])
                self._tasks[number] = WorkerTask(
                    *(self.name, number, configs[number], read, context.task_factory, context.supervision),
                    self._report_task,
                )
                if context.waits_for() is not None:  # it may be long until the task runs, and its status is outdated
                    self._put_task(number, self._tasks[number].state, None)
            task = self._tasks[number]
            task.set_paused_tables(context.configs.state.paused_tables(self.name))
            await (task.run() if running else task.pause())

    async def _end_tasks(self, numbers: Sequence[int], event: Event) -> None:
        """End tasks. If the caller is cancelled, because the worker stops, they still end, and ``close`` waits."""
        ending = [asyncio.create_task(self._tasks.pop(task_number).stop(event)) for task_number in numbers]
        for task in ending:
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        await asyncio.shield(asyncio.gather(*ending))

    def _remove_task_statuses(self, first: int) -> None:
        for task_number, _ in self._context.statuses.tasks(self.name):
            if task_number >= first:
                self._context.statuses.put_task(self.name, task_number, None)

    def _report_task(self, task_number: int, state: State, trace: str | None) -> None:
        """Write the status of a task, unless another worker owns the task and has written its status."""
        owned = self._context.cluster.owns(self.name, task_number)
        seen = self._context.statuses.task(self.name, task_number)
        if owned:
            self._add_to_timeline(task_number, state, trace, seen)
        if owned or state is State.DESTROYED or (seen is not None and seen.worker_id == self._context.worker_id):
            self._put_task(task_number, state, trace)
        self._context.states.on_task_state(self.name, task_number, state if owned else State.DESTROYED)

    def _add_to_timeline(self, task_number: int, state: State, trace: str | None, before: Status | None) -> None:
        """Record failures of a task, and its starts after a failure or a restart. Others follow from other events."""
        is_new = trace is not None and (before is None or trace != before.trace)  # a restart keeps the trace
        if trace is not None and (state is State.FAILED or (state is State.RESTARTING and is_new)):
            kind = Kind.TASK_FAILED if state is State.FAILED else Kind.TASK_RESTARTED
            self._context.timeline.record(kind, self.name, headline(trace), task=task_number)
        elif state is State.RUNNING and before is not None and before.state in (State.FAILED, State.RESTARTING):
            self._context.timeline.record(Kind.TASK_STARTED, self.name, task=task_number)

    def _put_task(self, task_number: int, state: State, trace: str | None) -> None:
        worker_id, generation = self._context.worker_id, self._context.cluster.generation
        version = self._context.connector_class.version
        waits = state is State.RUNNING or (state is State.UNASSIGNED and task_number in self._tasks)
        waits_for = self._context.waits_for() if waits else None
        if state is State.PAUSED and self._pauses_for_replay:
            waits_for = "the replay of its dead letters"
        status = Status(state, worker_id, generation, version, trace, waits_for=waits_for)
        self._context.statuses.put_task(self.name, task_number, None if state is State.DESTROYED else status)

    def _move(self, event: Event, trace: str | None = None) -> None:
        before = State.UNASSIGNED if self._state is State.DESTROYED else self._state
        self._state = next_state(CONNECTOR, before, event)
        self._context.states.on_connector_state(self.name, self._state)
        status = self._instance_status(self._state, trace)
        seen = self._context.statuses.connector(self.name)
        failed_before = seen is not None and seen.state is State.FAILED and headline(seen.trace or "")
        if self._state is State.FAILED and trace is not None and headline(trace) != failed_before:
            self._context.timeline.record(Kind.CONNECTOR_FAILED, self.name, headline(trace))
        if status != seen:
            self._context.statuses.put_connector(self.name, status)

    def _instance_status(self, state: State, trace: str | None) -> Status:
        config = self._context.configs.state.connector_config(self.name) or {}
        version = self._context.connector_class.version if self._context.connector_class.runs(config) else None
        return Status(state, self._context.worker_id, self._context.cluster.generation, version, trace)
