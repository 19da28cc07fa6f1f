"""Fixtures of the tests of a sink task."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.task.sink_task_harness import TOPIC, Harness

from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """Return a harness with one topic of one partition."""
    broker = MemoryBroker()
    await broker.create_topic(TOPIC)
    with WorkerThreads.start(4) as threads:
        yield Harness(broker, MemoryLakehouse(), threads)
