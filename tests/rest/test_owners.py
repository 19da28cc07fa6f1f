"""Owners of connectors: ``/connectors/{name}/owner``, and requests that change connectors as an owner."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from support.rest.asgi import Answer
from support.rest.worker_api import SHOP, Api

from headrace.core.connect.config_state import owner_record
from headrace.core.connect.connector_plan import DIRECTORY, Ownership, digest
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
NONE = {"owner": None, "source": None, "drifted": None}
TEAM = {"owner": "team", "source": "shop.json", "drifted": False}


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A started worker."""
    api = Api()
    await api.worker.start()
    yield api
    await api.worker.stop()


async def put(api: Api, query: str = "", **config: str) -> Answer:
    return await api.call("PUT", f"/connectors/shop/config{query}", {**SHOP, **config})


async def owner(api: Api) -> object:
    return (await api.call("GET", "/connectors/shop/owner")).json()


async def test_the_owner_is_not_part_of_the_connector(api: Api) -> None:
    """Tools of Kafka Connect that copy or compare configurations see what the owner submitted."""
    assert (await put(api, "?owner=team&source=shop.json")).status == 201
    assert await owner(api) == TEAM
    assert (await api.call("GET", "/connectors/shop/config")).json() == {**SHOP, "name": "shop"}
    listed = (await api.call("GET", "/connectors?expand=owner&expand=info")).json()
    assert listed["shop"]["owner"] == TEAM
    assert listed["shop"]["info"]["config"] == {**SHOP, "name": "shop"}


async def test_the_owner_outlives_the_worker(api: Api) -> None:
    """Another worker on the same topics knows the owner, and the digest of what the owner has written."""
    await put(api, "?owner=team&source=shop.json")
    other = Api(MemoryStores(shared=api.stores), host="other")
    await other.worker.start()
    written = Ownership("team", "shop.json", digest({**SHOP, "name": "shop"}))
    assert other.worker.configs.state.owner("shop") == written
    await other.worker.stop()


async def test_an_owner_changes_and_deletes_only_its_own(api: Api) -> None:
    """Neither a connector without an owner nor one of another owner is changed, and the answer says how to adopt it."""
    await api.create()
    for query, reason in (("?owner=team", "has no owner"), ("?owner=other", "is owned by team")):
        for answer in (
            await put(api, query, **{"tasks.max": "3"}),
            await api.call("DELETE", f"/connectors/shop{query}"),
        ):
            assert answer.status == 409
            assert reason in answer.json()["message"]
            assert "PUT /connectors/shop/owner" in answer.json()["message"]
        await api.call("PUT", "/connectors/shop/owner", {"owner": "team"})
    assert "tasks.max" not in api.herder.config("shop")
    assert (await put(api, "?owner=team", **{"tasks.max": "3"})).status == 200
    assert (await api.call("DELETE", "/connectors/shop?owner=team")).status == 204


async def test_requests_without_an_owner_change_any_connector(api: Api) -> None:
    """The requests of Kafka Connect's clients keep their effect, and the owner stays."""
    await put(api, "?owner=team&source=shop.json")
    assert (await put(api, **{"tasks.max": "2"})).status == 200
    assert await owner(api) == {**TEAM, "drifted": True}
    assert (await api.call("DELETE", "/connectors/shop")).status == 204


async def test_a_new_connector_with_an_old_name_has_no_owner(api: Api) -> None:
    """The owner is deleted with its connector, and an owner that an interrupted deletion has left does not count."""
    await put(api, "?owner=team")
    await api.call("DELETE", "/connectors/shop")
    await api.create()
    assert await owner(api) == NONE
    await api.call("DELETE", "/connectors/shop")
    await api.stores.configs.append([owner_record("shop", Ownership("team"))])
    await api.create()
    assert await owner(api) == NONE


async def test_a_connector_can_be_released(api: Api) -> None:
    """DELETE removes the owner and keeps the connector."""
    await put(api, "?owner=team")
    assert (await api.call("DELETE", "/connectors/shop/owner")).status == 204
    assert await owner(api) == NONE
    assert api.herder.connectors() == ["shop"]


@pytest.mark.parametrize(
    ("body", "status"),
    [({"owner": "a b"}, 400), ({"owner": None}, 400), ({}, 400), ({"owner": "a", "more": "b"}, 400), ([], 500)],
)
async def test_a_wrong_owner_is_refused(api: Api, body: object, status: int) -> None:
    """The name of an owner fits into a URL and a log line."""
    await api.create()
    assert (await api.call("PUT", "/connectors/shop/owner", body)).status == status
    assert await owner(api) == NONE


async def test_no_client_writes_as_the_directory(api: Api) -> None:
    """Only the leader changes connectors from the files of connectors.directory; a client may give it a connector."""
    assert (await put(api, f"?owner={DIRECTORY}")).status == 400
    assert (await put(api, "?owner=a%20b")).status == 400
    assert api.herder.connectors() == []
    await api.create()
    assert (await api.call("PUT", "/connectors/shop/owner", {"owner": DIRECTORY})).status == 200


async def test_unknown_connectors_have_no_owner(api: Api) -> None:
    """All requests answer 404."""
    for method, body in (("GET", None), ("PUT", {"owner": "team"}), ("DELETE", None)):
        assert (await api.call(method, "/connectors/none/owner", body)).status == 404


async def test_a_record_of_a_later_version_is_read(api: Api) -> None:
    """Unknown members of the record are ignored, and its other members may be missing."""
    await api.create()
    await api.stores.configs.append([("headrace-owner-shop", json.dumps({"owner": "team", "since": 1}).encode())])
    assert await owner(api) == {"owner": "team", "source": None, "drifted": None}
