"""Decoding the records of a Cassandra topic to batches."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from support.records.envelopes import change, key

from headrace.cassandra.cell_writes import CellWrites
from headrace.cassandra.decoder import CassandraDecoder
from headrace.cassandra.rows import CassandraWrites
from headrace.converters.conversion import converting_decoder
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import Stage
from headrace.core.model.events import Changes
from headrace.core.tables.field_selection import field_selection


@dataclass(frozen=True)
class Given:
    """A record of a Kafka topic."""

    value: bytes | None
    key: bytes | None = b'{"id":1}'
    partition: int = 0
    offset: int = 0
    timestamp: int = 0
    headers: tuple[tuple[str, bytes], ...] = ()


def write(**cells: Any) -> bytes:
    """Return the JSON of an update event without schemas."""
    source = {"connector": "cassandra", "name": "c", "ts_us": 5, "keyspace": "hr", "table": "t"}
    after = {name: {"value": value} for name, value in cells.items()}
    return json.dumps({"op": "u", "source": source, "after": after}, separators=(",", ":")).encode()


def decoded(*values: Given) -> Decoded:
    return converting_decoder(
        "c.hr.t", EnvelopeOptions(key_schemas=False, value_schemas=False), sources={"cassandra": CassandraDecoder}
    ).decode(values)


def batches(*values: Given) -> list[CassandraWrites]:
    return [piece for piece in decoded(*values).events if isinstance(piece, CassandraWrites)]


def test_events_of_one_table_are_one_batch() -> None:
    """A batch has all fields of its events, the widest type of each field and the version of the last event."""
    [batch] = batches(Given(write(id=1, v=1)), Given(write(id=2, v=1.5, w="a"), offset=3))
    assert [(member.name, member.schema.type) for member in batch.fields] == [
        ("id", "int64"),
        ("v", "double"),
        ("w", "string"),
    ]
    assert [each.key for each in batch.writes] == [(1,), (2,)]
    assert (batch.table.schema, batch.table.table, batch.version.offset, len(batch)) == ("hr", "t", 3, 2)


def test_incompatible_types_make_separate_batches() -> None:
    """Events whose types of a column have no common type are decoded to separate batches."""
    assert len(batches(Given(write(id=1, v=1)), Given(write(id=1, v="a")))) == 2


def test_the_values_decide_between_numbers_and_text() -> None:
    """The text NaN and a number are one batch with a column of numbers; other text and a number are two batches."""
    nan = Given(write(id="NaN", v="NaN"), b'{"id":"NaN"}')
    [batch] = batches(nan, Given(write(id=2.5, v=1.5), b'{"id":2.5}'))
    assert [(member.name, member.schema.type) for member in batch.fields] == [("id", "double"), ("v", "double")]
    assert len(batches(Given(write(id=1, v="text")), Given(write(id=2, v=1.5)))) == 2


def test_the_source_connector_selects_the_decoder() -> None:
    """The first record with a value selects the decoder of its connector; tombstones are skipped."""
    decoder = converting_decoder(
        "c.hr.t", EnvelopeOptions(key_schemas=False, value_schemas=False), sources={"cassandra": CassandraDecoder}
    )
    assert isinstance(decoder.decode([Given(write(id=1, v=1))]).events[0], CassandraWrites)
    assert decoder.decode([Given(None)]).skipped == 1


def test_events_of_other_connectors_are_changes() -> None:
    """Rows of PostgreSQL are decoded to Changes where a Cassandra decoder is registered."""
    given = Given(change("c", {"id": 1, "name": "a"}, 1), key({"id": 1}))
    assert isinstance(
        converting_decoder("shop.t", EnvelopeOptions(), sources={"cassandra": CassandraDecoder})
        .decode([given])
        .events[0],
        Changes,
    )


def test_events_of_cells_among_changes_of_rows_are_refused() -> None:
    """In a topic that another connector began, events of Cassandra are bad records (``merge.md`` section 7)."""
    first = change("c", {"id": 1, "name": "a"}, 1)
    rows = json.loads(first)
    rows["payload"]["source"]["connector"] = "cassandra"
    decoder = converting_decoder("shop.t", EnvelopeOptions(), sources={"cassandra": CassandraDecoder})
    cells = Given(json.dumps(rows).encode(), key({"id": 2}), offset=1)
    [errant] = decoder.decode([Given(first, key({"id": 1})), cells]).errant
    assert errant.index == 1
    assert "'cassandra' are not changes of rows" in str(errant.error)


@pytest.mark.parametrize(
    ("bad", "stage"),
    [
        (Given(b'{"connector":"cassandra"'), Stage.VALUE_CONVERTER),
        (Given(b"[]"), Stage.TASK_PUT),
        (Given(write(id=1), key=None), Stage.TASK_PUT),
        (Given(write(id=1), key=b"7"), Stage.KEY_CONVERTER),
        (Given(write(v=1)), Stage.TASK_PUT),
    ],
)
def test_a_bad_record_is_reported_and_the_others_are_decoded(bad: Given, stage: Stage) -> None:
    """The error names the record's index and the stage at which it failed; the records around it are decoded."""
    out = decoded(Given(write(id=1, v=1)), bad, Given(write(id=2, v=2)))
    [errant] = out.errant
    assert (errant.index, errant.stage) == (1, stage)
    [batch] = [piece for piece in out.events if isinstance(piece, CassandraWrites)]
    assert [each.key for each in batch.writes if isinstance(each, CellWrites)] == [(1,), (2,)]


def test_excluded_columns_have_no_cells() -> None:
    """A column that field.include.list omits is neither a field nor a cell; key columns are always included."""
    [batch] = batches(Given(write(id=1, v=1, w="a")))
    kept = field_selection(include=["w"], exclude=[], add=[]).apply(batch)
    assert isinstance(kept, CassandraWrites)
    assert [member.name for member in kept.fields] == ["id", "w"]
    [selected] = [each for each in kept.writes if isinstance(each, CellWrites)]
    assert list(selected.cells) == ["w"]
