"""``headrace replay-dlq`` with a dead letter queue on a real broker and a real table."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from support.kafka.kafka_settings import dead_letter_options, settings_of
from support.records.envelopes import change, key

from headrace.core.model.errors import BadRecord, Stage
from headrace.ports import ErrantRecord
from headrace_connectors.kafka import KafkaFeedFactory
from headrace_dev import jars
from headrace_dev.kafka import Kafka
from headrace_dev.memory.feed import MemoryRecord

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.long]

TOPIC = "shop.public.items"
JSON = "org.apache.kafka.connect.json.JsonConverter"


async def send(kafka: Kafka, topic: str, values: list[bytes]) -> None:
    """Write dead letters of the connector ``sink``."""
    feeds = KafkaFeedFactory({"bootstrap.servers": kafka.bootstrap_servers})
    await feeds.start()
    queue = await feeds.dead_letter_queue("sink", 0, settings_of(dead_letter_options(topic)))
    assert queue is not None
    now = int(time.time() * 1000)
    records = [MemoryRecord(TOPIC, 0, offset, now, key({"id": 1}), value, ()) for offset, value in enumerate(values)]
    await queue.report([ErrantRecord(each, Stage.VALUE_CONVERTER, JSON, BadRecord("no use")) for each in records])
    await queue.close()
    await feeds.close()


def test_letters_of_a_topic_become_rows(stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """A dry run writes nothing.

    A replay applies the newest change and names the broken letter; a second one changes nothing.
    """
    topic = unique("letters")
    values = [change(op, {"id": 1, "name": name}, lsn) for op, name, lsn in (("c", "a", 10), ("u", "b", 20))]
    asyncio.run(send(stack_kafka, topic, [*values, b"{broken"]))
    config = {"connector.class": "LakehouseSink", "topics": TOPIC, **dead_letter_options(topic)}
    (tmp_path / "sink.json").write_text(json.dumps({"name": "sink", "config": config}))
    (tmp_path / "worker.properties").write_text(
        f"bootstrap.servers={stack_kafka.bootstrap_servers}\nlisteners=http://127.0.0.1:1\n"
        f"warehouse={tmp_path / 'warehouse'}\nspark.master=local[1]\nspark.driver.memory=1g\n"
    )

    def replay(*arguments: str) -> tuple[int, str]:
        command = [sys.executable, "-m", "headrace", "replay-dlq", "worker.properties", "sink.json", *arguments]
        places = {"PYTHONPATH": os.pathsep.join(sys.path), "HEADRACE_JARS": str(jars.folder("lakehouse"))}
        done = subprocess.run(
            command, env=os.environ | places, capture_output=True, text=True, timeout=300, cwd=tmp_path
        )
        print(done.stdout, done.stderr)
        return done.returncode, done.stdout

    assert replay("--dry-run") == (
        0, f"{TOPIC}: 3 (VALUE_CONVERTER, headrace.core.model.errors.BadRecord)\n3 dead letters of connector sink\n"
    )  # fmt: skip
    table = tmp_path / "warehouse" / "headrace" / "shop_public_items"
    assert not table.exists()
    for _ in range(2):
        status, output = replay()
        assert status == 1
        assert f"{TOPIC}-0 at offset 2 cannot be used: VALUE_CONVERTER" in output
        rows = StaticTable.from_metadata(str(table)).scan().to_arrow().to_pylist()
        assert [(row["id"], row["name"]) for row in rows] == [(1, "b")]
