"""The timeline on a real status topic: written by two workers at once, bounded, and continued after a restart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import WORKER, Api

from headrace.core.connect.timeline import EVENTS_PER_CONNECTOR, Kind, is_timeline_key
from headrace_connectors.kafka.stores import KafkaStores
from headrace_dev.kafka import Kafka

pytestmark = [pytest.mark.anyio, pytest.mark.stack]
SECONDS = 60


async def events(api: Api, path: str) -> list[dict[str, Any]]:
    answer = await api.call("GET", path)
    assert answer.status == 200
    found: list[dict[str, Any]] = answer.json()
    return found


async def test_two_workers_write_one_timeline_that_outlives_them(
    stack_kafka: Kafka, unique: Callable[[str], str]
) -> None:
    """The newest events of both remain, for both and for a worker that starts later; the topic keeps no others."""
    name, shop = unique("timeline"), f"/connectors/shop/timeline?limit={2 * EVENTS_PER_CONNECTOR}"
    properties = {
        **WORKER,
        "bootstrap.servers": stack_kafka.bootstrap_servers,
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
    }

    def opened(host: str) -> Api:
        return Api(KafkaStores(properties), host=host, **properties)  # type: ignore[arg-type] - any stores

    one, two = opened("one"), opened("two")
    await one.worker.start()
    await two.worker.start()
    await eventually(lambda: one.worker.cluster.leads or two.worker.cluster.leads, SECONDS)
    leader = one if one.worker.cluster.leads else two
    assert (await leader.create()).status == 201
    for number in range(EVENTS_PER_CONNECTOR):
        for api in (one, two):
            api.worker.timeline.record(Kind.CONFIG_CHANGED, "shop", f"{number} of {api.worker.worker_id}")
    last = {f"{EVENTS_PER_CONNECTOR - 1} of {api.worker.worker_id}" for api in (one, two)}

    def have_all() -> bool:
        shown = [api.worker.timeline.state.events("shop") for api in (one, two)]
        return shown[0] == shown[1] and last <= {event.text for event in shown[0]}

    await eventually(have_all, SECONDS)
    before = await events(one, shop)
    assert before == await events(two, shop)
    assert len(before) == EVENTS_PER_CONNECTOR
    assert {event["worker_id"] for event in before} == {"one:8083", "two:8083"}
    await two.worker.stop()
    await one.worker.stop()

    again = opened("one")
    await again.worker.start()
    assert await events(again, shop) == before
    kinds = [event["kind"] for event in await events(again, "/timeline?kind=WORKER_STARTED&kind=WORKER_STOPPED")]
    assert kinds == ["WORKER_STARTED", "WORKER_STOPPED", "WORKER_STOPPED", "WORKER_STARTED", "WORKER_STARTED"]
    again.worker.timeline.record(Kind.CONFIG_CHANGED, "shop", "after the restart")
    await again.worker.stop()

    records, reader = dict[str, bytes | None](), KafkaStores(properties)
    await reader.statuses.start(records.__setitem__)
    await reader.close()
    values = [value for key, value in records.items() if is_timeline_key(key) and value is not None]
    assert len([value for value in values if b'"connector":"shop"' in value]) == EVENTS_PER_CONNECTOR
    assert len([value for value in values if b"after the restart" in value]) == 1
