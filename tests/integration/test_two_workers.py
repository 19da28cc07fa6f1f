"""Two worker processes of one cluster: tasks are shared, either answers for both, and a dead one's tasks move."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.worker import Worker

pytestmark = pytest.mark.stack
SHOP = {"connector.class": "LakehouseSink", "topics": "shop.orders", "tasks.max": "2"}
SESSION_SECONDS = 6


@pytest.fixture
def workers(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[list[Worker]]:
    """Two of them, that run."""
    name = unique("pair")
    properties = {
        "group.id": name,
        "config.storage.topic": f"{name}-configs",
        "status.storage.topic": f"{name}-status",
        "session.timeout.ms": str(1000 * SESSION_SECONDS),
    }
    workers = [
        Worker(tmp_path, stack_kafka, tmp_path / "warehouse", name=f"worker-{number}", properties=properties)
        for number in range(2)
    ]
    for worker in workers:
        worker.start()
    yield workers
    for worker in workers:
        worker.kill()


def test_a_pair(workers: list[Worker]) -> None:
    """One life of a cluster, told by either worker."""
    first, second = workers
    began = time.monotonic()
    second.put_connector("shop", SHOP)
    print(f"running after {time.monotonic() - began:.1f} s")
    wait_until(lambda: owners(first) == owners(second) == {address(first), address(second)}, "a task on each", 30)
    print(f"spread after {time.monotonic() - began:.1f} s")
    for verb, state in (("pause", "PAUSED"), ("resume", "RUNNING")):
        for worker in workers:
            worker.call("PUT", f"/connectors/shop/{verb}")
        wait_until(partial(all_are, workers, state), state, 30)
    for number in range(2):
        assert httpx.post(f"{second.url}/connectors/shop/tasks/{number}/restart").status_code == 204
    wait_until(lambda: set(first.states("shop")) == {"RUNNING"}, "running again", 30)
    first.kill()
    began = time.monotonic()
    wait_until(lambda: owners(second) == {address(second)}, "all tasks on the other", 3 * SESSION_SECONDS)
    print(f"moved after {time.monotonic() - began:.1f} s")
    wait_until(lambda: second.states("shop") == ["RUNNING"] * 3, "running", 30)
    second.call("PUT", "/connectors/shop/pause")
    first.start()
    wait_until(lambda: owners(first) == {address(first), address(second)}, "a task on each", 30)
    assert first.states("shop") == ["PAUSED"] * 3


def all_are(workers: list[Worker], state: str) -> bool:
    """Whether connector and tasks are in one state, as every worker says."""
    return all(set(worker.states("shop")) == {state} for worker in workers)


def address(worker: Worker) -> str:
    """Its ``worker_id``."""
    return worker.url.removeprefix("http://")


def owners(worker: Worker) -> set[str]:
    """The workers on which the connector's tasks are, as ``worker`` says."""
    return {task["worker_id"] for task in worker.call("GET", "/connectors/shop/status")["tasks"]}
