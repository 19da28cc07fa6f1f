"""One task under supervision: what Faust and asyncio do not do for us (``kafka-client.md`` sections 2.2 and 2.10).

A task that fails for a passing reason is started again with back-off and shows RESTARTING with its trace meanwhile; any
other failure makes it FAILED until somebody restarts or reconfigures it. Nothing that a task raises gets any further.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headrace.config import SinkConnectorConfig
from headrace.core.connect.lifecycle import TASK, Event, State, next_state
from headrace.core.model.errors import Retriable, remedy
from headrace.runtime.retry import retrying
from headrace.runtime.trace import render, summary
from headrace.runtime.worker import log_format

log = logging.getLogger(__name__)


class Task(Protocol):
    """What runs for one task number of a connector. All calls come on the worker's event loop, one at a time."""

    async def start(self) -> None:
        """Begin to read. Raises ConfigError, Retriable or Fatal with the cause."""

    async def stop(self) -> None:
        """Finish the write in flight, commit, leave the group. Idempotent, and safe after a failed start."""

    async def leave(self) -> None:
        """Leave the group at once, then return when the write in flight has ended. For a ``stop`` that was cancelled.

        Nothing is committed any more. Idempotent.
        """

    async def pause(self) -> None:
        """Stop reading but stay in the group; returns when what was read is written or given back."""

    async def resume(self) -> None:
        """Read again."""


class TaskFactory(Protocol):
    """Makes a task. It may call ``on_failure`` once, on the worker's event loop, when it cannot go on."""

    async def __call__(
        self,
        connector: str,
        number: int,
        config: SinkConnectorConfig,
        on_failure: Callable[[BaseException], None],
    ) -> Task:
        """Make the task without starting it."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """Deadlines of a task, in seconds."""

    start: float = 60.0
    stop: float = 60.0
    backoff: float = 60.0


class WorkerTask:
    """A task number of a connector with its state. Its methods are called one at a time; they return quickly.

    ``given`` is its configuration as it is stored; ``typed`` reads it for each start, and may raise ConfigError.
    """

    def __init__(
        self,
        connector: str,
        number: int,
        given: Mapping[str, str],
        typed: Callable[[], SinkConnectorConfig],
        factory: TaskFactory,
        supervision: Supervision,
        changed: Callable[[int, State, str | None], None],
    ) -> None:
        self.given = given
        self._typed = typed
        self.state = State.UNASSIGNED
        self.trace: str | None = None
        self._name = f"{connector}-{number}"
        self._connector = connector
        self._number = number
        self._factory = factory
        self._supervision = supervision
        self._changed = changed
        self._task: Task | None = None
        self._held = False
        self._supervisor: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Start, or go on after a pause. A failed task stays failed."""
        self._held = False
        if self._is(State.FAILED):
            return
        if self._task is not None and self._is(State.PAUSED):
            await self._task.resume()
            self._move(Event.RESUME)
        elif self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name=f"task-{self._name}")

    async def pause(self) -> None:
        """Stop reading. A task that does not run yet is not started before it is to run."""
        self._held = True
        if self._is(State.FAILED, State.PAUSED):
            return
        task = self._task
        if task is not None and self._is(State.RUNNING):
            await self._pause(task)
        if self._task is not task or not self._is(State.RUNNING):
            await self._end_supervision()
        if not self._is(State.FAILED):
            self._move(Event.PAUSE)

    def restarting(self) -> None:
        """Show that a restart has been asked for; the old trace stays until the task runs again."""
        self._move(Event.RESTART, self.trace)

    async def stop(self, event: Event) -> None:
        """End the task: permanently (DELETE), for another start (RESTART) or because the worker goes (RELEASE).

        Returns when the task cannot write any more, however long that takes: what starts in its place would write to
        the same tables.
        """
        await self._end_supervision()
        self._move(event, self.trace if event is Event.RESTART else None)

    async def _end_supervision(self) -> None:
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)

    async def _supervise(self) -> None:
        log_format.enter(self._connector, self._number)
        retry = retrying(self._supervision.backoff, self._passing)
        try:
            while not self._held:
                await retry(self._run_once)
        except Exception as error:  # the border of the task: whatever it is, it becomes the task's state
            log.error("Task %s failed and stays so until it is restarted: %s", self._name, summary(error))
            self._move(Event.FAIL, render(error))
        self._supervisor = None

    async def _run_once(self) -> None:
        """Run until a failure. It is raised, for the back-off to count, unless the task had been healthy for long."""
        clock = asyncio.get_running_loop().time
        failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def fail(error: BaseException) -> None:
            if not failure.done():
                failure.set_result(error)

        try:
            await self._start(fail)
            started = clock()
            self._move(Event.START)
            error = await failure
        finally:
            task, self._task = self._task, None
            if task is not None:
                await self._stop(task)
        if not remedy(error).retry:
            raise error
        if self._held:
            return  # it starts again when it is resumed
        if clock() - started < self._supervision.backoff:
            raise error
        self._passing(error)

    async def _start(self, fail: Callable[[BaseException], None]) -> None:
        seconds = self._supervision.start
        try:
            async with asyncio.timeout(seconds):
                self._task = await self._factory(self._connector, self._number, self._typed(), fail)
                await self._task.start()
        except TimeoutError as error:
            raise Retriable(f"Task {self._name} did not start within {seconds:g} s; look at the brokers") from error

    async def _pause(self, task: Task) -> None:
        """Let it pause, and end it where it cannot: what else is asked of the connector waits for this."""
        try:
            async with asyncio.timeout(self._supervision.stop):
                await task.pause()
        except TimeoutError:
            log.error("Task %s did not pause within %g s and is ended", self._name, self._supervision.stop)
            await self._end_supervision()

    async def _stop(self, task: Task) -> None:
        try:
            async with asyncio.timeout(self._supervision.stop):
                await task.stop()
        except TimeoutError:
            await self._leave(task)
        except Exception as error:  # a task that cannot stop must not keep the connector from going on
            log.error("Task %s could not stop cleanly: %s", self._name, summary(error))

    async def _leave(self, task: Task) -> None:
        """Give the task's topics to others, and wait for a write that takes long; its status says so."""
        waits = (
            f"Task {self._name}: waits for its write in flight, which has not ended within {self._supervision.stop:g} "
            "s; the task has left its consumer group, and nothing starts in its place before the write has ended. If "
            "it never ends, restart the worker"
        )
        log.error(waits)
        self._move(Event.RESTART, waits)
        try:
            await task.leave()
        except Exception as error:  # as above
            log.error("Task %s could not leave its group cleanly: %s", self._name, summary(error))

    def _passing(self, error: BaseException, pause: float = 0.0) -> None:
        log.warning("Task %s failed and is started again: %s", self._name, summary(error))
        self._move(Event.RESTART, render(error))

    def _is(self, *states: State) -> bool:
        return self.state in states

    def _move(self, event: Event, trace: str | None = None) -> None:
        self.state = next_state(TASK, self.state, event)
        self.trace = trace
        self._changed(self._number, self.state, trace)
