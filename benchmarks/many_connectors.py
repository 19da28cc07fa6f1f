"""A worker with many connectors in its config topic: a restored topic, or the worker of a large cluster.

The records of the connectors are written into the topic of a running worker; then the worker starts again with them.
It prints how long each takes until every connector has a status, the longest answer of ``/health`` meanwhile, how long
a request that creates a connector takes, and the listing and the metrics.

``--kind`` says what the connectors are: ``stopped``, ``paused`` (with one task each, which no worker starts), or
``unknown``, of a class that is not installed (FAILED).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Producer

from headrace.config.framework import TASK_CLASS
from headrace.core.connect import config_state
from headrace.core.connect.config_state import KeyValue
from headrace.core.connect.lifecycle import TargetState
from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

KINDS = {"stopped": TargetState.STOPPED, "paused": TargetState.PAUSED, "unknown": TargetState.STARTED}
SETTLE_SECONDS = 900.0


def records(kind: str, count: int) -> Iterator[KeyValue]:
    """Return the records of the config topic."""
    for number in range(count):
        name = f"connector-{number:05}"
        config = {
            "connector.class": "LakehouseSink" if kind != "unknown" else "com.example.OtherSink",
            "name": name,
            "topics": f"shop.public.table{number:05}",
            "tasks.max": "1",
        }
        yield from config_state.connector_records(name, config, KINDS[kind])
        if kind != "stopped":
            task = {**config, "task.class": TASK_CLASS}
            yield from config_state.task_records(name, [task])


def publish(bootstrap_servers: str, topic: str, kind: str, count: int) -> None:
    """Write the records of the connectors into a config topic."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 50})
    for key, value in records(kind, count):
        producer.produce(topic, value, key)
        producer.poll(0)
    producer.flush()


class Probe(threading.Thread):
    """Requests ``/health`` ten times a second, as a probe of Kubernetes does less often."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._ended = threading.Event()
        self.answers: list[float] = []
        """The seconds that each answer took."""
        self.unanswered = 0

    def run(self) -> None:
        """Request until the end."""
        while not self._ended.wait(0.1):
            began = time.monotonic()
            try:
                http.get(f"{self._url}/health", timeout=60)
                self.answers.append(time.monotonic() - began)
            except Exception:
                self.unanswered += 1

    def end(self) -> None:
        """Stop."""
        self._ended.set()
        self.join()


@contextmanager
def probed(url: str) -> Iterator[Probe]:
    """Probe a worker within the block."""
    probe = Probe(url)
    probe.start()
    try:
        yield probe
    finally:
        probe.end()


def listed(worker: Worker) -> int:
    """Return how many connectors have a status."""
    return len(http.get(f"{worker.url}/connectors?expand=status", timeout=60).raise_for_status().json())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connectors", type=int, default=10_000)
    parser.add_argument("--kind", choices=KINDS, default="paused")
    parser.add_argument("--logs", type=Path, default=Path(".logs"), help="where logs go if something fails")
    chosen = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="headrace-connectors-"))
    try:
        with Stack("kafka", logs=chosen.logs) as stack:
            _run(stack.kafka, root, chosen.kind, chosen.connectors)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


def _run(kafka: Kafka, root: Path, kind: str, count: int) -> None:
    worker = Worker(root, kafka, root / "warehouse")
    worker.start()
    with probed(worker.url) as probe:
        publish(kafka.bootstrap_servers, "headrace-configs", kind, count)
        _settle(worker, count, "restored into the topic of a running worker", probe)
    worker.kill()
    began = time.monotonic()
    with probed(worker.url) as probe:
        worker.start(SETTLE_SECONDS)
        print(f"{count} {kind} connectors: ready {time.monotonic() - began:.1f} s after the start")
        _settle(worker, count, "read at the start", probe)
    for path in ("/connectors", "/connectors?expand=status&expand=info", "/metrics"):
        with probed(worker.url) as probe:
            began = time.monotonic()
            size = len(http.get(worker.url + path, timeout=120).raise_for_status().content)
            seconds = time.monotonic() - began
        print(f"GET {path}: {size / 1e6:.1f} MB in {seconds:.1f} s; /health at most {_longest(probe)}")
    worker.kill()


def _settle(worker: Worker, count: int, how: str, probe: Probe) -> None:
    began = time.monotonic()
    body = {"name": how, "config": {"connector.class": "LakehouseSink", "topics": "other"}, "initial_state": "PAUSED"}
    http.post(f"{worker.url}/connectors", json=body, timeout=120).raise_for_status()
    created = time.monotonic() - began
    wait_until(lambda: listed(worker) >= count, "a status of every connector", SETTLE_SECONDS, 1.0)
    print(
        f"{how}: all statuses after {time.monotonic() - began:.1f} s, a connector created in {created:.1f} s; "
        f"/health at most {_longest(probe)}"
    )


def _longest(probe: Probe) -> str:
    return f"{max(probe.answers, default=0.0):.2f} s in {len(probe.answers)} answers, {probe.unanswered} without"


if __name__ == "__main__":
    sys.exit(main())
