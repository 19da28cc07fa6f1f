"""The worker's two stores on compacted topics: ``ConfigStore`` (target) and ``StatusStore`` (actual state).

Configurations are written through: a write returns when the record has been read back. Statuses are written behind: a
task must be able to fail while Kafka is down, so the newest status of every key waits in memory until it is written.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headrace.config.sink_options import IsolationSettings
from headrace.core.connect import config_state, status
from headrace.core.connect.config_state import ClusterConfigState, RestartRequest
from headrace.core.connect.connector_plan import Ownership
from headrace.core.connect.dead_letters import Replay
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.paused_tables import PausedTables
from headrace.core.connect.resnapshots import Requests, ResnapshotProgress
from headrace.core.connect.status import Status, StatusState, TableStatus, TopicStatus
from headrace.core.connect.timeline import is_timeline_key
from headrace.core.connect.typed_options import parse_options
from headrace.core.model.errors import ConfigError
from headrace.core.model.notes import with_note, with_subjects
from headrace.ports import CompactedLog, FencedLog
from headrace.runtime.worker.write_behind import WriteBehind

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """An operation of the worker, and when it began."""

    name: str
    began: datetime

    def sentence(self) -> str:
        began = self.began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"The worker is currently {self.name}, which began at {began}."


def utc_now() -> datetime:
    return datetime.now(UTC)


"""Statuses that are written at once: more would keep the event loop from REST requests."""
_INITIAL_TARGET = TargetState.STARTED


class ConfigStore:
    """Connector configurations, target states and task configurations (Kafka Connect's ``ConfigBackingStore``).

    Reads and writes of the topic raise Retriable.
    """

    def __init__(self, log: FencedLog, now: Callable[[], datetime] = utc_now) -> None:
        self._log = log
        self._now = now
        self._changed: Callable[[str], None] | None = None
        self._on_level: Callable[[str, str], None] | None = None
        self._on_restart: Callable[[str, RestartRequest], None] | None = None
        self.state = ClusterConfigState()
        self.change: WorkerStage | None = None
        """The change in progress."""
        self._turn = asyncio.Lock()
        self._connectors_turn = asyncio.Lock()

    async def start(
        self,
        changed: Callable[[str], None],
        on_level: Callable[[str, str], None] | None = None,
        on_restart: Callable[[str, RestartRequest], None] | None = None,
    ) -> None:
        """Read the topic to its end, then call ``changed`` with the connector of every later record.

        ``on_level`` receives the logger and level of later records that set one, ``on_restart`` the connector and flags
        of later restart requests. Records from before the start have no effect on either.
        """
        await self._log.start(self._apply)
        self._changed, self._on_level, self._on_restart = changed, on_level, on_restart

    @asynccontextmanager
    async def changing(self, what: str) -> AsyncIterator[None]:
        """Run one change at a time, so that ``state`` does not change between a check and the write in the block."""
        async with self._turn:
            self.change = WorkerStage(what, self._now())
            try:
                yield
            finally:
                self.change = None

    @asynccontextmanager
    async def changing_tasks(self, name: str) -> AsyncIterator[None]:
        """Run a change that a connector makes by itself, as ``changing``.

        At most one of them waits beside the requests of users, who would otherwise wait for thousands of connectors.
        """
        async with (
            self._connectors_turn,
            self.changing(f"writing task configs for connector {name} to the config topic"),
        ):
            yield

    async def lead(self) -> None:
        """Fence the earlier writers. Raises Retriable, ConfigError or Fatal."""
        await self._log.lead()

    async def catch_up(self) -> None:
        await self._log.refresh()

    def position(self) -> int:
        return self._log.position()

    async def put_connector(
        self,
        name: str,
        config: Mapping[str, str],
        target: TargetState | None = None,
        owner: Ownership | None = None,
    ) -> None:
        """Create or change a connector. ``target`` is the initial state of a new one. Raises Retriable.

        Without ``target`` a new connector starts, and without ``owner`` it has none. An interrupted creation or
        removal, or an earlier release, may have left those, the paused tables, the replay and the resnapshots of an
        earlier connector with this name, which are replaced. A changed connector keeps them, and its owner without
        ``owner``.
        """
        new = not self.state.has_connector(name)
        if target is None and new and self.state.target_state(name) != _INITIAL_TARGET:
            target = _INITIAL_TARGET
        records = config_state.connector_records(name, config, target)
        if owner is not None or (new and self.state.owner(name) is not None):
            records.insert(0, config_state.owner_record(name, owner))
        if new and self.state.paused_tables(name):
            records.insert(0, config_state.paused_tables_record(name, {}))
        if new and self.state.replay(name) is not None:
            records.insert(0, config_state.replay_record(name, None))
        if new and self.state.resnapshots(name):
            records.insert(0, config_state.resnapshots_record(name, {}))
        await self._log.append(records)

    async def put_owner(self, name: str, owner: Ownership | None) -> None:
        await self._log.append([config_state.owner_record(name, owner)])

    async def remove_connector(self, name: str) -> None:
        """Remove a connector, and everything that is stored of it. Raises Retriable."""
        own = [config_state.owner_record(name, None)] if self.state.owner(name) is not None else []
        if self.state.paused_tables(name):
            own.append(config_state.paused_tables_record(name, {}))
        if self.state.resnapshots(name):
            own.append(config_state.resnapshots_record(name, {}))
        if self.state.replay(name) is not None:
            own.append(config_state.replay_record(name, None))
        await self._log.append(config_state.removal_records(name, self.state.task_count(name), own))

    async def put_target_state(self, name: str, target: TargetState) -> None:
        await self._log.append([config_state.target_state_record(name, target)])

    async def put_paused_tables(self, name: str, paused: PausedTables) -> None:
        await self._log.append([config_state.paused_tables_record(name, paused)])

    async def put_replay(self, name: str, replay: Replay) -> None:
        await self._log.append([config_state.replay_record(name, replay)])

    async def put_resnapshots(self, name: str, requests: Requests) -> None:
        await self._log.append([config_state.resnapshots_record(name, requests)])

    async def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        await self._log.append(config_state.task_records(name, configs))

    async def put_logger_level(self, logger: str, level: str) -> None:
        await self._log.append([config_state.logger_level_record(logger, level)])

    async def request_restart(self, name: str, request: RestartRequest) -> None:
        await self._log.append([config_state.restart_record(name, request)])

    async def close(self) -> None:
        self._changed = self._on_level = self._on_restart = None
        await self._log.close()

    def _apply(self, key: str, value: bytes | None) -> None:
        try:
            name = self.state.apply(key, value)
            level = config_state.logger_level(key, value)
            restart = config_state.restart_request(key, value)
        except Exception as error:  # an invalid record must not keep the worker from reading later ones
            log.error("Config topic: the record with key %.200s is ignored: %s", key, type(error).__name__)
            return
        if name is not None and self._changed is not None:
            self._changed(name)
        if level is not None and self._on_level is not None:
            self._on_level(*level)
        if restart is not None and self._on_restart is not None:
            self._on_restart(*restart)


class StatusStore:
    """Statuses of connectors, tasks and topics (``StatusBackingStore``). A status can be read as soon as it is put.

    Several workers may write the status of the same task: one releases it, or has not learned yet that it has lost it.
    The worker that has put a state other than UNASSIGNED owns the status. It writes the status again after a record of
    another worker whose generation is not later. The last record is therefore the owner's, also if others are late.
    """

    def __init__(self, log: CompactedLog) -> None:
        self._log = log
        self._state = StatusState()
        self._on_timeline: Callable[[str, bytes | None], None] = lambda key, value: None
        self._waiting = WriteBehind(log, "Status topic")
        self._owned: dict[str, Status] = {}

    async def start(self, on_timeline: Callable[[str, bytes | None], None] = lambda key, value: None) -> None:
        """Read the topic to its end, and follow it. ``on_timeline`` receives the records of the timeline."""
        self._on_timeline = on_timeline
        await self._log.start(self._apply)
        self._waiting.start()

    def connector(self, name: str) -> Status | None:
        return self._state.connectors.get(name)

    def task(self, name: str, task_number: int) -> Status | None:
        """Return the task's status with its notes and tables, None if it has none."""
        task = name, task_number
        seen = self._state.tasks.get(name, {}).get(task_number)
        if seen is None:
            return None
        return replace(seen, notes=self._state.notes.get(task, {}), tables=self._state.tables.get(task, ()))

    def tasks(self, name: str) -> list[tuple[int, Status]]:
        numbers = sorted(self._state.tasks.get(name, ()))
        return [(task_number, seen) for task_number in numbers if (seen := self.task(name, task_number)) is not None]

    def topics(self, name: str) -> list[str]:
        return list(self._state.topics.get(name, ()))

    def connectors(self) -> list[str]:
        return list(self._state.connectors)

    def put_connector(self, name: str, seen: Status | None) -> None:
        self._put_status(status.connector_key(name), seen)

    def put_task(self, name: str, task_number: int, seen: Status | None) -> None:
        """Set or remove the task's status. Removing it also removes its notes and tables."""
        self._put_status(status.task_key(name, task_number), seen)
        if seen is None:
            self.clear_notes(name, task_number)
            self.put_tables(name, task_number, ())

    def note(self, name: str, task_number: int, text: str, location: str) -> None:
        """Add a note to the task's status, with the topic or column that it is about."""
        before = self._state.notes.get((name, task_number), {})
        notes = with_note(before, text, location)
        if notes != before:
            self._put(status.notes_key(name, task_number), status.encode_notes(notes))

    def set_note(self, name: str, task_number: int, text: str, locations: Sequence[str]) -> None:
        """Set all topics or columns that a note is about. Without any, the note is removed."""
        before = self._state.notes.get((name, task_number), {})
        notes = with_subjects(before, text, locations)
        if notes != before:
            self._put(status.notes_key(name, task_number), status.encode_notes(notes))

    def clear_notes(self, name: str, task_number: int) -> None:
        if (name, task_number) in self._state.notes:
            self._put(status.notes_key(name, task_number), None)

    def put_tables(self, name: str, task_number: int, tables: Sequence[TableStatus]) -> None:
        if tuple(tables) != self._state.tables.get((name, task_number), ()):
            self._put(status.tables_key(name, task_number), status.encode_tables(tables))

    def resnapshot(self, name: str, table: str) -> ResnapshotProgress | None:
        """Return the progress of the newest resnapshot of a table that has begun."""
        return self._state.resnapshots.get(name, {}).get(table)

    def put_resnapshot(self, name: str, table: str, progress: ResnapshotProgress) -> None:
        self._put(status.resnapshot_key(name, table), status.encode_resnapshot(progress))

    def remove_resnapshots(self, name: str) -> None:
        for table in list(self._state.resnapshots.get(name, ())):
            self._put(status.resnapshot_key(name, table), None)

    def put_topic(self, seen: TopicStatus) -> None:
        """Add an active topic of a connector. Later records of a known topic are ignored until the topics are reset."""
        if seen.topic not in self._state.topics.get(seen.connector, ()):
            self._put(status.topic_key(seen.connector, seen.topic), status.encode_topic(seen))

    def reset_topics(self, name: str) -> None:
        for topic in self.topics(name):
            self._put(status.topic_key(name, topic), None)

    async def close(self, deadline_seconds: float = 5.0) -> None:
        """Write the waiting statuses within the deadline, and stop."""
        await self._waiting.close(deadline_seconds)
        await self._log.close()

    def _put_status(self, key: str, seen: Status | None) -> None:
        if seen is None or seen.state is State.UNASSIGNED:
            self._owned.pop(key, None)
        else:
            self._owned[key] = seen
        self._put(key, status.encode_status(seen))

    def _put(self, key: str, value: bytes | None) -> None:
        self._state.apply(key, value)
        self._waiting.put({key: value})

    def _apply(self, key: str, value: bytes | None) -> None:
        if key in self._waiting:
            return  # an older status from this worker is read while a newer one waits
        try:
            if is_timeline_key(key):
                self._on_timeline(key, value)
                return
            own_status = self._owned.get(key)
            if own_status is not None and value is not None and value != status.encode_status(own_status):
                # Another worker contradicts this one. Only a later generation may: it has another owner.
                if status.decode_status(value).generation <= own_status.generation:
                    self._put(key, status.encode_status(own_status))
                    return
                del self._owned[key]
            self._state.apply(key, value)
        except Exception as error:  # an invalid record must not keep the worker from reading later ones
            log.error("Status topic: the record with key %.200s is ignored: %s", key, type(error).__name__)


def task_statuses(configs: ConfigStore, statuses: StatusStore, name: str) -> Sequence[tuple[int, Status]]:
    """Return the statuses of the connector's tasks, by number.

    The stored state of a task stays RUNNING while a table of it has failed: a restart, a pause and the supervision of
    the task depend on what the task does.
    """
    seen = statuses.tasks(name)
    if not any(task.has_failed_tables for _, task in seen):
        return seen
    try:
        shows_failed = parse_options(IsolationSettings, configs.state.connector_config(name) or {}).shows_failed
    except ConfigError:  # the value is invalid, or not resolved here
        shows_failed = IsolationSettings().shows_failed
    return [(task_number, task.with_failed_tables()) for task_number, task in seen] if shows_failed else seen
