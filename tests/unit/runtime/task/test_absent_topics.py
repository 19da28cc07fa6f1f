"""A task reports the topics of its connector that do not exist, until they appear."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import pytest
from support.fix_asyncio import eventually
from support.task.sink_task_harness import TOPIC, Harness, running

from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.task import sink_task
from headrace.runtime.task.task_tables import ABSENT
from headrace.runtime.threads import WorkerThreads
from headrace_dev.memory import MemoryLakehouse
from headrace_dev.memory.feed import MemoryBroker

pytestmark = pytest.mark.anyio


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Iterator[Harness]:
    """A harness without topics."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.02)
    with WorkerThreads.start(2) as threads:
        yield Harness(MemoryBroker(), MemoryLakehouse(), threads)


@pytest.mark.parametrize("number", [0, 1])
async def test_a_pattern_that_matches_no_topic_is_noted(
    harness: Harness, number: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The first task warns and has a note, which is removed when a topic appears. It then reads the topic."""
    caplog.set_level(logging.INFO)
    notes: list[tuple[str, ...]] = []

    def set_note(text: str, locations: Sequence[str]) -> None:
        if text == ABSENT:
            notes.append(tuple(locations))

    observer = Metrics().task("items", number, lambda topic: None, set_note=set_note)
    async with running(harness.task(number, observer=observer, task=number)):
        if number == 0:
            await eventually(lambda: notes == [("shop.*",)])
        await harness.broker.create_topic(TOPIC)
        harness.insert(1, 10)
        await eventually(lambda: bool(harness.rows()) and len(notes) == (2 if number == 0 else 0))
    assert notes == ([("shop.*",), ()] if number == 0 else [])
    lines = [record.message for record in caplog.records if "shop.*" in record.message]
    expected = [f"items: shop.*: {ABSENT}", "items: shop.*: the topic exists now"]
    assert lines == (expected if number == 0 else [])
