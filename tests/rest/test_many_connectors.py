"""A worker with many connectors: its work is linear, and other work of the event loop has its turns in between.

``tests/integration/test_ten_thousand_connectors.py`` has 10,000 connectors, and ``benchmarks/many_connectors.py`` the
times.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from starlette.types import Message
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace.config.framework import TASK_CLASS
from headrace.config.validation import Properties
from headrace.core.connect import config_state
from headrace.core.connect.config_def import ConfigInfos
from headrace.core.connect.lifecycle import TargetState
from headrace.core.connect.work import Task
from headrace.ports import LogRecord
from headrace.runtime.worker import cluster
from headrace.runtime.worker.sink_connector import LakehouseSinkConnector
from headrace_dev.memory.group import MemoryGroup, MemoryMember
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
MANY = 150


class CountingMember(MemoryMember):
    """A member that counts what the worker requests of the group."""

    def __init__(self, group: MemoryGroup, worker: str) -> None:
        super().__init__(group, worker)
        self.offers = self.rebalances = 0

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        """Count."""
        self.offers += 1
        super().offer(tasks, offset)

    def rebalance(self) -> None:
        """Count."""
        self.rebalances += 1
        super().rebalance()


class CountingStores(MemoryStores):
    """Stores with one counting member."""

    counting: CountingMember

    def member(self, worker: str) -> MemoryMember:
        """Return the member, and keep it."""
        self.counting = CountingMember(self.group, worker)
        return self.counting


class CountingConnector(LakehouseSinkConnector):
    """A connector that counts its validations, and the most of them without a turn for other work."""

    validations: int = 0
    in_a_row: int = 0
    most_in_a_row: int = 0

    def infos(self, properties: Properties) -> ConfigInfos:
        """Count."""
        self.validations += 1
        self.in_a_row += 1
        self.most_in_a_row = max(self.most_in_a_row, self.in_a_row)
        return super().infos(properties)

    async def turn(self) -> None:
        """Have a turn in every round of the event loop."""
        while True:
            self.in_a_row = 0
            await asyncio.sleep(0)


@dataclass
class Scene:
    """A worker, its stores and its connector class."""

    api: Api
    stores: CountingStores
    connector: CountingConnector


@asynccontextmanager
async def _worker(*records: LogRecord) -> AsyncIterator[Scene]:
    """A worker that starts with these records in its config topic."""
    stores = CountingStores()
    await stores.configs.append(records)
    api = Api(stores, connector_class=CountingConnector)
    connector = api.worker.connector_class
    assert isinstance(connector, CountingConnector)
    turns = asyncio.create_task(connector.turn())
    await api.worker.start()
    try:
        yield Scene(api, stores, connector)
    finally:
        await api.worker.stop()
        turns.cancel()


def _restored(count: int, target: TargetState | None = None) -> list[LogRecord]:
    """The records of connectors with one task each."""
    records: list[LogRecord] = []
    for number in range(count):
        config = {**SHOP, "name": f"connector-{number}", "topics": f"shop.public.table{number}"}
        records += config_state.connector_records(config["name"], config, target)
        records += config_state.task_records(config["name"], [{**config, "task.class": TASK_CLASS}])
    return records


def _running(api: Api) -> int:
    states = (api.worker.statuses.task(f"connector-{number}", 0) for number in range(MANY))
    return sum(seen is not None and seen.state == "RUNNING" for seen in states)


async def test_the_records_of_one_poll_are_offered_to_the_group_at_once() -> None:
    """A topic that is restored while the worker runs: one list of tasks and one rebalance for all its records."""
    async with _worker() as scene:
        offers, rebalances = scene.stores.counting.offers, scene.stores.counting.rebalances
        await scene.stores.configs.append(_restored(MANY))
        await eventually(lambda: _running(scene.api) == MANY, 60)
        assert scene.stores.counting.offers - offers <= 10
        assert scene.stores.counting.rebalances - rebalances == 1


@pytest.mark.parametrize("when", ["at the start", "later"])
async def test_other_work_has_a_turn_between_two_validations(when: str) -> None:
    """Probes are answered while hundreds of connectors are validated, and their tasks start."""
    records = _restored(MANY)
    async with _worker(*(records if when == "at the start" else ())) as scene:
        if when == "later":
            await scene.stores.configs.append(records)
        await eventually(lambda: _running(scene.api) == MANY, 60)
        assert scene.connector.validations == 2 * MANY, "the instance, and the start of its task"
        assert scene.connector.most_in_a_row <= 2


async def test_a_rebalance_validates_nothing_again() -> None:
    """Another worker joins and leaves: the connectors keep what they have computed from their configurations."""
    async with _worker(*_restored(MANY)) as scene:
        await eventually(lambda: _running(scene.api) == MANY, 60)
        validations, generation = scene.connector.validations, scene.api.worker.cluster.generation
        scene.stores.group.share()

        def written_again() -> int:
            seen = (scene.api.worker.statuses.connector(f"connector-{number}") for number in range(MANY))
            return sum(each is not None and each.generation > generation for each in seen)

        await eventually(lambda: written_again() == MANY, 60)
        assert scene.connector.validations == validations


async def test_rebalances_have_a_distance_in_proportion_to_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connectors that are created one after another do not cause a rebalance each."""
    monkeypatch.setattr(cluster, "_REBALANCE_SECONDS_PER_TASK", 3600.0)
    async with _worker() as scene:
        rebalances = scene.stores.counting.rebalances
        for number in range(20):
            await scene.api.create(f"connector-{number}")
            if number == 0:
                await scene.api.until("RUNNING", "RUNNING", name="connector-0")
        state = scene.api.worker.configs.state
        await eventually(lambda: len(state.tasks()) == 20)
        assert scene.stores.counting.rebalances - rebalances == 1


async def test_the_listing_is_sent_in_parts() -> None:
    """The answer is one JSON object. Other work has turns while it is made."""
    async with _worker(*_restored(MANY, TargetState.PAUSED)) as scene:
        statuses = scene.api.worker.statuses
        await eventually(lambda: len(statuses.connectors()) == MANY, 60)
        parts: list[bytes] = []
        turns_before: list[int] = []
        turns = 0

        received: list[Message] = [{"type": "http.request", "body": b"", "more_body": False}]

        async def receive() -> Message:
            if not received:  # the client stays
                await asyncio.Event().wait()
            return received.pop()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                parts.append(message["body"])
                turns_before.append(turns)

        async def turn() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        turning = asyncio.create_task(turn())
        await scene.api.app(_get("/connectors", b"expand=status&expand=info"), receive, send)
        turning.cancel()
        listed = json.loads(b"".join(parts))
        assert list(listed) == [f"connector-{number}" for number in range(MANY)]
        assert listed["connector-7"]["info"]["config"]["topics"] == "shop.public.table7"
        assert len([part for part in parts if part]) >= 2
        assert turns_before[1] > turns_before[0]


async def test_an_empty_listing_is_an_object() -> None:
    """Without connectors, or without any that has a status, the answer is an empty object."""
    async with _worker() as scene:
        assert (await scene.api.call("GET", "/connectors?expand=status")).body == b"{}"


def _get(path: str, query: bytes) -> dict[str, object]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "root_path": "",
        "headers": [],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 8083),
    }
