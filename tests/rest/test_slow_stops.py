"""Tasks that do not stop in time: no other task starts in their place while they may still write."""

from __future__ import annotations

import asyncio

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace.runtime.worker import worker_connector

pytestmark = pytest.mark.anyio
QUICK = {"task.shutdown.graceful.timeout.ms": "50"}


async def _with_a_write_in_flight() -> tuple[Api, asyncio.Event]:
    """A worker whose task 0 has a write that ends when the event is set."""
    api = Api(**QUICK)
    await api.worker.start()
    await api.create()
    await api.until("RUNNING", "RUNNING")
    ended = asyncio.Event()
    api.tasks.tasks["shop-0"].write_in_flight = ended
    return api, ended


async def test_a_connector_that_is_made_again_waits_for_the_write_of_the_old_one() -> None:
    """The old task leaves its group. The status names what the new one waits for, and then it runs."""
    api, ended = await _with_a_write_in_flight()
    old = api.tasks.tasks["shop-0"]
    assert (await api.call("DELETE", "/connectors/shop")).status == 204
    assert (await api.create()).status == 201
    await api.until("RUNNING", "RESTARTING")
    trace = (await api.status())["tasks"][0]["trace"]
    assert "Task shop-0: waits for its write in flight" in trace
    assert old.calls == ["start", "stop", "leave"]
    assert api.tasks.tasks["shop-0"] is old
    ended.set()
    await api.until("RUNNING", "RUNNING")
    assert api.tasks.tasks["shop-0"] is not old
    await api.worker.stop()


async def test_a_restarted_task_waits_as_well() -> None:
    """A task with a new configuration waits in the same way."""
    api, ended = await _with_a_write_in_flight()
    old = api.tasks.tasks["shop-0"]
    assert (await api.call("PUT", "/connectors/shop/config", {**SHOP, "batch.linger.ms": "7"})).status == 200
    await eventually(lambda: old.calls[-1] == "leave")
    assert api.tasks.made == 1
    ended.set()
    await eventually(lambda: api.tasks.made == 2)
    await api.until("RUNNING", "RUNNING")
    await api.worker.stop()


async def test_a_worker_that_stops_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends after its deadline, although a write is running."""
    monkeypatch.setattr(worker_connector, "_LEAVE_SECONDS", 0.05)
    api, _ = await _with_a_write_in_flight()
    async with asyncio.timeout(30):
        await api.worker.stop()


async def test_a_worker_that_stops_during_a_deletion_waits_for_the_tasks_end() -> None:
    """The stop of the worker does not interrupt the stop of the task, which would leave its consumer group."""
    api = Api()
    await api.worker.start()
    await api.create()
    await api.until("RUNNING", "RUNNING")
    task = api.tasks.tasks["shop-0"]
    ended = task.write_in_flight = asyncio.Event()
    assert (await api.call("DELETE", "/connectors/shop")).status == 204
    await eventually(lambda: task.calls[-1] == "stop")
    stopping = asyncio.create_task(api.worker.stop())
    await eventually(lambda: api.worker.stopping)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not stopping.done()
    assert not task.stopped
    ended.set()
    async with asyncio.timeout(30):
        await stopping
    assert task.stopped
    assert task.calls == ["start", "stop"]
