"""``kc``, the command of PyPI's kafka-connect-py, manages a connector over real connections."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from kafka_connect import KafkaConnect
from kafka_connect.cli import cli
from support.rest.served import served
from support.rest.worker_api import SHOP, Api

from headrace.core.connect.status import TopicStatus
from headrace.core.model.errors import Fatal

pytestmark = pytest.mark.anyio


class Kc:
    """Runs ``kc`` commands against one worker; any error of a command fails the test."""

    def __init__(self, url: str, api: Api) -> None:
        self.url = url
        self.api = api

    async def run(self, *arguments: str) -> Any:
        """The output of the command as JSON, or None if there is none."""
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["--url", self.url, *arguments])
        if result.exception is not None:
            raise result.exception
        return json.loads(result.stdout) if result.stdout.strip() else None

    async def refused(self, *arguments: str) -> str:
        """The output of the command after an error."""
        result = await asyncio.to_thread(CliRunner().invoke, cli, ["--url", self.url, *arguments])
        return str(result.exception)


@pytest.fixture
def _handlers_of_kc() -> Iterator[None]:
    """``kc`` adds a log handler with each command, on a stream that ends with the command."""
    yield
    logging.getLogger("kafka-connect").handlers.clear()


@pytest.fixture
async def kc(_handlers_of_kc: None) -> AsyncIterator[Kc]:
    """A started worker with ``kc``."""
    api = Api()
    await api.worker.start()
    async with served(api.app) as url:
        yield Kc(url, api)
    await api.worker.stop()


async def test_kc_leads_a_connector_through_its_whole_life(kc: Kc) -> None:
    """Create, show, update, pause, resume, restart, reset, delete: every command works and prints its effect."""
    assert (await kc.run("info"))["version"] == "4.3.1"
    created = await kc.run("create", "--config-data", json.dumps({"name": "shop", "config": SHOP}))
    assert created == {"name": "shop", "config": {**SHOP, "name": "shop"}, "tasks": [], "type": "sink"}
    await kc.api.until("RUNNING", "RUNNING")
    assert await kc.run("list") == ["shop"]
    assert await kc.run("config", "shop") == {**SHOP, "name": "shop"}
    assert (await kc.run("get", "shop"))["tasks"] == [{"connector": "shop", "task": 0}]

    changed = {**SHOP, "tasks.max": 2}
    assert (await kc.run("update", "shop", "--config-data", json.dumps(changed)))["config"]["tasks.max"] == "2"
    await kc.api.until("RUNNING", "RUNNING", "RUNNING")

    await kc.run("pause", "shop")
    await kc.api.until("PAUSED", "PAUSED", "PAUSED")
    assert await kc.run("list", "--state", "paused") == ["shop"]
    assert (await kc.run("status", "shop"))["tasks"][0]["state"] == "PAUSED"
    await kc.run("resume", "shop")
    await kc.api.until("RUNNING", "RUNNING", "RUNNING")

    client = KafkaConnect(kc.url)  # the command has no stop
    await asyncio.to_thread(client.stop_connector, "shop")
    await kc.api.until("STOPPED")
    assert await kc.run("list-tasks", "shop") == []

    await kc.run("delete", "shop")
    assert await kc.run("list") == []
    assert "404" in await kc.refused("get", "shop")


async def test_kc_finds_what_has_failed_and_restarts_it(kc: Kc) -> None:
    """It sends its flags as Python's ``True`` and ``False``."""
    await kc.run("create", "--config-data", json.dumps({"name": "shop", "config": SHOP}))
    await kc.api.until("RUNNING", "RUNNING")
    kc.api.tasks.tasks["shop-0"].fail(Fatal("broken"))
    await kc.api.until("RUNNING", "FAILED")
    assert "broken" in (await kc.run("task-status", "shop", "0"))["trace"]
    await kc.run("restart", "shop", "--include-tasks", "--only-failed")
    await kc.api.until("RUNNING", "RUNNING")
    made = kc.api.tasks.made
    await kc.run("restart", "shop")  # includeTasks=False&onlyFailed=False: only the connector
    await kc.api.until("RUNNING", "RUNNING")
    assert kc.api.tasks.made == made
    await kc.run("restart-task", "shop", "0")
    await kc.api.until("RUNNING", "RUNNING")
    assert kc.api.tasks.made == made + 1
    assert list(await kc.run("restart", "--all", "--pattern", "sh.*")) == ["shop"]


async def test_kc_pauses_and_removes_connectors_by_pattern(kc: Kc) -> None:
    """The command uses the list of connectors with their states."""
    for name in ("orders", "offers", "people"):
        await kc.run("create", "--config-data", json.dumps({"name": name, "config": SHOP}))
        await kc.api.until("RUNNING", "RUNNING", name=name)
    await kc.run("pause", "--all", "--pattern", "o.*")
    await kc.api.until("PAUSED", "PAUSED", name="offers")
    await kc.api.until("PAUSED", "PAUSED", name="orders")
    assert sorted(await kc.run("list", "--expand", "status", "--state", "PAUSED")) == ["offers", "orders"]
    await kc.run("delete", "--all", "--state", "PAUSED")
    assert await kc.run("list", "--expand", "info", "--pattern", "p.*") == {
        "people": {
            "info": {
                "name": "people",
                "config": {**SHOP, "name": "people"},
                "tasks": [{"connector": "people", "task": 0}],
                "type": "sink",
            }
        }
    }


async def test_kc_lists_tasks_topics_and_plugins(kc: Kc) -> None:
    """The command resets the list of topics as well."""
    await kc.run("create", "--config-data", json.dumps({"name": "shop", "config": SHOP}))
    await kc.api.until("RUNNING", "RUNNING")
    kc.api.worker.statuses.put_topic(TopicStatus("shop.public.orders", "shop", 0, 1))
    assert [task["id"] for task in await kc.run("list-tasks", "shop")] == [{"connector": "shop", "task": 0}]
    assert await kc.run("list-topics", "shop") == {"shop": {"topics": ["shop.public.orders"]}}
    await kc.run("reset-topics", "shop")
    assert await kc.run("list-topics", "shop") == {"shop": {"topics": []}}
    assert [each["class"] for each in await kc.run("list-plugins")] == ["headrace.LakehouseSinkConnector"]


async def test_kc_checks_a_configuration(kc: Kc) -> None:
    """The test uses the client behind the command.

    The command sends the configuration as a JSON string, which Connect answers with 500, too.
    """
    client = KafkaConnect(kc.url)
    infos = await asyncio.to_thread(client.validate_connector_config, "LakehouseSink", {**SHOP, "tasks.max": "x"})
    assert infos["error_count"] == 3  # the two errors are those of tasks.max and the name
    config = json.dumps(SHOP)
    assert "500" in await kc.refused("validate-config", "LakehouseSink", "--config-data", config)
