"""A worker with 10,000 connectors in its config topic answers, when they are restored into it and when it starts.

The deadlines are generous, because a machine may be busy. ``python -m benchmarks.many_connectors`` prints the times.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.many_connectors import listed, probed, publish

from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until
from headrace_dev.worker import Worker

pytestmark = [pytest.mark.stack, pytest.mark.long]
COUNT = 10_000
ANSWER_SECONDS = 10.0
SETTLE_SECONDS = 240.0
OTHER = {"connector.class": "LakehouseSink", "topics": "other"}


def test_a_worker_with_ten_thousand_connectors_answers(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Probes, the listing and a request that creates a connector are answered all the time."""
    name = unique("many")
    properties = {"group.id": name, "config.storage.topic": f"{name}-configs", "status.storage.topic": f"{name}-status"}
    worker = Worker(tmp_path, stack_kafka, tmp_path / "warehouse", properties=properties)
    try:
        worker.start()
        with probed(worker.url) as probe:
            publish(stack_kafka.bootstrap_servers, f"{name}-configs", "paused", COUNT)
            _create(worker, "while-restored")
            _settled(worker, COUNT + 1)
        assert max(probe.answers) < ANSWER_SECONDS
        worker.kill()
        with probed(worker.url) as probe:
            worker.start(SETTLE_SECONDS)
            _create(worker, "after-start")
            _settled(worker, COUNT + 2)
        assert max(probe.answers) < ANSWER_SECONDS
        with probed(worker.url) as probe:
            http.get(f"{worker.url}/metrics", timeout=60).raise_for_status()
        assert max(probe.answers, default=0.0) < ANSWER_SECONDS
    finally:
        worker.kill()


def _create(worker: Worker, name: str) -> None:
    """Create a connector. A cluster that rebalances answers 409, which clients repeat."""

    def created() -> bool:
        body = {"name": name, "config": OTHER, "initial_state": "PAUSED"}
        answer = http.post(f"{worker.url}/connectors", json=body, timeout=90)
        assert answer.status_code in (201, 409), answer.text
        return answer.status_code == 201 or name in worker.call("GET", "/connectors")

    wait_until(created, f"creation of {name}", SETTLE_SECONDS, 1.0)


def _settled(worker: Worker, count: int) -> None:
    wait_until(lambda: listed(worker) >= count, f"statuses of {count} connectors", SETTLE_SECONDS, 1.0)
