"""What a reader sees in a table: exactly the changes up to the offsets of its commit, or the proof that it does not."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from pyiceberg.table import StaticTable

_OFFSETS = "headrace.offsets"
_TIMEOUT_SECONDS = 10.0


def assert_prefix(table: StaticTable, bootstrap_servers: str, topic: str, key: str) -> int:
    """Fail unless the rows are those that the records of ``topic`` leave up to the offset of the newest commit.

    The rows are compared by their ``key``, each once. Returns that offset.
    """
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    end = int(json.loads(snapshot.summary[_OFFSETS])[topic]["offsets"]["0"])
    found = table.scan(selected_fields=(key,)).to_arrow()[key].to_pylist()
    assert len(found) == len(set(found)), "a row is visible twice"
    wanted = _keys_after(bootstrap_servers, topic, end, key)
    assert set(found) == wanted, f"{len(set(found) ^ wanted)} keys differ from those of the first {end} records"
    return end


def _keys_after(bootstrap_servers: str, topic: str, end: int, key: str) -> set[Any]:
    """The keys that exist after the records of a topic before the offset ``end``."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "prefix", "enable.auto.commit": False})
    keys: set[Any] = set()
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        read = 0
        while read < end:
            messages = consumer.consume(500, _TIMEOUT_SECONDS)
            assert messages, f"{topic}: no record at offset {read}"
            for message in messages:
                offset = message.offset()
                assert message.error() is None
                assert offset is not None
                read = offset + 1
                if offset < end and (value := message.value()) is not None:
                    _apply(keys, _payload(value), key)
    finally:
        consumer.close()
    return keys


def _payload(value: bytes) -> dict[str, Any]:
    document = json.loads(value)
    payload: dict[str, Any] = document.get("payload", document)
    return payload


def _apply(keys: set[Any], envelope: dict[str, Any], key: str) -> None:
    if envelope["op"] == "d":
        keys.discard(envelope["before"][key])
    else:
        keys.add(envelope["after"][key])
