"""The config and status topics of a stopped Kafka Connect worker (``tests/fixtures/connect-rest``)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from headrace.ports import LogRecord

FIXTURE = Path(__file__).parents[2] / "fixtures" / "connect-rest" / "internal-topics.jsonl"
ALIEN = "org.apache.kafka.connect.file.FileStreamSinkConnector"
"""The class of most connectors in it."""


@cache
def records(topic: str) -> tuple[LogRecord, ...]:
    """The records of ``configs`` or ``status`` in their order."""
    rows = map(json.loads, FIXTURE.read_text().splitlines())
    return tuple(
        (row["key"], None if row["value"] is None else row["value"].encode())
        for row in rows
        if row["topic"] == f"ref-rest3-{topic}"
    )
