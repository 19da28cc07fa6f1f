"""Data that Debezium's connector for Cassandra loses, detected in the values that it sends."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cassandra.losses import TEXTS, Loss, Losses, losses_of
from headrace.core.model.notes import Note
from headrace.core.model.schema import Schema

SEEN = [
    ([1], Schema("array"), [Loss.COLLECTION]),
    ({"a": 1}, Schema("map"), [Loss.COLLECTION]),
    ({"street": "a"}, Schema("struct", name="hr.address"), []),
    ({"field1": 1, "field2": "a"}, Schema("struct", name="Int32UTF8Tuple"), [Loss.TUPLE]),
    (5, Schema("int64"), [Loss.VARINT]),
    (5, Schema("int64", name="io.debezium.time.Timestamp"), []),
    (5, Schema("int64", name="io.debezium.time.NanoDuration"), [Loss.DURATION]),
    (1.5, Schema("double"), [Loss.DECIMAL]),
    (1.5, Schema("float"), []),
    ("/0:0:0:0:0:0:0:1", Schema("string"), [Loss.INET]),
    ("/usr/bin", Schema("string"), []),
    ("a", None, []),
    ([1], None, [Loss.COLLECTION]),
    ({"a": 1}, None, [Loss.COLLECTION]),
    ({"field1": 1}, None, [Loss.TUPLE]),
    (1.5, None, [Loss.DECIMAL]),
    (2**31 - 1, None, []),
    (2**31, None, [Loss.VARINT, Loss.DURATION]),
    (True, None, []),
]


@pytest.mark.parametrize(("value", "schema", "lost"), SEEN)
def test_losses_are_detected_in_a_value(value: Any, schema: Schema | None, lost: list[Loss]) -> None:
    """Losses are detected by the schema of a value, or without a schema by its JSON type."""
    assert list(losses_of(value, schema)) == lost


def test_a_column_is_noted_once_and_counted_always() -> None:
    """Each loss of a column is noted once for the log and the status; the metric counts every event."""
    losses = Losses()
    losses.note(Loss.VARINT, "v")
    losses.note(Loss.VARINT, "v")
    losses.note(Loss.STATIC, events=0)
    assert losses.drain() == ([Note(TEXTS[Loss.VARINT], "v"), Note(TEXTS[Loss.STATIC])], {"varint": 2})
    losses.note(Loss.VARINT, "v")
    assert losses.drain() == ([], {"varint": 1})
    assert set(TEXTS) == set(Loss)
