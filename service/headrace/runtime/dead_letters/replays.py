"""The replays of dead letters that REST requests begin. The leader runs them, beside its tasks, with its Spark session.

The state of a replay is in the config topic (``core/connect/dead_letters.py``). Every worker pauses its tasks of the
connector while that record requires it, and resumes them afterwards as the connector's target state requires. If the
leader is killed, its successor, or the same worker after its restart, ends the replay when it aligns the connector
(``runtime/worker/worker_connector.py``). A leader that is not the leader any more stops to send at the next letters.
Letters that were sent already are durable, and sent again without an effect. So a replay can be cancelled: the write in
flight ends, and the tasks resume.

Tests: ``tests/rest/test_dead_letters.py``, ``tests/integration/test_dead_letters_over_rest.py``.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.config import SinkConnectorConfig
from headrace.core.connect.dead_letters import MOST_REFUSED, RefusedLetter, Replay, ReplayState
from headrace.core.connect.lifecycle import State
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import ConfigError, Fatal, HeadraceError, RestError, Retriable
from headrace.ports import ErrantRecord, ReplayFeeds
from headrace.runtime.dead_letters.letters import (
    LetterFilter,
    check_queue,
    letters_to_send,
    listing,
    oldest,
    survey,
)
from headrace.runtime.dead_letters.replay import Edges, replay
from headrace.runtime.task.flow_control import MemoryBudget
from headrace.runtime.threads import WorkerThreads
from headrace.runtime.trace import render, summary
from headrace.runtime.worker.herder import Herder, replay_runs
from headrace.runtime.worker.timeline import current_trigger
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

_PAUSE_SECONDS = 60.0
"""The time in which tasks must finish their writes in flight."""
_POLL_SECONDS = 0.2
_END_ATTEMPTS = 5
_RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class ReplayParts:
    """What replays share with the tasks of their worker."""

    feeds: ReplayFeeds
    edges: Edges
    threads: WorkerThreads
    memory: MemoryBudget


@dataclass(slots=True)
class _Run:
    """A replay of this process. ``sending`` does the work, and ``ending`` stores what comes of it."""

    shown: Replay
    sending: asyncio.Task[Replay]
    ending: asyncio.Task[None] | None = None
    is_cancelled: bool = False


class DeadLetters:
    """The dead letters of the cluster's connectors, as this worker answers for them. Of one event loop."""

    def __init__(self, worker: Worker, herder: Herder, parts: ReplayParts) -> None:
        self._worker = worker
        self._herder = herder
        self._parts = parts
        self._running: dict[str, _Run] = {}

    async def listing(self, name: str, wanted: LetterFilter) -> Mapping[str, Any]:
        """Return counts and the newest letters as JSON.

        Raises RestError: 404 for an unknown connector, 400 if it has no queue, 503 if the brokers do not answer.
        """
        sink = self._sink(name)
        try:
            return await listing(self._parts.feeds, sink, self._since(sink, old=False), wanted)
        except ConfigError as error:
            raise RestError(str(error), 400) from error
        except HeadraceError as error:
            raise RestError(f"The dead letters of connector {name} cannot be read: {error}", 503) from error

    def replay(self, name: str) -> Replay | None:
        """Return the last replay of the connector, with the progress of one that runs.

        None if there was none. Raises RestError 404, and RequestTargetError if another worker is the leader.
        """
        stored = self._herder.replay(name)
        self._worker.cluster.check_leader()
        if name in self._running:
            return self._running[name].shown
        return stored

    async def begin(self, name: str, *, dry_run: bool, old: bool) -> Replay:
        """Begin a replay, and return it. A dry run only counts the letters.

        Raises RestError: 404 for an unknown connector, 400 if it has no queue, 409 while another replay runs, and
        RequestTargetError if another worker is the leader.
        """
        sink = self._sink(name)
        if name in self._running:  # also one of an earlier connector with this name, which ends soon
            raise replay_runs(name)
        run = uuid.uuid4().hex
        began = Replay(run, self._worker.worker_id, dry_run, old, self._now())
        self._worker.replays.add(run)  # before it is stored: the connector must not end it
        try:
            await self._herder.put_replay(name, began, begins=True)
        except BaseException:
            self._release(name, run)
            raise
        replayed = _Run(began, asyncio.create_task(self._replay(sink), name=f"send-{name}"))
        self._running[name] = replayed
        replayed.ending = asyncio.create_task(self._run(name, replayed), name=f"replay-{name}")
        return began

    def cancel(self, name: str) -> Replay:
        """Cancel the replay that runs, and return it. It ends when the write in flight has ended. Idempotent.

        Raises RestError 404: for an unknown connector, and if its last replay has ended otherwise; and
        RequestTargetError if another worker is the leader.
        """
        replay = self.replay(name)
        if replay is None or not (replay.is_running or replay.state is ReplayState.CANCELLED):
            raise RestError(f"No replay of the dead letters of connector {name} is running", 404)
        running = self._running.get(name)
        if running is not None and not running.is_cancelled:  # another cancellation would interrupt the end
            running.is_cancelled = True
            running.sending.cancel()
        return replay

    async def stop(self) -> None:
        """Cancel the replays that run. The next leader ends them in the config topic."""
        tasks = [running.ending for running in self._running.values() if running.ending is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _sink(self, name: str) -> SinkConnectorConfig:
        """Raises RestError 404 and 400."""
        config = self._herder.config(name)
        try:
            sink = self._worker.connector_class.resolve(config, f"Connector {name}")
            check_queue(sink)
        except ConfigError as error:
            raise RestError(str(error), 400) from error
        return sink

    def _now(self) -> float:
        return self._worker.now().timestamp()

    def _since(self, sink: SinkConnectorConfig, *, old: bool) -> int:
        return 0 if old else oldest(sink, self._now())

    async def _run(self, name: str, running: _Run) -> None:
        """Wait for the end of a replay, and store the result. Raises CancelledError if the worker stops."""
        try:
            ended = replace(await running.sending, state=ReplayState.DONE, pauses=False, ended=self._now())
        except asyncio.CancelledError:
            if not running.is_cancelled:
                log.warning("Connector %s: the replay of its dead letters ends because the worker stops", name)
                raise
            ended = running.shown.with_cancellation(self._now())
        except Exception as error:  # whatever it is, the connector must resume
            if not isinstance(error, HeadraceError):
                log.error("Connector %s: the replay of its dead letters failed: %s", name, render(error))
            ended = running.shown.with_failure(self._now(), summary(error))
        log.info(
            "Connector %s: the replay of its dead letters is %s: %d sent, %d refused%s",
            *(name, ended.state, ended.sent, ended.refused_count, f": {ended.error}" if ended.error else ""),
        )
        try:
            if await self._has_stored_end(name, ended) and not ended.dry_run:
                self._worker.timeline.record(Kind.LETTERS_REPLAYED, name, ended.result, trigger=current_trigger())
        finally:
            del self._running[name]
            self._release(name, ended.run)

    def _release(self, name: str, run: str) -> None:
        """Let the connector end the replay if it is stored as running."""
        self._worker.replays.discard(run)
        if (connector := self._worker.connector(name)) is not None:
            connector.on_change()

    async def _has_stored_end(self, name: str, ended: Replay) -> bool:
        """Store the result, unless another leader has. If that fails, the connector ends the replay, without it."""
        for _ in range(_END_ATTEMPTS):
            if not self._is_stored_as_running(name, ended.run):
                return False
            try:
                await self._herder.put_replay(name, ended)
            except RestError as error:
                log.warning("Connector %s: the end of the replay is not stored yet: %s", name, error)
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                return True
        return False

    def _is_stored_as_running(self, name: str, run: str) -> bool:
        """Return False if another leader has ended the replay, or if the connector was deleted."""
        stored = self._worker.configs.state.replay(name)
        return stored is not None and stored.run == run and stored.is_running

    async def _replay(self, sink: SinkConnectorConfig) -> Replay:
        """Return the replay with its result. Raises HeadraceError, and what ends a task."""
        name, parts = sink.name, self._parts
        running = self._running[name]
        since = self._since(sink, old=running.shown.old)
        counts = await survey(parts.feeds, sink, since)
        running.shown = replace(running.shown, counts=counts.document())
        if running.shown.dry_run or not counts.count:
            return running.shown
        pausing = replace(running.shown, pauses=True)
        # A transaction that is cancelled on its way would end this worker's time as the leader.
        await asyncio.shield(self._herder.put_replay(name, pausing))
        running.shown = pausing
        await self._until_paused(name)
        on_sent = partial(self._on_sent, name)
        async with aclosing(letters_to_send(parts.feeds, sink, since)) as letters:
            await replay(sink, letters, parts.edges, parts.threads, on_sent, parts.memory)
        return running.shown

    async def _until_paused(self, name: str) -> None:
        """Wait until no task of the connector writes, on any worker. Raises Retriable and Fatal."""
        deadline = time.monotonic() + _PAUSE_SECONDS
        while True:
            self._check_not_ended(name)
            running = [number for number, seen in self._worker.statuses.tasks(name) if seen.state is State.RUNNING]
            if not running:
                return
            if time.monotonic() > deadline:
                raise Retriable(
                    f"task {name}-{running[0]} has not finished its write within {_PAUSE_SECONDS:g} s; no letter was "
                    "sent: replay them again later"
                )
            await asyncio.sleep(_POLL_SECONDS)

    def _on_sent(self, name: str, count: int, refused: Sequence[ErrantRecord]) -> None:
        """Add to the letters that were sent. Raises Fatal if another leader has ended the replay."""
        running = self._running[name]
        running.shown = replace(
            running.shown,
            sent=running.shown.sent + count,
            refused=tuple(map(_refused_letter, refused[:MOST_REFUSED])),
            refused_count=len(refused),
        )
        self._check_not_ended(name)

    def _check_not_ended(self, name: str) -> None:
        if not self._is_stored_as_running(name, self._running[name].shown.run):
            raise Fatal("the connector was deleted, or another worker is the leader now; replay the letters again")


def _refused_letter(errant: ErrantRecord) -> RefusedLetter:
    record = errant.record
    return RefusedLetter(record.topic, record.partition, record.offset, str(errant.stage), summary(errant.error))
