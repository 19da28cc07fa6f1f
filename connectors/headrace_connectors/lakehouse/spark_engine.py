"""Starts Spark, watches it, and starts it again.

The JVM may exit (out of memory, the kernel's OOM killer), stop answering (a stopped process, a collector that works
without end), or a statement may wait for a storage that does not answer. In the first two cases a new JVM replaces it.
In the third case the statement is cancelled, and the JVM is replaced only if that does not help. Calls that are in
progress fail with EngineFailed or TimedOut, which are retried: the lane of each table opens the table again, in the new
session.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from headrace.config.engine import EngineSettings
from headrace.core.model.errors import EngineFailed, EngineOutOfMemory, HeadraceError, TimedOut
from headrace.ports import EngineState, EngineStatus
from headrace_connectors.lakehouse.failures import lost_connection
from headrace_connectors.lakehouse.spark_jvm import SparkJvm, abandon, new_session

log = logging.getLogger(__name__)

_TICK_SECONDS = 1.0
_PING_SECONDS = 2.0
_CANCEL_SECONDS = 10.0
"""A cancelled job ends within a second, unless the JVM waits outside of Spark's tasks, as in a commit."""
STOP_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 30.0


@dataclass(eq=False, slots=True)
class _Statement:
    """A call that a thread waits for. ``tasks`` is the number of Spark tasks that had ended at ``progress``."""

    table: str
    session: Any
    progress: float
    tasks: int = 0
    cancelled: float | None = None


@dataclass(eq=False, slots=True)
class _Running:
    """A started JVM with its session.

    ``answered`` is the time of its last answer, ``silent`` the seconds without one, ``killed`` the reason for which the
    watchdog has killed it.
    """

    jvm: SparkJvm
    session: Any
    answered: float = field(default_factory=time.monotonic)
    silent: float = 0.0
    killed: str = ""

    def kill(self, reason: str) -> None:
        self.killed = reason
        self.jvm.kill()

    def end(self) -> str:
        """Return that the JVM has ended, and why."""
        return f"Spark's JVM (pid {self.jvm.pid}) has ended: {self.killed or self.jvm.cause()}"


class SparkEngine:
    """One Spark session in a JVM of its own. All methods are thread-safe.

    ``settings`` are those of Spark, ``variables`` the environment of the JVM.
    """

    def __init__(self, settings: Mapping[str, str], variables: Mapping[str, str], limits: EngineSettings) -> None:
        self._settings = settings
        self._variables = variables
        self._limits = limits
        self._starting = threading.Lock()
        self._running: _Running | None = None
        self._statements: set[_Statement] = set()
        self._status = EngineStatus(EngineState.STOPPED, time.time())
        self._watchdog: threading.Thread | None = None
        self._closed = threading.Event()

    @property
    def status(self) -> EngineStatus:
        """The state of Spark, since when, and the last error while it does not run."""
        return self._status

    def session(self) -> Any:
        """Return the session; start Spark if it does not run. Raises Retriable or ConfigError if it does not start."""
        with self._starting:
            if self._closed.is_set():
                raise EngineFailed("Spark: is stopped, because the worker stops")
            ended = self._running
            if ended is not None and ended.jvm.has_ended:
                self._running = None
                reason = ended.end()
                log.error("%s. It is started again", reason)
                self._move(EngineState.FAILED, reason)
                abandon(ended.session)
            if self._running is None:
                self._running = self._start()
            return self._running.session

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Stop Spark, and kill its JVM if that does not end in time, or is not ready yet. Idempotent.

        It leaves no process, also if it has ended, is stopped or hangs. ``seconds`` are for stopping, and for the end.
        """
        self._closed.set()
        watchdog, self._watchdog = self._watchdog, None
        if watchdog is not None and watchdog is not threading.current_thread():
            watchdog.join(STOP_SECONDS)
        with self._starting:
            running, self._running = self._running, None
            if running is not None:
                stopping = threading.Thread(target=_stop, args=(running.session,), name="spark-stop", daemon=True)
                stopping.start()
                stopping.join(seconds)
                running.jvm.end(0 if stopping.is_alive() else seconds)
                abandon(running.session)
            self._move(EngineState.STOPPED)

    @contextmanager
    def statement(self, table: str, session: Any) -> Iterator[None]:
        """Watch the calls of the block, which ``table`` makes in ``session``.

        Raises TimedOut if they were cancelled because they made no progress for ``statement.timeout.ms``, and
        EngineFailed with the cause if the JVM has ended (EngineOutOfMemory for lack of memory).
        """
        statement, running = _Statement(table, session, time.monotonic()), self._running
        if running is not None and session._jvm is not running.session._jvm:
            running = None  # the session is one of an earlier JVM, whose end is known
        self._statements.add(statement)
        try:
            yield
        except Exception as error:
            if statement.cancelled is None and lost_connection(error) and running is not None:
                end = running.end()  # waits for the exit code
                failure = EngineOutOfMemory if running.jvm.ran_out_of_memory else EngineFailed
                raise failure(f"{table}: {end}; Spark is started again") from error
            if statement.cancelled is None:
                raise
            seconds = self._limits.statement_timeout
            raise TimedOut(
                f"{table}: a statement of Spark made no progress for {seconds:g} s (statement.timeout.ms) and was "
                "cancelled; check that the warehouse's storage and catalog answer"
            ) from error
        finally:
            self._statements.discard(statement)

    # -- start and end of the JVM --------------------------------------------------------------------------------------

    def _start(self) -> _Running:
        self._move(EngineState.STARTING, self._status.error)
        try:
            jvm, session = new_session(self._settings, self._variables, self._closed)
        except HeadraceError as error:
            self._move(EngineState.FAILED, str(error))
            raise
        log.info("Spark: started (pid %d, %s)", jvm.pid, self._settings["spark.master"])
        running = _Running(jvm, session)
        threading.Thread(target=self._ping, args=(running,), name="spark-ping", daemon=True).start()
        if self._watchdog is None:
            self._watchdog = threading.Thread(target=self._watch, name="spark-watchdog", daemon=True)
            self._watchdog.start()
        self._move(EngineState.RUNNING)
        return running

    def _move(self, state: EngineState, error: str = "") -> None:
        before, running = self._status, EngineState.RUNNING
        since = before.since if running not in (before.state, state) else time.time()
        restarts = before.restarts + (state is running and bool(before.error))
        self._status = EngineStatus(state, since, error, restarts)

    # -- the watchdog --------------------------------------------------------------------------------------------------

    def _ping(self, running: _Running) -> None:
        """Request the time from the JVM at intervals, until it has ended."""
        with suppress(Exception):  # the connection has ended
            # py4j queries the JVM for a member at each access.
            nano_time = running.session._jvm.java.lang.System.nanoTime
            while not self._closed.wait(_PING_SECONDS):
                nano_time()
                running.answered = time.monotonic()

    def _watch(self) -> None:
        before, failures = time.monotonic(), 0
        while not self._closed.wait(min(_TICK_SECONDS * 2**failures, _LONGEST_PAUSE_SECONDS)):
            now = time.monotonic()
            # A pause of the worker itself (a stopped process, a suspended machine) is no silence of the JVM.
            awake, before = min(now - before, 2 * _TICK_SECONDS), now
            running = self._running
            if running is not None and not running.jvm.has_ended:
                answers = now - running.answered < _PING_SECONDS + _TICK_SECONDS
                running.silent = 0.0 if answers else running.silent + awake
                if running.silent > self._limits.hang_timeout:
                    running.kill(f"it had not answered for {running.silent:.0f} s (jvm.hang.timeout.ms) and was killed")
                self._check_statements(running, now)
            try:
                self.session()
                failures = 0
            except HeadraceError as error:
                if not self._closed.is_set():
                    failures += 1
                    log.error("Spark: is not started again: %s", error)

    def _check_statements(self, running: _Running, now: float) -> None:
        for statement in list(self._statements):
            if statement.cancelled is not None:
                if now - statement.cancelled > _CANCEL_SECONDS:
                    running.kill(f"a cancelled statement of {statement.table} did not end, and the JVM was killed")
            elif now - statement.progress > self._limits.statement_timeout:
                threading.Thread(target=self._cancel, args=(statement,), name="spark-cancel", daemon=True).start()
                statement.progress = now

    def _cancel(self, statement: _Statement) -> None:
        """Cancel a statement, unless one of its tasks has ended since the last time."""
        with suppress(Exception):  # the JVM has ended, or the statement
            tasks = _ended_tasks(statement.session)
            if tasks > statement.tasks:
                statement.tasks = tasks
                return
            log.error(
                "%s: a statement of Spark made no progress for %g s (statement.timeout.ms) and is cancelled",
                statement.table,
                self._limits.statement_timeout,
            )
            statement.cancelled = time.monotonic()
            statement.session.interruptAll()


def _ended_tasks(session: Any) -> int:
    """Return the number of ended tasks of the jobs that run in a session."""
    tracker = session.sparkContext._jsc.sc().statusTracker()
    ended = 0
    for job in tracker.getJobIdsForTag(session._jsparkSession.sessionJobTag()):
        info = tracker.getJobInfo(job)
        for stage in info.get().stageIds() if info.isDefined() else ():
            stage_info = tracker.getStageInfo(stage)
            ended += stage_info.get().numCompletedTasks() if stage_info.isDefined() else 0
    return ended


def _stop(session: Any) -> None:
    with suppress(Exception):  # the JVM has ended
        session.stop()
