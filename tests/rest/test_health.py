"""The health check of a worker that starts, runs, is blocked or stops, and the timeouts of its requests."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace.ports import LogRecord, TopicPartition
from headrace_dev.memory.stores import MemoryGroupOffsets, MemoryLog, MemoryStores

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 1, 1, tzinfo=UTC)
WRITING = "writing a config for connector shop to the config topic, which began at 2026-01-01T00:00:00.000Z."


class HeldLog(MemoryLog):
    """Blocks appends until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Append after the release."""
        await self.let.wait()
        await super().append(records)


@pytest.fixture
async def held() -> AsyncIterator[tuple[Api, HeldLog]]:
    """A worker with a request to create a connector that its log blocks."""
    stores = MemoryStores()
    stores.configs = log = HeldLog()
    api = Api(stores, now=lambda: NOW, **{"rest.request.timeout.ms": "50"})
    await api.worker.start()
    creation = asyncio.create_task(api.herder.create("shop", SHOP, None))
    await eventually(lambda: api.worker.configs.change is not None)
    yield api, log
    log.let.set()
    await creation
    await api.worker.stop()


async def test_health_reports_whether_a_worker_starts_runs_or_stops() -> None:
    """Each state has its status code and Connect's text; Connect has no text for a stopping worker."""
    api = Api(now=lambda: NOW)
    began = "which began at 2026-01-01T00:00:00.000Z."
    starting = f"Worker is still starting up. The worker is currently starting, {began}"
    assert await _health(api) == (503, "starting", starting)
    await api.worker.start()
    assert await _health(api) == (200, "healthy", "Worker has completed startup and is ready to handle requests.")
    await api.worker.stop()
    assert await _health(api) == (503, "stopping", f"Worker is stopping. The worker is currently stopping, {began}")
    assert (await api.call("GET", "/connectors")).json()["message"].startswith("Worker is stopping.")


async def test_probes_report_whether_a_worker_is_live_and_ready() -> None:
    """A worker that starts is live and not ready; the message contains what it waits for."""
    api = Api(now=lambda: NOW)
    live = await api.call("GET", "/health/live")
    assert (live.status, live.json()) == (200, {"status": "live", "message": ""})
    ready = await api.call("GET", "/health/ready")
    assert (ready.status, ready.json()["status"]) == (503, "not ready")
    assert "The worker is currently starting" in ready.json()["message"]
    await api.worker.start()
    ready = await api.call("GET", "/health/ready")
    assert (ready.status, ready.json()) == (200, {"status": "ready", "message": ""})
    await api.worker.stop()


async def test_a_change_of_a_probe_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """The access log has probes at DEBUG only, and an operator looks for the reason of a restart in the log."""
    caplog.set_level(logging.INFO, "headrace.rest")
    api = Api(now=lambda: NOW)
    for _ in range(2):
        await api.call("GET", "/health/ready")
        await api.call("GET", "/health/live")
    await api.worker.start()
    for _ in range(2):
        await api.call("GET", "/health/ready")
    await api.worker.stop()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["INFO", "INFO"]
    assert lines[0][1].startswith("Worker: is not ready: Worker is still starting up.")
    assert lines[1][1] == "Worker: is ready"


async def test_a_worker_whose_requests_wait_for_too_long_is_unhealthy(held: tuple[Api, HeldLog]) -> None:
    """The worker is unhealthy after the timeout of Connect's check, and healthy again when the change is written."""
    api, log = held
    api.worker.now = lambda: NOW + timedelta(seconds=9)
    assert (await _health(api))[:2] == (200, "healthy")
    api.worker.now = lambda: NOW + timedelta(seconds=11)
    text = "Worker was unable to handle this request and may be unable to handle other requests."
    assert await _health(api) == (500, "unhealthy", f"{text} The worker is currently {WRITING}")
    log.let.set()
    await api.until("RUNNING", "RUNNING")
    assert (await _health(api))[:2] == (200, "healthy")


async def test_a_request_that_times_out_reports_what_it_waits_for(held: tuple[Api, HeldLog]) -> None:
    """A change waits for the one before it; a read does not."""
    api, _ = held
    answer = await api.call("PUT", "/connectors/other/pause")
    assert (answer.status, answer.json()["message"]) == (500, f"Request timed out. The worker is currently {WRITING}")
    assert (await api.call("GET", "/connectors")).json() == []


async def test_a_question_that_brokers_do_not_answer_times_out() -> None:
    """A request times out if the brokers do not answer; the error names no cause."""
    api = Api(**{"rest.request.timeout.ms": "50"})
    await api.worker.start()
    await api.create()
    api.stores.groups = Unanswered()
    answer = await api.call("GET", "/connectors/shop/offsets")
    assert (answer.status, answer.json()["message"]) == (500, "Request timed out")
    await api.worker.stop()


class Unanswered(MemoryGroupOffsets):
    """Offsets of groups whose coordinator does not answer."""

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """Never returns."""
        await asyncio.Event().wait()
        return {}


async def _health(api: Api) -> tuple[int, str, str]:
    answer = await api.call("GET", "/health")
    body = json.loads(answer.body)
    return answer.status, body["status"], body["message"]
