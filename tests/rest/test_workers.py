"""``GET /workers`` and its part of the overview."""

from __future__ import annotations

import pytest
from support.rest.worker_api import Api, leader_and_follower

from headrace import __version__

pytestmark = pytest.mark.anyio


async def test_every_worker_with_tasks_is_in_the_answer() -> None:
    """Any worker answers for the cluster; the overview shows the same."""
    async with leader_and_follower("127.0.0.1") as (leader, follower):
        await leader.create(**{"tasks.max": "2"})
        await leader.until("RUNNING", "RUNNING", "RUNNING")
        workers = (await follower.call("GET", "/workers")).json()
        assert [worker["worker_id"] for worker in workers] == [leader.worker.worker_id, follower.worker.worker_id]
        for worker in workers:
            memory = worker.pop("memory")
            assert 1024 * 1024 < memory["used_bytes"] < memory["available_bytes"]
            assert (worker["version"], worker["tasks"], worker["waits_for"]) == (__version__, 1, None)
        assert [worker["leader"] for worker in workers] == [True, False]
        html = (await follower.call("GET", "/ui")).body.decode()
        for worker in workers:
            assert f"<code>{worker['worker_id']}</code>" in html


async def test_a_worker_without_tasks_answers() -> None:
    api = Api()
    await api.worker.start()
    [worker] = (await api.call("GET", "/workers")).json()
    assert (worker["worker_id"], worker["tasks"]) == (api.worker.worker_id, 0)
    await api.worker.stop()
