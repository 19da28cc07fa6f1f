"""Headrace reads, shows and continues the topics of a stopped Connect cluster (``connect.md`` section 18)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from support.kafka.connect_topics import ALIEN, records
from support.rest.worker_api import SHOP, Api

from headrace.core.connect import config_state, status
from headrace.core.connect.lifecycle import TargetState
from headrace.core.connect.status import StatusState
from headrace.ports import LogRecord, TopicPartition
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker with these topics."""
    stores = MemoryStores()
    await stores.configs.append(records("configs"))
    await stores.statuses.append(records("status"))
    api = Api(stores)
    await api.worker.start()
    yield api
    await api.worker.stop()


def test_what_connect_has_written_is_what_is_written_here() -> None:
    """Headrace writes every configuration, target state and commit of a recorded cluster as the same JSON.

    Jackson escapes emoji.
    """
    state, alive = config_state.ClusterConfigState(), 0
    for key, value in records("configs"):
        state.apply(key, value)
        if value is not None and (again := _config_record(state, key)) is not None:
            assert again[0] == key
            assert again[1] is not None
            assert json.loads(again[1]) == json.loads(value)
            alive += 1
    assert alive > 150


def test_statuses_are_written_as_connect_writes_them() -> None:
    """Headrace writes the statuses of connectors, tasks and topics byte for byte as Connect does."""
    for key, value in records("status"):
        assert value is None or _status_value(key, value) == value


async def test_connectors_of_an_unknown_class_are_listed_as_failed_with_the_reason(api: Api) -> None:
    """Connectors of an unknown class and their tasks are FAILED with the reason, whatever another worker wrote."""
    await api.until("FAILED", "FAILED", name="d1")
    listed = (await api.call("GET", "/connectors?expand=status&expand=info")).json()
    assert len(listed) == 16
    assert listed["d1"]["info"]["config"]["connector.class"] == ALIEN
    seen = listed["d1"]["status"]
    for one in (seen["connector"], *seen["tasks"]):
        assert one["worker_id"] == "worker:8083"
        assert f"the class '{ALIEN}' is not installed on this worker" in one["trace"]


async def test_a_stopped_connector_of_an_unknown_class_stays_stopped(api: Api) -> None:
    """A stopped connector of an unknown class stays STOPPED, because it is not started."""
    await api.until("STOPPED", name="s1")


async def test_a_connector_of_connect_runs_with_a_class_of_headrace(api: Api) -> None:
    """The migration is one PUT, under the same name and with the same consumer group."""
    await api.until("FAILED", "FAILED", name="d1")
    assert (await api.call("PUT", "/connectors/d1/config", {**SHOP, "tasks.max": "2"})).status == 200
    await api.until("RUNNING", "RUNNING", "RUNNING", name="d1")
    assert "trace" not in (await api.status("d1"))["tasks"][0]


async def test_a_connector_of_an_unknown_class_can_be_deleted(api: Api) -> None:
    """A DELETE removes the records of a connector from both topics."""
    await api.until("FAILED", "FAILED", name="d2")
    assert (await api.call("DELETE", "/connectors/d2")).status == 204
    await api.until("none", name="d2")


async def test_a_connector_that_is_created_again_finds_its_groups_offsets(api: Api) -> None:
    """A DELETE does not delete the consumer group, as in Connect."""
    partition = TopicPartition("shop.public.orders", 0)
    api.stores.groups.offsets = {"connect-shop": {partition: 7}}
    await api.create()
    await api.call("DELETE", "/connectors/shop")
    await api.until("none")
    await api.create()
    offsets = (await api.call("GET", "/connectors/shop/offsets")).json()["offsets"]
    assert [entry["offset"] for entry in offsets] == [{"kafka_offset": 7}]


def _config_record(state: config_state.ClusterConfigState, key: str) -> LogRecord | None:
    """The record that Headrace writes for the state after a record; None if the key is no state."""
    record_type, _, name = key.partition("-")
    if record_type == "connector":
        return config_state.connector_records(name, state.connector_config(name) or {})[0]
    if record_type == "target":
        name = name.removeprefix("state-")
        return config_state.target_state_record(name, TargetState(state.target_state(name)))
    if record_type == "commit":
        return config_state.task_records(name, state.task_configs(name))[-1]
    return None


def _status_value(key: str, value: bytes) -> bytes | None:
    state = StatusState()
    state.apply(key, value)
    encoded = [
        *(status.encode_status(seen) for seen in state.connectors.values()),
        *(status.encode_status(seen) for tasks in state.tasks.values() for seen in tasks.values()),
        *(status.encode_topic(seen) for topics in state.topics.values() for seen in topics.values()),
    ]
    [only] = encoded
    return only
