"""Which parts make a worker not live or not ready, and for how long."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.clock import Clock
from support.fix_asyncio import eventually
from support.rest.worker_api import Api

from headrace.ports import EngineState, EngineStatus
from headrace.runtime.worker.health import ANSWER_SECONDS, ENGINE_SECONDS, WorkerHealth

pytestmark = pytest.mark.anyio


class Engine:
    """An engine whose status the test sets."""

    status = EngineStatus(EngineState.RUNNING, 0.0)

    def __call__(self) -> EngineStatus:
        return self.status


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """A pool with one thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


async def test_a_pool_that_runs_nothing_is_not_live(pool: ThreadPoolExecutor) -> None:
    """The message names the part. A short delay does not count."""
    clock, release = Clock(), threading.Event()
    health = WorkerHealth(Api().worker, Engine(), {"decoding threads": pool}, lambda call: call(), clock)
    pool.submit(release.wait)
    health.start()
    await asyncio.sleep(0)
    clock.now = ANSWER_SECONDS - 1
    assert not [problem for problem in health.not_live() if "threads" in problem]
    clock.now = ANSWER_SECONDS + 1
    assert "decoding threads: no answer for 61 s" in health.not_live()
    release.set()
    await eventually(lambda: not [problem for problem in health.not_live() if "threads" in problem])
    await health.stop()


async def test_a_blocked_kafka_thread_is_not_live() -> None:
    """Without it no table gets changes."""
    clock = Clock()
    health = WorkerHealth(Api().worker, Engine(), {}, lambda call: None, clock)
    health.start()
    await asyncio.sleep(0)
    clock.now = ANSWER_SECONDS + 1
    assert health.not_live() == ["kafka: no answer for 61 s"]
    await health.stop()


async def test_an_engine_that_does_not_start_again_is_not_live() -> None:
    """A first start that fails needs an operator, not a restart of the pod."""
    engine = Engine()
    ended = EngineStatus(EngineState.FAILED, time.time() - ENGINE_SECONDS - 1, "Spark's JVM has ended")
    engine.status = ended
    health = WorkerHealth(Api().worker, engine, {}, lambda call: call())
    health.start()
    await asyncio.sleep(0)
    assert health.not_live() == []
    await health.stop()
    engine.status = EngineStatus(EngineState.RUNNING, 0.0)
    health.start()
    await asyncio.sleep(0)
    engine.status = ended
    [problem] = health.not_live()
    assert re.fullmatch(r"Spark: FAILED for 3\d\d s: Spark's JVM has ended", problem)
    await health.stop()


async def test_a_worker_is_ready_when_it_has_joined_and_spark_runs() -> None:
    """A worker without brokers is live: a restart would not bring them back."""
    api, engine = Api(), Engine()
    health = WorkerHealth(api.worker, engine, {}, lambda call: call())
    assert health.not_live() == []
    assert "Worker is still starting up" in health.not_ready()[0]
    await api.worker.start()
    assert health.not_ready() == []
    engine.status = EngineStatus(EngineState.STARTING, 0.0)
    assert health.not_ready() == ["Spark: STARTING"]
    await api.worker.stop()
