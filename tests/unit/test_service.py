"""Tests of a worker process without Kafka: its checks before it connects, and its end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.config import WorkerConfig
from headrace.core.model.errors import ConfigError
from headrace_app import composition

pytestmark = pytest.mark.anyio
SHOP = {"connector.class": "LakehouseSink", "topics": "shop.public.orders"}


async def _refused(folder: Path, *documents: object) -> str:
    """Return the error of a standalone worker without brokers for these connector files."""
    paths = [folder / f"{number}.json" for number in range(len(documents))]
    for path, document in zip(paths, documents, strict=True):
        path.write_text(json.dumps(document))
    worker = {"bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0", "warehouse": str(folder)}
    service = composition.worker(WorkerConfig(worker, distributed=False))
    with pytest.raises(ConfigError) as caught:
        async with asyncio.timeout(60):
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


_WORKER_WITH_A_TASK_THAT_DOES_NOT_END = """
import asyncio, logging, os, signal, sys
from dataclasses import replace
from headrace import service
from headrace.config import WorkerConfig
from headrace_app import composition
from headrace_dev.memory import MemoryLakehouse

async def stubborn():
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            pass

async def main():
    config = WorkerConfig({
        "bootstrap.servers": "127.0.0.1:1", "listeners": "http://127.0.0.1:0", "warehouse": sys.argv[1]
    }, distributed=False)
    worker = service.Service(config, replace(composition.connectors(config), lakehouse=MemoryLakehouse()))
    endless = asyncio.create_task(stubborn(), name="stubborn")
    asyncio.get_running_loop().call_later(0, os.kill, os.getpid(), signal.SIGTERM)
    await worker.run()

logging.basicConfig(level="INFO")
service._END_SECONDS = 0.5
asyncio.run(main())
"""


def test_a_stopped_worker_ends_although_an_asyncio_task_does_not(tmp_path: Path) -> None:
    """The time limit of a stop includes the end of the event loop, which waits for every asyncio task.

    The log names what still runs.
    """
    ended = subprocess.run(
        [sys.executable, "-c", _WORKER_WITH_A_TASK_THAT_DOES_NOT_END, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ended.returncode == 1, ended.stderr
    _, stopped, after = ended.stderr.partition("Stopped")
    assert stopped, ended.stderr
    assert "Still running: asyncio tasks stubborn; threads none" in after
