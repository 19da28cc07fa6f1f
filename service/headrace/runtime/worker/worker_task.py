"""The supervision of one task, which Faust and asyncio do not provide (``kafka-client.md`` sections 2.2 and 2.10).

After a retriable error the task is started again with back-off and is RESTARTING, with its trace, until it runs. Any
other error makes it FAILED until a request restarts or reconfigures it. No error of a task leaves this module.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from headrace.config import SinkConnectorConfig
from headrace.core.connect.lifecycle import TASK, Event, State, next_state
from headrace.core.connect.paused_tables import PausedTables
from headrace.core.connect.status import TableReport
from headrace.core.model.errors import Retriable, remedy
from headrace.runtime.retry import retrying
from headrace.runtime.trace import render, summary
from headrace.runtime.worker import log_format

log = logging.getLogger(__name__)


class Task(Protocol):
    """A running task of a connector. The methods are called on the worker's event loop, one at a time.

    ``waits_for`` is what ``start`` waits for at present.
    """

    waits_for: str

    async def start(self) -> None:
        """Start reading. Raises ConfigError, Retriable or Fatal."""

    async def stop(self) -> None:
        """Finish the write in flight, commit, leave the group. Idempotent, also after a failed start."""

    async def leave(self) -> None:
        """Leave the group at once without a commit, then wait for the write in flight. Idempotent.

        Called after a ``stop`` that was cancelled.
        """

    async def pause(self) -> None:
        """Stop reading but stay in the group. Return when the records read are written or will be read again."""

    async def resume(self) -> None:
        """Continue reading after a pause."""

    def reports(self) -> Sequence[TableReport]:
        """Return what is known of each table."""

    def topics(self) -> Collection[str]:
        """Return the topics that the group has assigned to the task."""

    def restart_table(self, table: str, *, recreate: bool = False) -> bool:
        """Restart a table. Return False for a table that the task does not have.

        With ``recreate`` a table that is missing, or behind the group, continues at the group's offsets.
        """

    def set_paused_tables(self, paused: PausedTables) -> None:
        """Pause exactly these tables of the connector, also before ``start``."""


class TaskFactory(Protocol):
    """Creates tasks. A task may call ``on_failure`` once, on the worker's event loop, when it cannot continue."""

    async def __call__(
        self,
        connector: str,
        task_number: int,
        config: SinkConnectorConfig,
        on_failure: Callable[[BaseException], None],
        /,
    ) -> Task:
        """Create the task without starting it."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """Deadlines of a task, in seconds."""

    start: float = 60.0
    stop: float = 60.0
    backoff: float = 60.0


class WorkerTask:
    """A task of a connector, with its state. The methods are called one at a time and return quickly.

    ``given`` is the stored configuration. ``typed`` parses it for each start, and may raise ConfigError.
    """

    def __init__(
        self,
        connector: str,
        task_number: int,
        given: Mapping[str, str],
        typed: Callable[[], Awaitable[SinkConnectorConfig]],
        factory: TaskFactory,
        supervision: Supervision,
        changed: Callable[[int, State, str | None], None],
    ) -> None:
        self.given = given
        self._typed = typed
        self.state = State.UNASSIGNED
        self.trace: str | None = None
        self._name = f"{connector}-{task_number}"
        self._connector = connector
        self._task_number = task_number
        self._factory = factory
        self._supervision = supervision
        self._changed = changed
        self._task: Task | None = None
        self._held = False
        self._paused_tables: PausedTables = {}
        self._supervisor: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        """The stop of a task that has failed or was cancelled. Nothing cancels it: half a stop would leave a member in
        the consumer group, and agents that run until the process ends."""

    async def run(self) -> None:
        """Start the task, or resume it after a pause. A FAILED task stays FAILED."""
        self._held = False
        if self._is(State.FAILED):
            return
        if self._task is not None and self._is(State.PAUSED):
            await self._task.resume()
            self._move(Event.RESUME)
        elif self._supervisor is None:
            self._supervisor = asyncio.create_task(self._supervise(), name=f"task-{self._name}")

    async def pause(self) -> None:
        """Pause the task. A task that does not run yet is not started before ``run``."""
        self._held = True
        if self._is(State.FAILED, State.PAUSED):
            return
        task = self._task
        if task is not None and self._is(State.RUNNING):
            try:
                async with asyncio.timeout(self._supervision.stop):  # other requests for the connector wait
                    await task.pause()
            except TimeoutError:
                log.error("Task %s: did not pause within %g s and is ended", self._name, self._supervision.stop)
                await self._end_supervision()
        if self._task is not task or not self._is(State.RUNNING):
            await self._end_supervision()
        if not self._is(State.FAILED):
            self._move(Event.PAUSE)

    def reports(self) -> Sequence[TableReport]:
        """Return what is known of the tables of the task; nothing of a task that does not run."""
        return self._task.reports() if self._task is not None else ()

    def topics(self) -> Collection[str]:
        """Return the topics that the group has assigned to the task; none of a task that does not run."""
        return self._task.topics() if self._task is not None and self._is(State.RUNNING) else ()

    def restart_table(self, table: str, *, recreate: bool = False) -> bool:
        return self._task is not None and self._task.restart_table(table, recreate=recreate)

    def set_paused_tables(self, paused: PausedTables) -> None:
        """Pause exactly these tables, now and in later runs of the task."""
        if paused != self._paused_tables:
            self._paused_tables = paused
            if self._task is not None:
                self._task.set_paused_tables(paused)

    def restarting(self) -> None:
        """Set the state RESTARTING. The old trace stays until the task runs again."""
        self._move(Event.RESTART, self.trace)

    async def stop(self, event: Event) -> None:
        """End the task: permanently (DELETE), for another start (RESTART) or because the worker stops (RELEASE).

        Returns when the task cannot write any more, without a time limit, because its successor writes to the same
        tables. After a call that was cancelled, another one waits for the same end.
        """
        await self._end_supervision()
        self._move(event, self.trace if event is Event.RESTART else None)

    async def _end_supervision(self) -> None:
        if (supervisor := self._supervisor) is not None:
            supervisor.cancel()
            await asyncio.wait({supervisor})
            self._supervisor = None
        if self._ending is not None:
            await asyncio.wait({self._ending})

    async def _supervise(self) -> None:
        log_format.enter(self._connector, self._task_number)
        retry = retrying(self._supervision.backoff, self._report_restart)
        try:
            while not self._held:
                await retry(self._run_once)
        except Exception as error:  # any error of a task makes it FAILED and must not stop the worker
            log.error("Task %s: failed, and stays FAILED until it is restarted: %s", self._name, summary(error))
            self._move(Event.FAIL, render(error))
        self._supervisor = None

    async def _run_once(self) -> None:
        """Run until an error. Raise it, so that the back-off grows, unless the task ran longer than the back-off."""
        clock = asyncio.get_running_loop().time
        failure: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

        def fail(error: BaseException) -> None:
            if not failure.done():
                failure.set_result(error)

        try:
            config = await self._typed()
            try:
                async with asyncio.timeout(self._supervision.start):
                    self._task = await self._factory(self._connector, self._task_number, config, fail)
                    self._task.set_paused_tables(self._paused_tables)
                    await self._task.start()
            except TimeoutError as timeout:
                waits_for = self._task.waits_for if self._task is not None else "the brokers of its dead letter queue"
                raise Retriable(
                    f"Task {self._name}: did not start within {self._supervision.start:g} s (task.start.timeout.ms): "
                    f"it waited for {waits_for}; check that it works"
                ) from timeout
            started = clock()
            self._move(Event.START)
            error = await failure
        finally:
            task, self._task = self._task, None
            if task is not None:
                self._ending = asyncio.create_task(self._stop(task), name=f"stop-{self._name}")
                await asyncio.shield(self._ending)
        if not remedy(error).retry:
            raise error
        if self._held:
            return  # ``run`` starts it again
        if clock() - started < self._supervision.backoff:
            raise error
        self._report_restart(error)

    async def _stop(self, task: Task) -> None:
        """Stop the task. After the time limit release its topics to the group, and wait for the write in flight."""
        try:
            async with asyncio.timeout(self._supervision.stop):
                await task.stop()
        except TimeoutError:
            reason = (
                f"Task {self._name}: waits for its write in flight, which has not ended within "
                f"{self._supervision.stop:g} s; the task has left its consumer group, and is not started again before "
                "the write has ended. If the write never ends, restart the worker"
            )
            log.error(reason)
            self._move(Event.RESTART, reason)
            try:
                await task.leave()
            except Exception as error:  # a task that cannot leave must not block the connector
                log.error("Task %s: an error while it left its group: %s", self._name, summary(error))
        except Exception as error:  # a task that cannot stop must not block the connector
            log.error("Task %s: an error while it stopped: %s", self._name, summary(error))

    def _report_restart(self, error: BaseException, pause: float = 0.0) -> None:
        log.warning("Task %s: failed and is started again: %s", self._name, summary(error))
        self._move(Event.RESTART, render(error))

    def _is(self, *states: State) -> bool:
        return self.state in states

    def _move(self, event: Event, trace: str | None = None) -> None:
        self.state = next_state(TASK, self.state, event)
        self.trace = trace
        self._changed(self._task_number, self.state, trace)
