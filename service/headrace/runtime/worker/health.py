"""Whether a worker makes progress, and whether it can write: what the probes of Kubernetes query.

A worker that is not live is restarted, so only what a restart repairs counts: event loops and threads that do not
answer, an engine that does not start again. Brokers, databases and storage that do not answer never count. A worker
that is not ready gets no requests; its tables are written as before.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress

from headrace.ports import EngineState, EngineStatus
from headrace.runtime.worker.worker import Worker

ANSWER_SECONDS = 60.0
"""An event loop or a pool that runs nothing for this time does not make progress."""

ENGINE_SECONDS = 300.0
"""An engine that does not run for this time, after it has run, does not start again in this process."""

_INTERVAL_SECONDS = 5.0


class WorkerHealth:
    """Checks the parts of a worker every few seconds, from its main event loop.

    ``pools`` run short work and must answer. ``beat`` calls its argument soon on the event loop of the Kafka clients.
    """

    def __init__(
        self,
        worker: Worker,
        engine: Callable[[], EngineStatus],
        pools: Mapping[str, Executor],
        beat: Callable[[Callable[[], object]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._worker = worker
        self._engine = engine
        self._pools = pools
        self._beat = beat
        self._clock = clock
        self._answered: dict[str, float] = {}
        self._has_run = False
        self._checking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._checking = asyncio.create_task(self._check(), name="health")

    async def stop(self) -> None:
        """End the checks. Idempotent."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            with suppress(asyncio.CancelledError):
                await checking

    def not_live(self) -> Sequence[str]:
        """Return why the worker makes no progress; nothing while it starts or works."""
        now, problems = self._clock(), []
        for part, answered in self._answered.items():
            if now - answered > ANSWER_SECONDS:
                problems.append(f"{part}: no answer for {now - answered:.0f} s")
        engine = self._engine()
        if self._has_run and engine.state is not EngineState.RUNNING and time.time() - engine.since > ENGINE_SECONDS:
            problems.append(f"Spark: {engine.state} for {time.time() - engine.since:.0f} s: {engine.error}")
        return problems

    def not_ready(self) -> Sequence[str]:
        """Return why the worker cannot answer requests and write tables; nothing if it can."""
        problems = [] if self._worker.ready else [self._worker.not_ready()]
        if (stage := self._worker.stuck()) is not None:
            problems.append(stage.sentence())
        engine = self._engine()
        if engine.state is not EngineState.RUNNING:
            problems.append(engine.error or f"Spark: {engine.state}")
        return [*problems, *self.not_live()]

    async def _check(self) -> None:
        self._answered = dict.fromkeys([*self._pools, "kafka"], self._clock())
        loop = asyncio.get_running_loop()
        while True:
            self._has_run = self._has_run or self._engine().state is EngineState.RUNNING
            for name, pool in self._pools.items():
                with suppress(RuntimeError):  # the pool is shut down: the worker stops
                    loop.run_in_executor(pool, self._note, name)
            self._beat(lambda: self._note("kafka"))
            await asyncio.sleep(_INTERVAL_SECONDS)

    def _note(self, part: str) -> None:
        self._answered[part] = self._clock()
