"""What the tests of a sink task share."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from unit.runtime.sink_task_harness import TOPIC, Harness

from headrace_connectors.memory import MemoryLakehouse
from headrace_connectors.memory.feed import MemoryBroker


@pytest.fixture
async def harness() -> AsyncIterator[Harness]:
    """A harness with one topic of one partition."""
    broker = MemoryBroker()
    await broker.create_topic(TOPIC)
    with ThreadPoolExecutor(4) as executor:
        yield Harness(broker, MemoryLakehouse(), executor)
