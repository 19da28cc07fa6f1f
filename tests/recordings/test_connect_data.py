"""Recorded events as Connect data of converters and transforms, in place of JsonConverter's documents."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from recordings.records import recording, variant

from headrace.core.decode.decoded import Decoded, SnapshotBegan
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.json_converter import JsonData
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.events import Changes


@pytest.mark.parametrize("name", ["a", "b", "c3", "my"])
def test_events_are_the_same_as_connect_data(name: str) -> None:
    """Every type of every handling mode, schema by schema: columns, states, keys and positions are equal."""
    of = variant(name)
    pieces = 0
    for topic, records in recording(name).items():
        if topic.endswith("schemahistory"):  # Debezium's own schemas, which no converter writes
            continue
        keys, values = JsonData(of.key_schemas), JsonData(not of.bare)
        data = [replace(each, key=_data(keys, each.key), value=_data(values, each.value)) for each in records]
        messages = [
            TopicDecoder(topic, EnvelopeOptions(key_schemas=of.key_schemas, value_schemas=not of.bare)).decode(each)
            for each in (records, data)
        ]
        pieces += len(messages[0].events)
        _assert_same(*messages)
    assert pieces > 0


def _data(converter: JsonData, document: bytes | None) -> SchemaAndValue | None:
    """The document's Connect data."""
    return None if document is None else converter.to_connect_data(document)


def _text(values: pa.Array) -> str:
    """All values as text: NaN equals NaN, and years may be beyond Python's."""
    return str(values.to_string(window=len(values), container_window=1000))


def _assert_same(one: Decoded, other: Decoded) -> None:
    assert (one.skipped, one.of(SnapshotBegan), one.notes) == (other.skipped, other.of(SnapshotBegan), other.notes)
    assert [each.index for each in one.errant] == [each.index for each in other.errant]
    for left, right in zip(one.events, other.events, strict=True):
        if not isinstance(left, Changes) or not isinstance(right, Changes):
            assert left == right
            continue
        assert (left.table, left.key_fields, left.key_changes.old_keys, left.key_changes.first_halves) == (
            *(right.table, right.key_fields, right.key_changes.old_keys, right.key_changes.first_halves),
        )
        assert left.key.equals(right.key)
        assert np.array_equal(left.operation, right.operation)
        assert np.array_equal(left.version.position, right.version.position)
        for mine, its in zip(left.columns, right.columns, strict=True):
            assert mine.values.type == its.values.type
            assert (mine.name, mine.schema) == (its.name, its.schema)
            assert _text(mine.values) == _text(its.values), mine.name
            assert np.array_equal(mine.states, its.states) if mine.states is not None else its.states is None
