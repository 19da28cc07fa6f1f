"""Recorded events through Debezium's ``ExtractNewRecordState``, run by Headrace: no information is lost.

The same events are decoded from their envelopes and from the rows that the transform makes of these. Operations, keys,
positions, times, values and their states are equal, for every type of every source.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
from recordings.records import recording, variant

from headrace.core.decode.decoded import SnapshotBegan
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.model.events import Changes, Operation
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain

UNWRAP = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.unwrap.replace.null.with.default": "false",
}
MODE = "transforms.unwrap.delete.tombstone.handling.mode"


@pytest.mark.parametrize("name", ["a", "c3", "my", "ora-bytes"])
@pytest.mark.parametrize("mode", ["rewrite-with-tombstone", "tombstone"])
def test_rows_contain_what_their_envelopes_contain(name: str, mode: str) -> None:
    """Also in the mode that makes tombstones of deletes, where those of the source are dropped."""
    of, compared = variant(name), 0
    options = EnvelopeOptions(key_schemas=of.key_schemas, value_schemas=not of.bare)
    for topic, records in recording(name).items():
        if topic.endswith("schemahistory"):  # Debezium's own schemas, which no converter writes
            continue
        whole = TopicDecoder(topic, options).decode(records)
        rows = TransformingDecoder(topic, options, chain(UNWRAP | {MODE: mode})).decode(records)
        assert {each.index for each in rows.errant} <= {each.index for each in whole.errant}  # tables without a key
        assert rows.of(SnapshotBegan) == whole.of(SnapshotBegan)
        events = [_events(decoded.events, tombstones=mode != "tombstone") for decoded in (whole, rows)]
        assert events[0] == events[1], topic
        compared += len(events[0])
    assert compared > 5


def _events(pieces: Iterable[Any], *, tombstones: bool) -> list[Mapping[str, Any]]:
    """Every change as a dict, without truncates, which the transform drops."""
    found = []
    for piece in pieces:
        if isinstance(piece, Changes):
            found += [each for each in _of_changes(piece) if tombstones or each["op"] != Operation.TOMBSTONE]
    return found


def _of_changes(changes: Changes) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [defaultdict(dict) for _ in range(len(changes))]
    version = changes.version
    facts = {
        "op": changes.operation,
        "key": changes.key.to_pylist(),
        "position": version.position,
        "offset": version.offset,
        "time": version.source_time,
        "transaction": changes.transaction,
    }
    for index, event in enumerate(events):
        event |= {name: values[index] for name, values in facts.items()} | {"table": changes.table}
        event |= {
            "old key": changes.key_changes.old_keys.get(index),
            "moved": index in changes.key_changes.first_halves,
        }
    gone = np.isin(changes.operation, (Operation.DELETE, Operation.TOMBSTONE))
    for column in changes.columns:
        states = np.zeros(len(changes)) if column.states is None else column.states
        for index, event in enumerate(events):
            if not gone[index] or column.name in changes.key_fields:
                event["cells"][column.name] = (str(column.values[index : index + 1].to_string()), states[index])
    return events
