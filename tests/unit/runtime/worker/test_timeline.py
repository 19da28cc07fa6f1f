"""The timeline of a worker: written behind, bounded, and continued by the next worker."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import pytest
from support.fix_asyncio import eventually

from headrace.core.connect.timeline import EVENTS_PER_CONNECTOR, Kind, Trigger, TriggerType
from headrace.runtime.worker import timeline as timelines
from headrace.runtime.worker import write_behind
from headrace.runtime.worker.stores import StatusStore
from headrace.runtime.worker.timeline import Timeline, current_trigger, triggered_by
from headrace_connectors.kafka.stores import StandaloneLog
from headrace_dev.memory.stores import MemoryLog

pytestmark = pytest.mark.anyio
EPOCH = datetime(2026, 11, 21, tzinfo=UTC)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.time = EPOCH

    def __call__(self) -> datetime:
        return self.time


class Opened:
    """A timeline on the status topic ``log``."""

    def __init__(self, log: MemoryLog | StandaloneLog, worker_id: str = "a:8083") -> None:
        self.log, self.clock = log, Clock()
        self.statuses = StatusStore(log)
        self.timeline = Timeline(log, worker_id, self.clock)

    async def start(self) -> Timeline:
        await self.statuses.start(self.timeline.apply)
        self.timeline.start()
        return self.timeline

    async def stop(self) -> None:
        await self.timeline.close()
        await self.statuses.close()


def texts(timeline: Timeline) -> list[str]:
    return [event.text for event in timeline.state.events("shop")]


async def test_events_outlive_the_worker_and_the_next_one_continues() -> None:
    """Also if its clock is behind: a new event does not replace a stored one, and is newer."""
    log = MemoryLog()
    first = Opened(log)
    timeline = await first.start()
    for text in "ab":  # in the same millisecond
        timeline.record(Kind.CONFIG_CHANGED, "shop", text)
    await first.stop()
    second = Opened(MemoryLog(log))
    second.clock.time -= timedelta(hours=1)
    again = await second.start()
    again.record(Kind.CONFIG_CHANGED, "shop", "c")
    assert texts(again) == ["c", "b", "a"]
    await second.stop()


async def test_two_workers_write_at_once() -> None:
    log = MemoryLog()
    one, two = Opened(log), Opened(MemoryLog(log), "b:8083")
    first, second = await one.start(), await two.start()
    for number in range(5):
        first.record(Kind.CONFIG_CHANGED, "shop", f"a{number}")
        second.record(Kind.CONFIG_CHANGED, "shop", f"b{number}")
    await eventually(lambda: len(texts(first)) == len(texts(second)) == 10)
    assert texts(first) == texts(second)
    await one.stop()
    await two.stop()


@pytest.mark.parametrize("log_type", [MemoryLog, StandaloneLog])
async def test_the_topic_keeps_no_more_than_the_bound(log_type: type[MemoryLog] | type[StandaloneLog]) -> None:
    """The log has the newest events of the connector after any number of them."""
    log = log_type()
    opened = Opened(log)
    timeline = await opened.start()
    for number in range(3 * EVENTS_PER_CONNECTOR):
        timeline.record(Kind.CONFIG_CHANGED, "shop", str(number))
    await opened.stop()
    stored = dict[str, bytes | None]()
    await log.start(stored.__setitem__)
    assert len([value for value in stored.values() if value is not None]) == EVENTS_PER_CONNECTOR
    newest = range(3 * EVENTS_PER_CONNECTOR - 1, 2 * EVENTS_PER_CONNECTOR - 1, -1)
    assert texts(timeline) == [str(number) for number in newest]


async def test_repeated_events_are_one_with_a_count() -> None:
    """A task that fails every minute does not push other events out."""
    opened = Opened(log := MemoryLog())
    timeline = await opened.start()
    for _ in range(3):
        timeline.record(Kind.TASK_FAILED, "shop", "why", task=0)
        timeline.record(Kind.TASK_STARTED, "shop", task=0)
        opened.clock.time += timedelta(minutes=1)
    started, failed = timeline.state.events("shop")
    assert (failed.text, failed.count, failed.since) == ("why", 3, int(EPOCH.timestamp() * 1000))
    assert started.count == 3
    await opened.stop()
    again = Opened(MemoryLog(log))
    assert (await again.start()).state.events("shop") == [started, failed]
    await again.stop()


async def test_an_outage_delays_nothing_and_drops_what_does_not_fit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The drop is logged once and counted, and what waits is written after the outage."""
    monkeypatch.setattr(timelines, "_MOST_WAITING", 3)
    monkeypatch.setattr(write_behind, "_RETRY_SECONDS", 0.001)
    opened = Opened(log := MemoryLog())
    timeline = await opened.start()
    log.outage = "no broker answers"
    with caplog.at_level(logging.WARNING):
        for number in range(5):
            timeline.record(Kind.CONFIG_CHANGED, "shop", str(number))
    assert texts(timeline) == ["2", "1", "0"]
    assert timeline.dropped == 2
    assert len([each for each in caplog.messages if "events are dropped" in each]) == 1
    log.outage = None
    other = Opened(MemoryLog(log), "b:8083")
    seen = await other.start()
    await eventually(lambda: texts(seen) == ["2", "1", "0"])
    await opened.stop()
    await other.stop()


async def test_a_worker_that_stops_while_no_broker_answers_stops(caplog: pytest.LogCaptureFixture) -> None:
    opened = Opened(log := MemoryLog())
    timeline = await opened.start()
    log.outage = "no broker answers"
    timeline.record(Kind.WORKER_STOPPED)
    await opened.stop()
    assert "1 records were not written" in caplog.text


async def test_a_record_of_a_later_version_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    """The worker starts, and reads the others."""
    log = MemoryLog()
    await log.append([("status-timeline-0000000000001-a:8083", b'{"kind": "LATER"}')])
    opened = Opened(log)
    timeline = await opened.start()
    assert len(timeline.state) == 0
    assert "is ignored" in caplog.text
    await opened.stop()


def test_changes_in_a_block_are_attributed_to_its_trigger() -> None:
    pause = Trigger(TriggerType.REQUEST, "PUT", "/connectors/shop/pause", "ann")
    with triggered_by(pause):
        assert current_trigger() == pause
    assert current_trigger() == Trigger()
