"""Tests of the checks of a worker process before it connects to Kafka."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from headrace.config import WorkerConfig
from headrace.core.model.errors import ConfigError
from headrace.service import Service

pytestmark = pytest.mark.anyio
SHOP = {"connector.class": "LakehouseSink", "topics": "shop.public.orders"}


async def _refused(folder: Path, *documents: object) -> str:
    """Return the error of a standalone worker without brokers for these connector files."""
    paths = [folder / f"{number}.json" for number in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    worker = {"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0", "warehouse": str(folder)}
    service = Service(WorkerConfig(worker, distributed=False))
    with pytest.raises(ConfigError) as caught:
        async with asyncio.timeout(10):
            await service.run(paths)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "message_part"),
    [
        ({"taks.max": "1"}, "Did you mean 'tasks.max'"),
        ({"consumer.override.max.poll.recods": "5"}, "did you mean max.poll.records"),
        ({"table.namespace": "../../etc"}, "contains /"),
        ({"connector.class": "Nothing"}, "Failed to find any class"),
    ],
)
async def test_connector_files_are_validated_before_kafka_is_queried(
    tmp_path: Path, config: dict[str, str], message_part: str
) -> None:
    """A standalone worker validates connector files at its start, and the error names the file and the problem."""
    message = await _refused(tmp_path, {"name": "shop", "config": {**SHOP, **config}})
    assert message.startswith(f"{tmp_path}/0.json: ")
    assert message_part in message


async def test_files_that_cannot_be_used_together_are_refused(tmp_path: Path) -> None:
    """The worker refuses two connector files with the same name at its start, before it runs the first one."""
    message = await _refused(tmp_path, *[{"name": "shop", "config": SHOP}] * 2)
    assert message == f"{tmp_path}/1.json: connector shop is already in {tmp_path}/0.json; give it another name"


async def test_a_name_that_no_request_can_address_is_refused(tmp_path: Path) -> None:
    """The worker refuses a connector name that a URL cannot contain, as POST /connectors does."""
    assert "cannot be addressed" in await _refused(tmp_path, {"name": "a/b", "config": SHOP})
