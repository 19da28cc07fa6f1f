"""The requests of Strimzi's operator for the reconciliation of a KafkaConnector (``connect.md`` section 16).

The operator compares the stored configuration with that of its resource, key by key, as texts. If a worker added,
removed or reformatted a value, the operator would write it again, and so restart the connector, every two minutes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from support.rest.served import served
from support.rest.worker_api import Api

from headrace.core.model.errors import Fatal

pytestmark = pytest.mark.anyio
_TRIES = 10


@dataclass
class KafkaConnector:
    """The resource: its ``spec``, as a user writes it in YAML."""

    name: str
    config: dict[str, Any]
    class_name: str = "headrace.LakehouseSinkConnector"
    tasks_max: int = 1
    state: str = "running"

    def desired(self) -> dict[str, Any]:
        """The configuration that the operator sends; values have the types of YAML."""
        return {"connector.class": self.class_name, "tasks.max": self.tasks_max, **self.config}

    def wanted(self) -> dict[str, str]:
        """The configuration that it compares with: Java's texts of the values, and the name."""
        return {"name": self.name, **{key: _java_text(value) for key, value in self.desired().items()}}


@dataclass
class Operator:
    """``reconcile`` sends the operator's requests in its order, and fails on the statuses on which it fails."""

    http: httpx.AsyncClient
    log: list[str] = field(default_factory=list)

    async def reconcile(self, resource: KafkaConnector) -> dict[str, Any]:
        """One reconciliation of a resource; returns the status that it would write into the resource."""
        classes = [plugin["class"] for plugin in (await self.ask("GET", "/connector-plugins", {200})).json()]
        assert resource.class_name in classes
        await self.ask("GET", "/connectors", {200})
        await self._configure(resource)
        status = await self._status(resource.name)
        await self._reach(resource, status["connector"]["state"])
        topics = (await self.ask("GET", f"/connectors/{resource.name}/topics", {200})).json()
        return {"connectorStatus": status, "topics": topics[resource.name]["topics"]}

    async def restart(self, name: str, *, include_tasks: bool, only_failed: bool) -> httpx.Response:
        """The annotation ``strimzi.io/restart``."""
        flags = f"includeTasks={str(include_tasks).lower()}&onlyFailed={str(only_failed).lower()}"
        return await self.ask("POST", f"/connectors/{name}/restart?{flags}", {202, 204})

    async def delete(self, name: str) -> None:
        """The resource is deleted: delete the connector, then read its status until it does not exist."""
        await self.ask("DELETE", f"/connectors/{name}", {204})
        for _ in range(_TRIES):
            if (await self.ask("GET", f"/connectors/{name}/status", {200, 404})).status_code == 404:
                return
            await asyncio.sleep(0.02)
        pytest.fail("The status never went away")

    async def ask(self, method: str, path: str, expected: set[int], json: object = None) -> httpx.Response:
        """One request; the operator fails on a status that it does not expect."""
        body = {"json": json} if json is not None else {}
        answer = await self.http.request(method, path, headers={"Accept": "application/json"}, **body)
        self.log.append(f"{method} {path} {answer.status_code}")
        assert answer.status_code in expected, self.log[-1] + " " + answer.text
        return answer

    def writes(self) -> list[str]:
        """The writing requests since the last call."""
        written = [entry for entry in self.log if not entry.startswith("GET")]
        self.log.clear()
        return written

    async def _configure(self, resource: KafkaConnector) -> None:
        found = await self.ask("GET", f"/connectors/{resource.name}/config", {200, 404})
        if found.status_code == 404:
            state = resource.state.upper()
            body = {"name": resource.name, "config": resource.desired(), "initial_state": state}
            await self.ask("POST", "/connectors", {201}, body)
        elif found.json() != resource.wanted():
            await self.ask("PUT", f"/connectors/{resource.name}/config", {200, 201}, resource.desired())

    async def _status(self, name: str) -> dict[str, Any]:
        for _ in range(_TRIES):
            answer = await self.ask("GET", f"/connectors/{name}/status", {200, 404})
            if answer.status_code == 200:
                status: dict[str, Any] = answer.json()
                return status
            await asyncio.sleep(0.02)
        return pytest.fail("There never was a status")

    async def _reach(self, resource: KafkaConnector, seen: str) -> None:
        target = {"running": "RUNNING", "paused": "PAUSED", "stopped": "STOPPED"}[resource.state]
        path = f"/connectors/{resource.name}"
        if target == seen:
            return
        if target == "STOPPED":
            await self.ask("PUT", f"{path}/stop", {204})
        elif target == "PAUSED":
            await self.ask("PUT", f"{path}/pause", {202})
        elif seen in ("PAUSED", "STOPPED"):
            await self.ask("PUT", f"{path}/resume", {202})


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


SHOP = {
    "topics.regex": "shop\\.public\\..*",
    "key.converter.schemas.enable": False,
    "value.converter.schemas.enable": "False",
    "batch.max.records": 5000,
    "batch.linger.ms": " 250 ",
    "field.exclude.list": "",
    "errors.retry.timeout": -1,
    "reselect.database.password": "${env:DB_PASSWORD}",
}
"""Values that a worker is tempted to put in form: types of YAML, spaces, empty texts, references to secrets."""


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A started worker."""
    api = Api()
    await api.worker.start()
    yield api
    await api.worker.stop()


@pytest.fixture
async def operator(api: Api) -> AsyncIterator[Operator]:
    """The operator, over real connections."""
    async with served(api.app) as url, httpx.AsyncClient(base_url=url) as http:
        yield Operator(http)


async def test_a_second_look_finds_nothing_to_change(api: Api, operator: Operator) -> None:
    """The configuration is returned unchanged, also after an update and in every state."""
    resource = KafkaConnector("shop", SHOP)
    await operator.reconcile(resource)
    assert operator.writes() == ["POST /connectors 201"]
    await api.until("RUNNING", "RUNNING")
    assert (await operator.reconcile(resource))["connectorStatus"]["type"] == "sink"
    assert operator.writes() == []
    resource.config = {**SHOP, "batch.max.records": 6000}
    resource.tasks_max = 2
    await operator.reconcile(resource)
    assert operator.writes() == ["PUT /connectors/shop/config 200"]
    await api.until("RUNNING", "RUNNING", "RUNNING")
    for state in ("paused", "running", "stopped", "running"):
        resource.state = state
        await operator.reconcile(resource)
        assert len(operator.writes()) == 1
        await api.until(state.upper(), *(() if state == "stopped" else (state.upper(),) * 2))
        await operator.reconcile(resource)
        assert operator.writes() == []


@pytest.mark.parametrize("state", ["paused", "stopped"])
async def test_a_connector_begins_in_the_state_of_its_resource(api: Api, operator: Operator, state: str) -> None:
    """The connector starts no task before."""
    await operator.reconcile(KafkaConnector("shop", SHOP, state=state))
    assert operator.writes() == ["POST /connectors 201"]
    await api.until(state.upper())
    assert api.tasks.made == 0


async def test_restarts_that_annotations_ask_for(api: Api, operator: Operator) -> None:
    """204 for the connector alone, 202 with the tasks, which then show RESTARTING; a failed task by its number."""
    await operator.reconcile(KafkaConnector("shop", SHOP))
    await api.until("RUNNING", "RUNNING")
    assert (await operator.restart("shop", include_tasks=False, only_failed=False)).status_code == 204
    api.tasks.tasks["shop-0"].fail(Fatal("broken"))
    await api.until("RUNNING", "FAILED")
    answer = await operator.restart("shop", include_tasks=True, only_failed=True)
    assert (answer.status_code, answer.json()["tasks"][0]["state"]) == (202, "RESTARTING")
    await api.until("RUNNING", "RUNNING")
    await operator.ask("POST", "/connectors/shop/tasks/0/restart", {204})


async def test_offsets_are_listed_altered_and_reset_while_stopped(api: Api, operator: Operator) -> None:
    """The annotation ``strimzi.io/connector-offsets``: 200 each time."""
    api.stores.groups.partitions = {"shop.public.orders": 1}
    await operator.reconcile(KafkaConnector("shop", SHOP, state="stopped"))
    await api.until("STOPPED")
    entry = {"partition": {"kafka_topic": "shop.public.orders", "kafka_partition": 0}, "offset": {"kafka_offset": 7}}
    await operator.ask("PATCH", "/connectors/shop/offsets", {200}, {"offsets": [entry]})
    assert (await operator.ask("GET", "/connectors/shop/offsets", {200})).json() == {"offsets": [entry]}
    await operator.ask("DELETE", "/connectors/shop/offsets", {200})
    assert (await operator.ask("GET", "/connectors/shop/offsets", {200})).json() == {"offsets": []}


async def test_levels_and_the_end(api: Api, operator: Operator) -> None:
    """The operator sets loggers for the cluster, then deletes the connector and waits until its status is removed."""
    await operator.reconcile(KafkaConnector("shop", SHOP))
    await api.until("RUNNING", "RUNNING")
    loggers = (await operator.ask("GET", "/admin/loggers", {200})).json()
    level = {"level": loggers["root"]["level"]}
    await operator.ask("PUT", "/admin/loggers/root?scope=cluster", {200, 204}, level)
    await operator.delete("shop")
    assert (await operator.ask("GET", "/connectors", {200})).json() == []
