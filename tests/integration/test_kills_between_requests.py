"""``kill -9`` of a worker process right after its answer: the next process shows the last acknowledged state.

``tests/rest/test_kill_between_records.py`` tests the same property for every single record; here with a real process
and broker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = pytest.mark.stack

SHOP = {"connector.class": "LakehouseSink", "topics": "shop.orders,shop.orders.items", "name": "shop"}
TWO = {**SHOP, "tasks.max": "2"}
LIFE: list[tuple[str, str, object, list[str], dict[str, str] | None]] = [
    ("POST", "", {"name": "shop", "config": SHOP}, ["RUNNING"] * 2, SHOP),
    ("PATCH", "/shop/config", {"tasks.max": 2}, ["RUNNING"] * 3, TWO),
    ("PUT", "/shop/pause", None, ["PAUSED"] * 3, TWO),
    ("PUT", "/shop/stop", None, ["STOPPED"], TWO),
    ("DELETE", "/shop", None, [], None),
]
"""Requests, and what their answers promise: states and configuration."""


@pytest.fixture
def worker(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> Iterator[Worker]:
    """A worker with its own storage topics."""
    name = unique("kills")
    topics = {"config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
    worker = Worker(
        tmp_path, stack_kafka, tmp_path / "warehouse", properties={"group.id": name, **topics, **SHORT_LIVED}
    )
    worker.start()
    yield worker
    worker.kill()


@pytest.mark.parametrize(
    "kills", [["/shop/stop"], pytest.param([path for _, path, *_ in LIFE], marks=pytest.mark.long)], ids=["one", "all"]
)
def test_what_was_acknowledged_outlives_a_kill(worker: Worker, kills: list[str]) -> None:
    """Create, patch, pause, stop, delete, each followed by SIGKILL; the test waits for the end of the process."""
    for method, path, body, states, config in LIFE:
        answer = http.request(method, f"{worker.url}/connectors{path}", json=body, timeout=30)
        if path in kills:
            os.kill(worker.server.pid, signal.SIGKILL)
            wait_until(lambda: not worker.server.running, "end of the process", 10)
            assert not worker.answers()
            worker.kill()
            worker.start()
        assert answer.is_success, answer.text
        found = http.get(f"{worker.url}/connectors/shop/config", timeout=30)
        assert (found.json() if found.is_success else None) == config
        wait_until(lambda states=states: worker.states("shop") == states, f"{states} after {method} {path}", 30)
