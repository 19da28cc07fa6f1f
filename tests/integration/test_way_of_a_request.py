"""A change of a connector's configuration from the REST route to the config topic: what docs/architecture.md lists."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.repository.way import Frame, check_page, ours, stack
from support.rest.worker_api import SHOP, WORKER, Api

from headrace.ports import LogRecord
from headrace_connectors.kafka.log import KafkaFencedLog
from headrace_connectors.kafka.stores import KafkaStores
from headrace_dev.kafka import Kafka

pytestmark = [pytest.mark.anyio, pytest.mark.stack]


async def test_the_way_of_a_configuration(
    stack_kafka: Kafka, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request passes the functions of the page, in their order, and the config topic has it when it is answered."""
    name = unique("request")
    properties = {
        **WORKER,
        "bootstrap.servers": stack_kafka.bootstrap_servers,
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
    }
    stores = KafkaStores(properties)
    api = Api(stores, **properties)  # type: ignore[arg-type] - any stores
    frames: dict[Frame, None] = {}
    append = KafkaFencedLog.append

    async def noting(log: KafkaFencedLog, records: Sequence[LogRecord]) -> Any:
        if any(key == "connector-shop" for key, _ in records):
            frames.update(dict.fromkeys(reversed([*ours(append.__code__), *stack(sys._getframe(1))])))
        return await append(log, records)

    await api.worker.start()
    try:
        await eventually(lambda: api.worker.cluster.leads, 60)
        monkeypatch.setattr(KafkaFencedLog, "append", noting)
        answer = await api.call("PUT", "/connectors/shop/config", SHOP)
        assert answer.status == 201
        assert api.worker.configs.state.connector_config("shop") == {**SHOP, "name": "shop"}
    finally:
        await api.worker.stop()
    check_page("One request, step by step", list(frames), 20, 12)
