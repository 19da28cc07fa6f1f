"""A connector whose record in the config topic is not usable: other tools write that topic as well."""

from __future__ import annotations

import json

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace.core.connect import config_state
from headrace.core.connect.lifecycle import TargetState

pytestmark = pytest.mark.anyio

UNUSABLE = {
    "a number that JSON does not have": (b'{"properties":{"connector.class":"LakehouseSink","topics":NaN}}', "topics"),
    "a number": (b'{"properties":{"connector.class":"LakehouseSink","topics":"a","tasks.max":2}}', "tasks.max"),
    "an object": (b'{"properties":{"connector.class":"LakehouseSink","topics":{"a":"b"}}}', "topics"),
    "half of a surrogate pair": (b'{"properties":{"topics":"\\ud800"}}', "topics"),
    "half of a surrogate pair as option": (b'{"properties":{"\\ud800":"a"}}', "\\ud800"),
    "properties that are a list": (b'{"properties":["topics"]}', '"properties"'),
    "no properties": (b'{"config":{}}', '"properties"'),
    "a value that is a number": (b"7", '"properties"'),
    "a value that is text": (b'"shop"', '"properties"'),
    "a value that is no JSON": (b"{broken", "not JSON"),
    "bytes that are not Unicode": (b'{"properties":{"topics":"\xff"}}', "not JSON"),
    "too many levels": (b"[" * 100_000, "not JSON"),
}
values = pytest.mark.parametrize(("value", "reason"), UNUSABLE.values(), ids=UNUSABLE)


async def _failed(api: Api, name: str) -> str:
    """Wait until the connector has failed. Return its trace."""

    def trace() -> str:
        seen = api.worker.statuses.connector(name)
        return (seen.trace or "") if seen is not None and seen.state == "FAILED" else ""

    await eventually(lambda: trace() != "")
    return trace()


@values
async def test_only_that_connector_is_failed_with_the_reason(api: Api, value: bytes, reason: str) -> None:
    """The listing shows it as FAILED and all others as they are. The trace says what to do, without a value."""
    await api.stores.configs.append([("connector-bad", value)])
    trace = await _failed(api, "bad")
    assert "its record connector-bad in the config topic is not usable" in trace
    assert reason in trace
    assert "PUT /connectors/bad/config" in trace
    assert "NaN" not in trace
    assert (await api.status("bad"))["connector"]["trace"] == trace
    answer = await api.call("GET", "/connectors?expand=status&expand=info&expand=owner")
    assert answer.status == 200
    listed = answer.json()
    assert listed["bad"]["status"]["connector"]["state"] == "FAILED"
    assert all(isinstance(text, str) for text in listed["bad"]["info"]["config"].values())
    assert listed["shop"]["status"]["connector"]["state"] == "RUNNING"
    for path in ("", "/config", "/status", "/tasks"):
        assert (await api.call("GET", f"/connectors/bad{path}")).status == 200


@values
async def test_it_is_repaired_by_a_configuration(api: Api, value: bytes, reason: str) -> None:
    """PUT stores a usable record, and the connector runs."""
    await api.stores.configs.append([("connector-bad", value)])
    await _failed(api, "bad")
    config = {**SHOP, "topics": "shop.public.other"}
    assert (await api.call("PUT", "/connectors/bad/config", config)).status == 200
    await api.until("RUNNING", "RUNNING", name="bad")
    assert "trace" not in (await api.status("bad"))["connector"]


@values
async def test_it_is_deleted(api: Api, value: bytes, reason: str) -> None:
    """DELETE removes it."""
    await api.stores.configs.append([("connector-bad", value)])
    await _failed(api, "bad")
    assert (await api.call("DELETE", "/connectors/bad")).status == 204
    await eventually(lambda: api.worker.statuses.connector("bad") is None)
    assert (await api.call("GET", "/connectors")).json() == ["shop"]


async def test_it_is_failed_after_a_restart_as_well(api: Api) -> None:
    """A worker that starts with the record shows it, instead of a topic without the connector."""
    await api.stores.configs.append([("connector-bad", b"{broken")])
    await _failed(api, "bad")
    await api.worker.stop()
    again = Api(api.stores)
    await again.worker.start()
    await _failed(again, "bad")
    await again.until("RUNNING", "RUNNING")
    await again.worker.stop()


async def test_a_running_connector_keeps_its_tasks(api: Api) -> None:
    """The record of a running connector is replaced: its tasks continue with their configuration until the repair."""
    await api.stores.configs.append([("connector-shop", b'{"properties":{"topics":NaN}}')])
    await api.until("FAILED", "RUNNING")
    assert api.tasks.made == 1


@pytest.mark.parametrize("target", [TargetState.STOPPED, TargetState.PAUSED])
async def test_a_connector_that_should_not_run_is_failed_too(api: Api, target: TargetState) -> None:
    """Stop and pause take effect on its tasks, and the status still has the reason."""
    await api.stores.configs.append([("connector-shop", b'{"properties":{"topics":NaN}}')])
    await api.until("FAILED", "RUNNING")
    await api.stores.configs.append([config_state.target_state_record("shop", target)])
    await api.until(*(("FAILED",) if target is TargetState.STOPPED else ("FAILED", "PAUSED")))
    assert "not usable" in await _failed(api, "shop")


async def test_a_name_that_no_request_can_address(api: Api) -> None:
    """A connector with an empty name is FAILED, and the trace says which record removes it."""
    await api.stores.configs.append(config_state.connector_records("", {**SHOP, "topics": "other"}))
    trace = await _failed(api, "")
    assert "the connector's name is empty" in trace
    assert "write a record with the key connector- and a null value to this topic" in trace
    listed = (await api.call("GET", "/connectors?expand=status&expand=info")).json()
    assert {name: each["status"]["connector"]["state"] for name, each in listed.items()} == {
        "shop": "RUNNING",
        "": "FAILED",
    }
    await api.stores.configs.append([("connector-", None)])
    await eventually(lambda: api.worker.statuses.connector("") is None)


@pytest.mark.parametrize(
    "record",
    [
        ("status-connector-shop", b'{"state":"RUNNING","worker_id":NaN}'),
        ("status-connector-shop", b'{"state":"RUNNING","worker_id":"w","trace":1e999}'),
        ("status-task-shop-0", b'{"state":"RUNNING","worker_id":"w","generation":99,"version":NaN}'),
        ("status-notes-shop-0", b'{"notes":[{"note":NaN,"where":[]}]}'),
        ("status-notes-shop-0", b'{"notes":[{"note":"n","where":["\\ud800"]}]}'),
        ("status-topic-t:connector-shop", b'{"topic":{"name":NaN,"connector":"shop","task":0,"discoverTimestamp":1}}'),
        ("headrace-owner-shop", b'{"owner":"\\ud800"}'),
        ("task-shop-0", b'{"properties":{"topics":NaN}}'),
    ],
)
async def test_other_records_that_are_not_usable_keep_the_listing(api: Api, record: tuple[str, bytes]) -> None:
    """Records of both topics reach the answers. What JSON cannot contain is refused when it is read."""
    topic = api.stores.statuses if record[0].startswith("status") else api.stores.configs
    await topic.append([record])
    if record[0].startswith("task"):
        await api.stores.configs.append([("commit-shop", b'{"tasks":1}')])
    answer = await api.call("GET", "/connectors?expand=status&expand=info&expand=owner")
    assert answer.status == 200
    assert json.loads(answer.body)["shop"]["info"]["config"]["name"] == "shop"
    for path in ("/tasks", "/topics", "/status"):
        assert (await api.call("GET", f"/connectors/shop{path}")).status == 200
