"""A topic of hostile records harms neither the worker nor the connector's other table."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from recordings.records import RecordedRecord, publish
from support.kafka.kafka_harness import first_messages
from support.records.envelopes import change, key
from support.records.hostile_records import HOSTILE

from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

LARGEST = 900_000
"""A broker's default limit is about a megabyte, also for the dead letter with its headers."""


def test_hostile_records_become_dead_letters(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """Each is a dead letter with its topic, partition and offset; both tables get their rows; the worker answers."""
    hostile, good, queue = unique("hostile.items"), unique("good.items"), unique("letters")
    values = [each for each in HOSTILE.values() if len(each) < LARGEST]
    rows = [change("c", {"id": 0}, 1), *values, change("c", {"id": 1}, 9)]
    publish(
        stack_kafka.bootstrap_servers,
        [
            *(RecordedRecord(hostile, 0, n, 0, key({"id": n}), value, ()) for n, value in enumerate(rows)),
            *(RecordedRecord(good, 0, n, 0, key({"id": n}), change("c", {"id": n}, n + 1), ()) for n in range(100)),
        ],
    )
    name = unique("hostile")
    storage = {"config.storage.topic": f"{name}-c", "status.storage.topic": f"{name}-s"}
    properties = {"group.id": name, **storage, **SHORT_LIVED}
    worker = Worker(tmp_path, stack_kafka, tmp_path / "warehouse", properties=properties)
    worker.start()
    try:
        pid = worker.server.pid
        worker.put_connector(
            "shop",
            {
                "connector.class": "LakehouseSink",
                "topics": f"{hostile},{good}",
                "tasks.max": "1",
                "errors.tolerance": "all",
                "errors.log.enable": "true",
                "errors.deadletterqueue.topic.name": queue,
                "errors.deadletterqueue.topic.replication.factor": "1",
                "errors.deadletterqueue.context.headers.enable": "true",
            },
        )
        slowest = 0.0

        def written() -> bool:
            nonlocal slowest
            begin = time.monotonic()
            committed = worker.committed("shop")
            slowest = max(slowest, time.monotonic() - begin)
            return committed.get((hostile, 0)) == len(rows) and committed.get((good, 0)) == 100

        wait_until(written, "rows of both tables", 180)
        assert set(worker.states("shop")) == {"RUNNING"}
        assert worker.server.running
        assert worker.server.pid == pid
        assert slowest < 10
        letters = [dict(each.headers()) for each in first_messages(stack_kafka.bootstrap_servers, queue, len(values))]
        where = {
            tuple(each[f"__connect.errors.{part}"].decode() for part in ("topic", "partition", "offset"))
            for each in letters
        }
        assert where == {(hostile, "0", str(n)) for n in range(1, len(rows) - 1)}
    finally:
        worker.kill()
