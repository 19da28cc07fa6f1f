"""Sink offset requests that the transcript lacks: groups, members, outages, histories."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest
from support.rest.asgi import Answer
from support.rest.worker_api import Api

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import Retriable
from headrace.core.model.events import UNVERSIONED
from headrace.ports import Commit, TableOptions, TopicPartition
from headrace.runtime.task.task_factory import HistoryOffsets
from headrace_dev.memory.lakehouse import MemoryLakehouse
from headrace_dev.memory.stores import MemoryGroupOffsets, MemoryStores

pytestmark = pytest.mark.anyio
TOPIC = "shop.public.orders"
FIRST, SECOND = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)
HISTORY = {"insert.mode": "insert"}


def entries(offsets: Mapping[TopicPartition, int | None]) -> dict[str, Any]:
    """The body of the request."""
    return {
        "offsets": [
            {
                "partition": {"kafka_topic": partition.topic, "kafka_partition": partition.partition},
                "offset": None if offset is None else {"kafka_offset": offset},
            }
            for partition, offset in offsets.items()
        ]
    }


class Lake(MemoryLakehouse):
    """A lake that can be made unreachable."""

    outage: str | None = None

    def table(self, namespace: str, name: str, options: TableOptions) -> Any:
        """Open a table, or raise the error of an unreachable lake."""
        if self.outage:
            raise Retriable(self.outage)
        return super().table(namespace, name, options)

    def drop(self) -> None:
        """Drop every table."""
        self._tables.clear()

    def hold(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit these next offsets to the history of TOPIC."""
        table = self.table("headrace", "shop_public_orders", TableOptions(history=True))
        table.evolve(pa.schema([("id", pa.int64())]), ())
        table.truncate(UNVERSIONED, Commit(1, "shop", group, offsets))  # a commit without rows


@pytest.fixture
def lake() -> Lake:
    """A lake without a table."""
    return Lake()


@pytest.fixture
async def api(lake: Lake) -> AsyncIterator[Api]:
    """A started worker; TOPIC has two partitions."""
    stores = MemoryStores()
    stores.groups.partitions = {TOPIC: 2}
    with ThreadPoolExecutor(1) as executor:
        api = Api(stores, HistoryOffsets(lake, executor))
        await api.worker.start()
        yield api
        await api.worker.stop()


async def stopped(api: Api, offsets: Mapping[TopicPartition, int], **config: str) -> None:
    """A stopped connector with these committed offsets."""
    await api.create(**config)
    await api.call("PUT", "/connectors/shop/stop")
    await api.until("STOPPED")
    api.stores.groups.offsets["connect-shop"] = dict(offsets)


async def alter(api: Api, offsets: Mapping[TopicPartition, int | None]) -> Answer:
    """Set offsets of the connector."""
    return await api.call("PATCH", "/connectors/shop/offsets", entries(offsets))


def committed(api: Api) -> Mapping[TopicPartition, int]:
    """The committed offsets of its group in Kafka."""
    return api.stores.groups.offsets.get("connect-shop", {})


async def test_offsets_come_from_the_connectors_group(api: Api) -> None:
    """The group is connect-<name>, or the one that the connector names."""
    api.stores.groups.offsets = {
        "connect-shop": {TopicPartition("shop.public.orders", 0): 7},
        "mine": {TopicPartition("shop.public.orders", 1): 9},
    }
    await api.create()
    await api.create("other", **{"consumer.override.group.id": "mine"})
    first = (await api.call("GET", "/connectors/shop/offsets")).json()
    second = (await api.call("GET", "/connectors/other/offsets")).json()
    partition = {"kafka_topic": "shop.public.orders", "kafka_partition": 0}
    assert first == {"offsets": [{"partition": partition, "offset": {"kafka_offset": 7}}]}
    assert second["offsets"][0]["offset"] == {"kafka_offset": 9}


async def test_a_group_that_a_config_provider_names_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is resolved as for the tasks."""
    monkeypatch.setenv("SHOP_GROUP", "ours")
    stores = MemoryStores()
    stores.groups.offsets = {"ours": {FIRST: 7}}
    provider = {"class": "EnvVarConfigProvider", "param.allowlist.pattern": "SHOP_.*"}
    api = Api(
        stores,
        **{"config.providers": "env", **{f"config.providers.env.{name}": each for name, each in provider.items()}},
    )
    await api.worker.start()
    await api.create(**{"consumer.override.group.id": "${env:SHOP_GROUP}"})
    assert (await api.call("GET", "/connectors/shop/offsets")).json() == entries({FIRST: 7})
    await api.worker.stop()


class FarGroups(MemoryStores):
    """The stores of a worker with a connector for another cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.far = MemoryGroupOffsets({"connect-shop": {FIRST: 7}})
        self.far.partitions = {TOPIC: 2}

    def group_offsets(self, connector: str, settings: KafkaSettings) -> MemoryGroupOffsets:
        """The groups of the cluster in the connector's configuration."""
        return self.far if settings.admin.get("bootstrap.servers") == "far:9092" else self.groups


async def test_offsets_are_read_and_set_on_the_connectors_brokers() -> None:
    """``admin.override.*`` names another cluster than the worker's, which may have a group of the same name."""
    stores = FarGroups()
    stores.groups.offsets = {"connect-shop": {FIRST: 1}}
    api = Api(stores)
    await api.worker.start()
    await api.create(**{"admin.override.bootstrap.servers": "far:9092"})
    assert (await api.call("GET", "/connectors/shop/offsets")).json() == entries({FIRST: 7})
    await api.call("PUT", "/connectors/shop/stop")
    await api.until("STOPPED")
    assert (await alter(api, {SECOND: 9})).status == 200
    assert stores.far.offsets == {"connect-shop": {FIRST: 7, SECOND: 9}}
    assert (await api.call("DELETE", "/connectors/shop/offsets")).status == 200
    assert (stores.far.offsets, stores.groups.offsets) == ({}, {"connect-shop": {FIRST: 1}})
    await api.worker.stop()


async def test_offsets_without_brokers_are_an_error_with_connects_text(api: Api) -> None:
    """The request returns 500 with Connect's text and does not block."""
    await api.create()
    api.stores.groups.outage = "no broker"
    answer = await api.call("GET", "/connectors/shop/offsets")
    assert answer.status == 500
    assert answer.json()["message"] == "Failed to retrieve consumer group offsets for sink connector shop"


async def test_offsets_are_those_of_the_workers_group_where_it_names_one() -> None:
    """The consumers of the worker use its option consumer.group.id."""
    stores = MemoryStores()
    stores.groups.offsets = {"ours": {FIRST: 7}}
    api = Api(stores, **{"consumer.group.id": "ours"})
    await api.worker.start()
    await api.create()
    assert (await api.call("GET", "/connectors/shop/offsets")).json() == entries({FIRST: 7})
    await api.worker.stop()


async def test_a_stopped_table_is_read_again_from_any_offset(api: Api) -> None:
    """A merge ignores changes that are already in the table, so any earlier offset is allowed."""
    await stopped(api, {FIRST: 7, SECOND: 8})
    assert (await alter(api, {FIRST: 0})).status == 200
    assert committed(api) == {FIRST: 0, SECOND: 8}
    assert (await api.call("DELETE", "/connectors/shop/offsets")).status == 200
    assert committed(api) == {}


async def test_offsets_of_a_group_that_still_has_members_stay(api: Api) -> None:
    """A task has not ended yet; the error has Connect's text, which asks to try again."""
    await stopped(api, {FIRST: 7})
    api.stores.groups.active.add("connect-shop")
    altered, reset = await alter(api, {FIRST: 1}), await api.call("DELETE", "/connectors/shop/offsets")
    assert (altered.status, reset.status, committed(api)) == (500, 500, {FIRST: 7})
    for answer, verb in ((altered, "alter"), (reset, "reset")):
        assert answer.json()["message"].startswith(
            f"Failed to {verb} consumer group offsets for connector shop either because its tasks haven't stopped "
            f"completely yet or the connector was resumed before the request to {verb} its offsets"
        )


async def test_offsets_wait_until_the_last_task_has_ended(api: Api) -> None:
    """A connector that is stopping has a task that commits once more."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    ended = asyncio.Event()
    api.tasks.tasks["shop-0"].stop = ended.wait
    await api.call("PUT", "/connectors/shop/stop")
    early = await alter(api, {FIRST: 1})
    ended.set()
    await api.until("STOPPED")
    late = await alter(api, {FIRST: 1})
    assert (early.status, late.status, committed(api)) == (400, 200, {FIRST: 1})


async def test_numbers_that_java_could_not_hold_are_no_integers(api: Api) -> None:
    """Partitions have 32 bits, offsets 64."""
    await stopped(api, {})
    partition = (await alter(api, {TopicPartition(TOPIC, 2**31): 1})).json()["message"]
    offset = (await alter(api, {FIRST: 2**63})).json()["message"]
    assert partition.startswith("Failed to parse the following Kafka partition value in the provided offsets: '2147")
    assert offset.startswith("Failed to parse the following Kafka offset value in the provided offsets: '9223")


@pytest.mark.parametrize("offset", [0, 4, None])
async def test_a_history_that_holds_the_events_is_not_rewound(api: Api, lake: Lake, offset: int | None) -> None:
    """No event would be appended again, so the error names the remedy and no offset changes."""
    await stopped(api, {FIRST: 5}, **HISTORY)
    lake.hold("connect-shop", {FIRST: 5})
    answer = await alter(api, {FIRST: offset})
    assert (answer.status, committed(api)) == (400, {FIRST: 5})
    for piece in ("the events below offset 5", "appended once", "drop its table", "table.namespace"):
        assert piece in answer.json()["message"]


async def test_a_history_is_not_reset_unless_it_holds_nothing(api: Api, lake: Lake) -> None:
    """After its table is dropped, the group may be reset: then all events are appended again."""
    await stopped(api, {FIRST: 5}, **HISTORY)
    lake.hold("connect-shop", {FIRST: 5})
    assert (await api.call("DELETE", "/connectors/shop/offsets")).status == 400
    lake.drop()
    assert (await api.call("DELETE", "/connectors/shop/offsets")).status == 200
    assert committed(api) == {}


async def test_a_history_may_skip_events_and_a_group_that_begins_at_the_end_may_begin_there(
    api: Api, lake: Lake
) -> None:
    """A request may set offsets of a history forward, and remove them with auto.offset.reset=latest."""
    await stopped(api, {FIRST: 5}, **HISTORY, **{"consumer.override.auto.offset.reset": "latest"})
    lake.hold("connect-shop", {FIRST: 5})
    assert (await alter(api, {FIRST: 5, SECOND: 9})).status == 200
    assert (await alter(api, {FIRST: None})).status == 200
    assert committed(api) == {SECOND: 9}


async def test_a_history_named_by_its_events_is_never_rewound(api: Api) -> None:
    """The request does not contain the table's name, so the worker cannot check its offsets."""
    await stopped(api, {FIRST: 5}, **HISTORY, **{"collection.name.format": "${source.table}"})
    answer = await alter(api, {FIRST: 0})
    assert answer.status == 400
    assert "collection.name.format=${source.table}" in answer.json()["message"]


async def test_a_lake_out_of_reach_lets_no_history_be_rewound(api: Api, lake: Lake) -> None:
    """The answer is 500 with Connect's text; the cause is in the log."""
    await stopped(api, {FIRST: 5}, **HISTORY)
    lake.outage = "the warehouse is down"
    answer = await alter(api, {FIRST: 0})
    assert (answer.status, answer.json()["message"]) == (500, "Failed to modify offsets for sink connector shop")
    assert committed(api) == {FIRST: 5}
