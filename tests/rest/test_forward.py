"""A worker forwards requests to the leader over a real connection (``connect.md`` section 1.6)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api, leader_and_follower

from headrace.core.model.errors import ConfigError
from headrace.rest.server import bind
from headrace.runtime.worker.cluster import NO_LEADER
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Api, Api]]:
    """The leader behind its server, and a follower."""
    async with leader_and_follower("127.0.0.1") as both:
        yield both


async def test_a_connectors_life_through_a_worker_that_only_follows(pair: tuple[Api, Api]) -> None:
    """Status, body and Location are the leader's; the follower has read the written record before it answers."""
    leader, follower = pair
    created = await follower.create("ä b")
    assert created.status == 201
    assert created.json()["config"] == {**SHOP, "name": "ä b"}
    assert created.headers["location"] == f"http://{leader.worker.worker_id}/connectors/%C3%A4%20b"
    path = "/connectors/%C3%A4%20b"
    assert (await follower.call("GET", f"{path}/config")).json() == created.json()["config"]
    assert (await follower.call("PATCH", f"{path}/config", {"tasks.max": "2"})).status == 200
    await follower.until("RUNNING", "RUNNING", "RUNNING", name="ä b")
    assert (await follower.call("POST", f"{path}/restart?includeTasks=true&onlyFailed=false")).status == 202
    assert (await follower.call("POST", f"{path}/restart")).status == 204
    for verb, status in (("pause", 202), ("stop", 204)):
        assert (await follower.call("PUT", f"{path}/{verb}")).status == status
    await eventually(lambda: leader.worker.configs.state.task_count("ä b") == 0)
    assert (await follower.call("DELETE", f"{path}/offsets")).status == 200
    assert (await follower.call("DELETE", path)).status == 204
    assert (await follower.call("DELETE", path)).json() == {"error_code": 404, "message": "Connector ä b not found"}


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_an_ipv6_address_is_fit_for_a_url(host: str) -> None:
    """A pod's own address, with or without brackets."""
    assert Api(host=host).worker.worker_id == "[::1]:8083"


async def test_workers_reach_each_other_over_ipv6() -> None:
    """Location contains the IPv6 address, too."""
    try:
        bind("::1", 0).close()
    except ConfigError:
        pytest.skip("this machine has no IPv6")
    async with leader_and_follower("::1") as (leader, follower):
        created = await follower.create()
        port = leader.worker.advertised[1]
        assert (created.status, created.headers["location"]) == (201, f"http://[::1]:{port}/connectors/shop")


async def test_a_request_is_sent_on_once(pair: tuple[Api, Api]) -> None:
    """Two workers that take each other for the leader do not forward in a loop; clients retry a 409."""
    _, follower = pair
    answer = await follower.call("PUT", "/connectors/shop/pause?forward=false")
    assert answer.status == 409
    assert "conflicting operation" in answer.json()["message"]


async def test_a_leader_that_is_not_up_is_a_409(pair: tuple[Api, Api]) -> None:
    """A follower returns 409 if the leader has not started: the leader's 503 would be final for clients."""
    leader, follower = pair
    leader.worker.ready = False
    answer = await follower.create()
    assert (answer.status, answer.json()) == (409, {"error_code": 409, "message": NO_LEADER})


async def test_a_leader_that_cannot_be_reached_is_a_409() -> None:
    """A follower returns 409 if the leader has died and the group has not elected another one yet."""
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
    leader = Api(host="127.0.0.1", port=port)
    follower = Api(MemoryStores(shared=leader.stores), host="follower")
    await leader.worker.start()
    await follower.worker.start()
    answer = await follower.create()
    assert answer.status == 409
    assert "no known leader URL" in answer.json()["message"]
    await follower.worker.stop()
    await leader.worker.stop()
