"""Avro topics decoded in blocks, directly to columns, give the same events as records decoded one by one.

The recording of Debezium with Avro converters is decoded in both ways; its topics are repeated until they are long
enough for blocks.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from recordings.avro import as_avro, conversion
from recordings.records import AVRO, RecordedRecord, recording, variant

from headrace.converters.avro import AvroReader
from headrace.converters.conversion import Conversion, Converter, Headers, converting_decoder
from headrace.converters.registered import RegisteredSchema, RegistryConverter, SchemaId, confluent_framing
from headrace.converters.simple import StringConverter
from headrace.core.decode.decoded import Decoded, InsufficientMetadata, SnapshotBegan, TableAltered
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.record_decoder import Decoder
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import Retriable, Stage
from headrace.core.model.events import Changes, Truncate

LONG = 256
"""Records of a topic: a few that are looked at one by one, and blocks."""


@dataclass
class OneByOne:
    """A converter without blocks."""

    inner: Converter

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        return self.inner.to_connect_data(document, headers)


class Counting:
    """A converter that counts the records that it converts one by one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.reader_of = inner.reader_of
        self.reads_blocks = True
        self.count = 0

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        self.count += 1
        data: SchemaAndValue = self.inner.to_connect_data(document, headers)
        return data


@cache
def topic_records(topic: str) -> list[RecordedRecord]:
    """A topic's records in Avro, each repeated, so that those of one schema are consecutive."""
    recorded = [as_avro(each) for each in recording(AVRO)[topic]]
    times = LONG // len(recorded) + 1
    return numbered([each for each in recorded for _ in range(times)])


def numbered(records: Sequence[RecordedRecord]) -> list[RecordedRecord]:
    """The records with consecutive offsets."""
    return [replace(each, offset=offset) for offset, each in enumerate(records)]


def decoder(topic: str, blocks: bool = True, conversion_of: Conversion | None = None, **options: Any) -> Decoder:
    given = conversion_of or conversion(variant(AVRO).recording_file.parent)
    assert given.value is not None
    if not blocks:
        given = Conversion(given.key and OneByOne(given.key), OneByOne(given.value))
    return converting_decoder(topic, EnvelopeOptions(**options), None, given)


def events(decoded: Decoded) -> Iterator[Any]:
    """The fields of decoded messages that a batch uses, event by event."""
    for piece in decoded.events:
        if isinstance(piece, Truncate):
            yield piece
            continue
        assert isinstance(piece, Changes)
        states = {column.name: column.states for column in piece.columns}
        cells = {column.name: _in_python(column.values) for column in piece.columns}
        for row in range(len(piece)):
            yield (
                piece.table,
                piece.key_fields,
                piece.operation[row],
                piece.key[row],
                piece.version.row(row),
                piece.transaction[row],
                piece.key_changes.old_keys.get(row),
                row in piece.key_changes.first_halves,
                [(column.name, column.schema, column.values.type) for column in piece.columns],
                {name: _equal_to_itself(each[row]) for name, each in cells.items()},
                {name: None if each is None else each[row] for name, each in states.items()},
            )


def _equal_to_itself(value: Any) -> Any:
    """NaN does not equal itself, also within a list or a struct."""
    return value if value is None or isinstance(value, int | str | bytes) else repr(value)


def _in_python(values: pa.Array) -> list[Any]:
    """Times as numbers, since Python has none beyond year 9999."""
    kind = values.type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values = values.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    return values.to_pylist()


def compared(decoded: Decoded) -> tuple[Any, ...]:
    """The compared fields; a column without states is one whose cells are all values."""
    errant = [(each.index, each.stage, str(each.error)) for each in decoded.errant]
    return (
        [_with_all_states(each) for each in events(decoded)],
        errant,
        decoded.skipped,
        set(decoded.of(SnapshotBegan)),
        decoded.of(TableAltered),
        decoded.notes,
        decoded.losses,
        bool(decoded.of(InsufficientMetadata)),
    )


def _with_all_states(event: Any) -> Any:
    if isinstance(event, Truncate):
        return event
    *rest, cells, states = event
    return *rest, cells, {n: int(cells[n] is None) if each is None else each for n, each in states.items()}


TOPICS = sorted(recording(AVRO))


@pytest.mark.parametrize("topic", TOPICS)
def test_blocks_say_what_records_say(topic: str) -> None:
    """Every type, operation and kind of record of the recording."""
    records = topic_records(topic)
    assert compared(decoder(topic).decode(records)) == compared(decoder(topic, blocks=False).decode(records))


INCR = "pg_d.public.incr_t"


def test_most_records_go_through_blocks() -> None:
    """Only the first records of a schema are decoded one by one, too few for a block."""
    given = conversion(variant(AVRO).recording_file.parent)
    assert given.value is not None
    assert given.key is not None
    counted = Counting(given.value)
    records = topic_records(INCR)
    decoder(INCR, conversion_of=Conversion(given.key, counted)).decode(records)
    assert 0 < counted.count < len(records) * 2 / 3


@pytest.mark.parametrize("blocks", [True, False])
def test_a_poisoned_record_harms_no_other(blocks: bool) -> None:
    """The bad record is reported with its offset and stage; all others become events."""
    records = list(topic_records(INCR))
    records[200] = replace(records[200], value=records[200].value[:-1])  # type: ignore[index] # it has a value
    records[210] = replace(records[210], value=b"\0\0\0\0\x63")  # a schema that the registry does not have
    records[220] = replace(records[220], value=b"{}")
    records[250] = replace(records[250], key=records[250].key[:-1])  # type: ignore[index] # it has a key
    decoded = decoder(INCR, blocks).decode(records)
    stages = [(each.index, each.stage) for each in decoded.errant]
    values = [(place, Stage.VALUE_CONVERTER) for place in (200, 210, 220)]
    assert stages == [*values, (250, Stage.KEY_CONVERTER)]
    assert {event[4].offset for event in events(decoded)} == set(range(len(records))) - {200, 210, 220, 250}


def test_keys_of_other_converters() -> None:
    """Such keys are converted one by one, beside values in blocks."""
    records = [replace(each, key=str(each.offset).encode()) for each in topic_records(INCR)]
    values = conversion(variant(AVRO).recording_file.parent).value
    given = Conversion(StringConverter(), values)
    decoded = [decoder(INCR, blocks, given, key_fields=("id",)).decode(records) for blocks in (True, False)]
    assert compared(decoded[0]) == compared(decoded[1])
    assert decoded[0].errant == []


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields.items()]}


class OneSchema:
    """A registry that has one schema under each id, until it does not answer."""

    def __init__(self, schema: Any) -> None:
        self.schema = schema
        self.down_for = -1

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        if schema_id.value == self.down_for:
            raise Retriable("down")
        return RegisteredSchema(json.dumps(self.schema))


NARROW = _record(
    "Envelope",
    after=["null", _record("Value", id="long", v={"type": "bytes", "logicalType": "decimal", "precision": 4})],
    source=_record("Source", name="string", connector="string", table="string"),
    op="string",
)
"""An envelope whose ``v`` has four digits, and whose source tells no position."""


def narrow(number: int, v: int, schema_id: int = 1) -> RecordedRecord:
    """An event with the digits ``v``."""
    out = io.BytesIO()
    source = {"name": "n", "connector": "own", "table": "t"}
    after = {"id": number, "v": v.to_bytes(4, "big")}
    physical = json.loads(json.dumps(NARROW).replace('"logicalType"', '"was"'))
    fastavro.schemaless_writer(out, physical, {"after": after, "source": source, "op": "c"})
    key = json.dumps({"id": number}).encode()
    return RecordedRecord("t", 0, number, 0, key, b"\0" + schema_id.to_bytes(4, "big") + out.getvalue())


def of_narrow(registry: OneSchema) -> Decoder:
    """Values in Avro, keys in JSON."""
    values = RegistryConverter(registry.fetch, confluent_framing("value"), AvroReader)
    return converting_decoder("t", EnvelopeOptions(key_schemas=False), None, Conversion(None, values))


def test_a_value_that_no_column_holds_is_reported_by_its_offset() -> None:
    """Its bytes are valid for the schema, but the column cannot contain the value."""
    records = [narrow(number, 12345 if number in (100, 199) else number) for number in range(256)]
    decoded = of_narrow(OneSchema(NARROW)).decode(records)
    assert [(each.index, each.stage) for each in decoded.errant] == [(100, Stage.TASK_PUT), (199, Stage.TASK_PUT)]
    assert "'v'" in str(decoded.errant[0].error)
    assert [event[4].offset for event in events(decoded)] == [n for n in range(256) if n not in (100, 199)]


def test_what_was_noted_is_noted_again_where_records_are_decoded_again() -> None:
    """A registry that is unreachable for the last records makes the task decode all of them again."""
    registry = OneSchema(NARROW)
    records = [narrow(number, 1, 1 if number < 200 else 2) for number in range(256)]
    decoder = of_narrow(registry)
    registry.down_for = 2
    with pytest.raises(Retriable):
        decoder.decode(records)
    registry.down_for = -1
    assert len(decoder.decode(records).notes) == 1
    assert decoder.decode(records).notes == []
