"""The worker's view of its two logs: ``ConfigStore`` (what is wanted) and ``StatusStore`` (what is seen).

Configs are written through: a caller goes on when the record has been read back. Statuses are written behind: a task
must be able to fail while Kafka is down, so the newest status of every key waits until the log takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime

from headrace.core.connect import config_state, status
from headrace.core.connect.config_state import ClusterConfigState, RestartRequest
from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.status import Status, StatusState, TopicStatus
from headrace.core.connect.table_status import TableStatus
from headrace.core.model.errors import HeadraceError
from headrace.core.model.notes import with_note
from headrace.ports import CompactedLog, FencedLog, LogRecord
from headrace.runtime.worker.worker_stage import WorkerStage, utc_now

log = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0
_AT_FIRST = TargetState.STARTED


class ConfigStore:
    """Connector configurations, target states and task configurations (Kafka Connect's ``ConfigBackingStore``)."""

    def __init__(self, log: FencedLog, now: Callable[[], datetime] = utc_now) -> None:
        self._log = log
        self._now = now
        self._changed: Callable[[str], None] | None = None
        self._level_asked: Callable[[str, str], None] = _nobody
        self._restart_asked: Callable[[str, RestartRequest], None] = _nobody
        self.state = ClusterConfigState()
        self.change: WorkerStage | None = None
        """The change in hand."""
        self._turn = asyncio.Lock()

    async def start(
        self,
        changed: Callable[[str], None],
        level_asked: Callable[[str, str], None] | None = None,
        restart_asked: Callable[[str, RestartRequest], None] | None = None,
    ) -> None:
        """Read everything, then call ``changed`` with the connector of every later record.

        ``level_asked`` gets logger and level of those that set one, ``restart_asked`` connector and flags of those that
        ask for a restart; what was asked before the start counts no more.
        """
        await self._log.start(self._apply)
        self._changed = changed
        self._level_asked = level_asked or _nobody
        self._restart_asked = restart_asked or _nobody

    @asynccontextmanager
    async def changing(self, what: str) -> AsyncIterator[None]:
        """Make one change at a time: what follows from ``state`` in the block still holds when it is written."""
        async with self._turn:
            self.change = WorkerStage(what, self._now())
            try:
                yield
            finally:
                self.change = None

    async def lead(self) -> None:
        """Shut out whoever wrote before. Raises Retriable, ConfigError or Fatal."""
        await self._log.lead()

    async def catch_up(self) -> None:
        """Read to the end. Raises Retriable."""
        await self._log.refresh()

    def position(self) -> int:
        """How far the topic has been read."""
        return self._log.position()

    async def put_connector(self, name: str, config: Mapping[str, str], target: TargetState | None = None) -> None:
        """Create or change a connector; ``target`` for a new one that does not start at once. Raises Retriable.

        A new one starts, whatever a creation or a removal that was cut half way has left of its name.
        """
        if target is None and name not in self.state.connectors() and self.state.target_state(name) != _AT_FIRST:
            target = _AT_FIRST
        await self._log.append(config_state.connector_records(name, config, target))

    async def remove_connector(self, name: str) -> None:
        """Forget a connector, its target state and its tasks. Raises Retriable."""
        tasks = len(self.state.task_configs(name))
        await self._log.append(config_state.removal_records(name, tasks))

    async def put_target_state(self, name: str, target: TargetState) -> None:
        """Say what is wanted of a connector. Raises Retriable."""
        await self._log.append([config_state.target_state_record(name, target)])

    async def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Replace the connector's tasks. Raises Retriable."""
        await self._log.append(config_state.task_records(name, configs))

    async def put_logger_level(self, logger: str, level: str) -> None:
        """Have every worker set a logger. Raises Retriable."""
        await self._log.append([config_state.logger_level_record(logger, level)])

    async def ask_restart(self, name: str, request: RestartRequest) -> None:
        """Have every worker restart its part of a connector. Raises Retriable."""
        await self._log.append([config_state.restart_record(name, request)])

    async def close(self) -> None:
        """Stop reading."""
        self._changed, self._level_asked, self._restart_asked = None, _nobody, _nobody
        await self._log.close()

    def _apply(self, key: str, value: bytes | None) -> None:
        try:
            name = self.state.apply(key, value)
            level = config_state.logger_level(key, value)
            restart = config_state.restart_request(key, value)
        except Exception as error:  # whatever a record holds, the worker has to read what comes after it
            log.error("Config topic: the record with key %.200s is ignored: %s", key, type(error).__name__)
            return
        if name is not None and self._changed is not None:
            self._changed(name)
        if level is not None:
            self._level_asked(*level)
        if restart is not None:
            self._restart_asked(*restart)


def _nobody(subject: str, asked: object) -> None:
    """Nobody listens yet."""


class StatusStore:
    """Statuses of connectors, tasks and topics (``StatusBackingStore``). What was put is read at once.

    Workers that share the log may speak of the same task: one lets go of it, or does not know yet that it has lost it.
    Who has put a state that is not UNASSIGNED stands for it, and says it again when somebody of no later generation
    says something else; so the last word is the owner's, however late others' words come.
    """

    def __init__(self, log: CompactedLog) -> None:
        self._log = log
        self._state = StatusState()
        self._waiting: dict[str, bytes | None] = {}
        self._stands: dict[str, Status] = {}
        self._wake = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read everything and begin to write."""
        await self._log.start(self._apply)
        self._writer = asyncio.create_task(self._write_forever(), name="status-writer")

    def connector(self, name: str) -> Status | None:
        """The connector's status, None if nothing is known of it."""
        return self._state.connectors.get(name)

    def task(self, name: str, number: int) -> Status | None:
        """The task's status with its notes and tables, None if nothing is known of it."""
        task = name, number
        seen = self._state.tasks.get(task)
        if seen is None:
            return None
        return replace(seen, notes=self._state.notes.get(task, {}), tables=self._state.tables.get(task, ()))

    def tasks(self, name: str) -> list[tuple[int, Status]]:
        """The statuses of the connector's tasks, by number."""
        numbers = sorted(number for owner, number in self._state.tasks if owner == name)
        return [(number, seen) for number in numbers if (seen := self.task(name, number)) is not None]

    def topics(self, name: str) -> list[str]:
        """The topics that the connector has read from."""
        return [topic for (owner, topic) in self._state.topics if owner == name]

    def connectors(self) -> list[str]:
        """Every connector with a status."""
        return list(self._state.connectors)

    def put_connector(self, name: str, seen: Status | None) -> None:
        """Set or remove the connector's status."""
        self._put_status(status.connector_key(name), seen)

    def put_task(self, name: str, number: int, seen: Status | None) -> None:
        """Set or remove the task's status. Its notes and tables go with it, and stay when it changes."""
        self._put_status(status.task_key(name, number), seen)
        if seen is None:
            self.forget_notes(name, number)
            self.put_tables(name, number, ())

    def note(self, name: str, number: int, text: str, place: str) -> None:
        """Add to the task's notes."""
        known = self._state.notes.get((name, number), {})
        notes = with_note(known, text, place)
        if notes != known:
            self._put(status.notes_key(name, number), status.encode_notes(notes))

    def forget_notes(self, name: str, number: int) -> None:
        """Start the task's notes afresh."""
        if (name, number) in self._state.notes:
            self._put(status.notes_key(name, number), None)

    def put_tables(self, name: str, number: int, tables: Sequence[TableStatus]) -> None:
        """Set the states of the task's tables, of those that do not run."""
        if tuple(tables) != self._state.tables.get((name, number), ()):
            self._put(status.tables_key(name, number), status.encode_tables(tables))

    def put_topic(self, seen: TopicStatus) -> None:
        """Note that a connector reads from a topic. The first word counts, until the list is started afresh."""
        if (seen.connector, seen.topic) not in self._state.topics:
            self._put(status.topic_key(seen.connector, seen.topic), status.encode_topic(seen))

    def forget_topics(self, name: str) -> None:
        """Start the list of the connector's topics afresh."""
        for topic in self.topics(name):
            self._put(status.topic_key(name, topic), None)

    async def close(self, deadline_seconds: float = 5.0) -> None:
        """Write what waits, if the log takes it in time, and stop."""
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._write_waiting()
        except (TimeoutError, HeadraceError) as error:
            log.warning("%d statuses could not be written: %s", len(self._waiting), error)
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        await self._log.close()

    def _put_status(self, key: str, seen: Status | None) -> None:
        if seen is None or seen.state is State.UNASSIGNED:
            self._stands.pop(key, None)
        else:
            self._stands[key] = seen
        self._put(key, status.encode_status(seen))

    def _put(self, key: str, value: bytes | None) -> None:
        self._state.apply(key, value)
        self._waiting[key] = value
        self._wake.set()

    def _apply(self, key: str, value: bytes | None) -> None:
        if key in self._waiting:
            return  # an older status of our own comes back while a newer one waits
        try:
            if self._contradicts(key, value):
                self._put(key, status.encode_status(self._stands[key]))
            else:
                self._state.apply(key, value)
        except Exception as error:  # as above
            log.error("Status topic: the record with key %.200s is ignored: %s", key, type(error).__name__)

    def _contradicts(self, key: str, value: bytes | None) -> bool:
        """Whether a record says something else than we stand for. Of a later generation it is right, and we are not."""
        mine = self._stands.get(key)
        if mine is None or value is None or value == status.encode_status(mine):
            return False
        if status.decode_status(value).generation > mine.generation:
            del self._stands[key]
            return False
        return True

    async def _write_forever(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._write_waiting()
            except HeadraceError as error:
                log.warning("Statuses wait: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _write_waiting(self) -> None:
        while batch := dict(self._waiting):
            records: list[LogRecord] = list(batch.items())
            await self._log.append(records)
            for key, value in batch.items():
                if self._waiting.get(key, _GONE) == value:
                    del self._waiting[key]


_GONE: bytes = b"\x00gone"
"""Differs from every value, and from the None of a removal."""
