"""A converter that does not fit its topic fails the task at once, with a message that names the setting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recordings.records import RecordedRecord, publish
from support.records.envelopes import change, key

from headrace_dev.kafka import Kafka
from headrace_dev.server import http, wait_until
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark]

JSON = "org.apache.kafka.connect.json.JsonConverter"
TEXT = "org.apache.kafka.connect.storage.StringConverter"
AVRO = "io.confluent.connect.avro.AvroConverter"
COLUMNS = {f"c{number}": "text of a column" for number in range(30)}
PLAIN_KEYS = {"key.converter": JSON, "key.converter.schemas.enable": "false"}
PLAIN_VALUES = {"value.converter": JSON, "value.converter.schemas.enable": "false"}
AVRO_VALUES = {"value.converter": AVRO, "value.converter.schema.registry.url": "http://127.0.0.1:9"}
OTHER_COLUMN = {"primary.key.fields": "number"}

MISTAKES: dict[str, tuple[bool, dict[str, str], str]] = {
    "value": (True, PLAIN_VALUES, "value.converter.schemas.enable=true"),
    "key": (True, PLAIN_KEYS, "key.converter.schemas.enable=true"),
    "both": (True, {**PLAIN_KEYS, **PLAIN_VALUES}, "key.converter.schemas.enable=true"),
    "text": (True, {"value.converter": TEXT}, "set value.converter to the converter with which the source"),
    "avro": (True, AVRO_VALUES, "magic byte"),
    "column": (True, OTHER_COLUMN, "primary.key.fields names number, which the event's row does not have"),
    "plain": (False, {}, "set schemas.enable=false"),
    "plain-value": (False, PLAIN_KEYS, "set schemas.enable=false"),
    "plain-column": (False, {**PLAIN_KEYS, **PLAIN_VALUES, **OTHER_COLUMN}, "primary.key.fields names number, which"),
}
"""By name: whether the topic has JSON with schemas, the connector's settings, and what the message has to contain."""

RECORDS = 4_000
"""As many as a poll returns: an error that is found record by record took minutes."""


def test_a_wrong_converter_fails_the_task_at_once(
    stack_kafka: Kafka, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Each mistake of JSON's settings, of the converter's class and of the key's columns fails within the deadline."""
    topics = {schemas: unique("converted.items") for schemas in (True, False)}
    publish(
        stack_kafka.bootstrap_servers,
        [
            RecordedRecord(topic, 0, n, 0, key({"id": n}, schemas=schemas), value, ())
            for schemas, topic in topics.items()
            for n in range(RECORDS)
            for value in [change("c", {"id": n, **COLUMNS}, n + 1, schemas=schemas)]
        ],
    )
    name = unique("converters")
    storage = {"config.storage.topic": f"{name}-c", "status.storage.topic": f"{name}-s"}
    properties = {"group.id": name, **storage, **SHORT_LIVED}
    worker = Worker(tmp_path, stack_kafka, tmp_path / "warehouse", properties=properties)
    worker.start()
    try:
        for mistake, (schemas, settings, message) in MISTAKES.items():
            connector = f"{name}-{mistake}"
            config = {"connector.class": "LakehouseSink", "topics": topics[schemas], "tasks.max": "1", **settings}
            http.put(f"{worker.url}/connectors/{connector}/config", json=config, timeout=60).raise_for_status()
            wait_until(lambda of=connector: "FAILED" in worker.states(of), f"failure of {connector}", 60)
            assert message in worker.traces(connector), mistake
            worker.call("DELETE", f"/connectors/{connector}")
    finally:
        worker.kill()
