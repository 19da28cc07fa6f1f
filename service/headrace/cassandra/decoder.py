"""Decode the records of a Cassandra topic to writes (``merge.md`` section 7; observed on connector 3.4.1).

Its envelopes differ from those of all other connectors. They have no ``before``. ``op`` is i, u, d or r, where r is a
range tombstone instead of a read. ``after`` has a cell ``{value, deletion_ts, set}`` or null per column, and the bounds
of a range. All cells of an event have the write time ``source.ts_us``. In a snapshot, that is the time of the SELECT,
which does not order writes.

Tests: ``tests/unit/cassandra/test_cassandra_decoder.py``, ``test_cassandra_envelope.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.cassandra.cell_writes import (
    MARKED,
    SNAPSHOT_TIME,
    Bound,
    Cell,
    CellWrites,
    Delete,
    Range,
    Write,
    comparison_bytes,
)
from headrace.cassandra.losses import Loss, Losses, losses_of
from headrace.cassandra.rows import CassandraWrites
from headrace.core.decode.decoded import Decoded, RoutedEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.envelope_events import KEYLESS
from headrace.core.decode.json_converter import JsonConverter, json_type, parse_plain
from headrace.core.decode.payload import Payload, PayloadDecoder
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.inferred_types import infer_schema
from headrace.core.model.schema import Field, Schema
from headrace.core.model.versioned_writes import Key, join_writes

_START, _END = "_range_start", "_range_end"
_BOUNDS = (_START, _END)
_TYPES: Mapping[type, str] = {bool: "boolean", int: "int64", float: "double"}


def write_of(
    payload: Mapping[str, Any], key_fields: Sequence[str], losses: Losses, after: Schema | None = None
) -> Write:
    """Return the write that an event's payload describes.

    ``key_fields`` are the fields of the record's key, in the order of the primary key. ``after`` is the schema of the
    payload's member of that name, where the record has schemas. Raises BadRecord for a payload that no Cassandra
    connector sends.
    """
    operation, cells = payload.get("op"), payload.get("after")
    source = payload.get("source") or {}
    if not isinstance(cells, Mapping) or "ts_us" not in source:
        raise BadRecord(f"the Cassandra event with op={operation} has no 'after' or no source.ts_us")
    snapshot = str(source.get("snapshot", "false")) not in ("false", "None")
    written = SNAPSHOT_TIME if snapshot else int(source["ts_us"])
    key = _key(cells, key_fields)
    if operation == "r":
        return Delete(key, written, _range(cells, key_fields))
    if operation == "d":
        return Delete(key, written)
    if operation not in ("i", "u"):
        raise BadRecord(f"the Cassandra event has an unknown operation {str(operation)[:20]!r}")
    if len(key_fields) > 1:  # only tables with clustering columns can have static columns
        losses.note(Loss.STATIC, events=int(len(key) < len(key_fields)))
    if len(key) < len(key_fields):
        return CellWrites(key)
    made = {
        name: _cell(name, cell, written, after, losses)
        for name, cell in cells.items()
        if cell is not None and name not in key_fields and name not in _BOUNDS
    }
    if operation == "u":
        return CellWrites(key, made, None)
    # USING TTL of an INSERT applies to its cells and its marker: both expire together. Without cells it is unknown.
    ends = {cell.expires for cell in made.values() if cell.value is not None}
    return CellWrites(key, made, Cell(written, MARKED, expires=ends.pop() if len(ends) == 1 else None))


def _key(cells: Mapping[str, Any], key_fields: Sequence[str]) -> Key:
    """Return the key's values up to the first null: a delete of several rows omits the last clustering columns."""
    values: list[Any] = []
    for name in key_fields:
        value = (cells.get(name) or {}).get("value")
        if value is None:
            break
        values.append(value)
    if not values:
        raise BadRecord("the Cassandra event does not contain the values of its partition key")
    return tuple(values)


def _cell(name: str, cell: Mapping[str, Any], written: int, after: Schema | None, losses: Losses) -> Cell:
    value = cell.get("value")
    if value is None:
        return Cell(written)
    declared = None if after is None else after.field(name)
    schema = None if declared is None else declared.field("value")
    for loss in losses_of(value, schema):
        losses.note(loss, name)
    schema_type = _TYPES.get(type(value), "string") if schema is None else schema.type
    ends = cell.get("deletion_ts")
    return Cell(written, value, comparison_bytes(schema_type, value), None if ends is None else int(ends))


def _range(cells: Mapping[str, Any], key_fields: Sequence[str]) -> Range:
    start, end = cells.get(_START), cells.get(_END)
    if not isinstance(start, Mapping) or not isinstance(end, Mapping):
        raise BadRecord("the Cassandra range tombstone has no bounds")
    longest = max(start["values"], end["values"], key=len)
    descending = tuple("ReversedType" in value["type"] for value in longest)
    return Range(_bound(start), _bound(end), descending)


def _bound(bound: Mapping[str, Any]) -> Bound:
    prefix = tuple(_clustering_value(value) for value in bound["values"])
    return Bound(prefix, str(bound["method"]).startswith("INCL"))


_INTEGERS = ("Int32Type", "LongType", "ShortType", "ByteType")
_TEXTS = ("UTF8Type", "AsciiType")


def _clustering_value(bound: Mapping[str, Any]) -> Any:
    """Convert a bound, which is always text, to the type of its column. Raises BadRecord for an unknown type."""
    column_type, value = str(bound["type"]), bound["value"]
    if any(name in column_type for name in _INTEGERS):
        try:
            return int(value)
        except ValueError as error:
            raise BadRecord(
                f"the bound of clustering column {bound['name']} is not a number, although its type is {column_type}"
            ) from error
    if any(name in column_type for name in _TEXTS):
        return value
    raise BadRecord(
        f"the range tombstone is bounded by clustering column {bound['name']} of type {column_type}, whose order "
        "Headrace does not know"
    )


class CassandraDecoder:
    """Decode the records of one Cassandra topic. Not thread-safe."""

    def __init__(self, topic: str, options: EnvelopeOptions) -> None:
        self._losses = Losses()
        self._topic = topic
        self._values = JsonConverter(options.value_schemas)
        self._keys = JsonConverter(options.key_schemas)
        self._decoders: dict[int, tuple[Schema | None, Callable[[Payload], Any]]] = {}

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Return batches of writes in order of arrival, and the indexes of the records that cannot be used."""
        decoded = Decoded()
        batches: list[CassandraWrites] = []
        for index, record in enumerate(records):
            if record.value is None:
                decoded.skipped += 1
                continue
            try:
                batches.append(self._batch(record))
            except BadRecord as error:
                decoded.errant.append(Errant(index, error.stage or Stage.TASK_PUT, error))
        decoded.messages += [RoutedEvents(self._topic, batch) for batch in join_writes(batches)]
        decoded.notes, decoded.losses = self._losses.drain()
        return decoded

    def _batch(self, record: KafkaRecord) -> CassandraWrites:
        """Return a batch of one event. Raises BadRecord."""
        assert record.value is not None  # noqa: S101 - the caller has checked it
        schema, text = self._values.split(record.value)
        decode_payload: Callable[[Payload], Any] = parse_plain
        if schema is not None:
            if id(schema) not in self._decoders:  # the entry holds the schema, so that no other object gets its id
                self._decoders[id(schema)] = (schema, PayloadDecoder(json_type(schema)).decode)
            decode_payload = self._decoders[id(schema)][1]
        try:
            payload = decode_payload(text)
        except msgspec.DecodeError as error:
            message = f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
            raise BadRecord(message, stage=Stage.VALUE_CONVERTER) from error
        except BadRecord as error:
            error.stage = Stage.VALUE_CONVERTER
            raise
        if not isinstance(payload, Mapping):
            raise BadRecord("the record's value is not a Debezium change event")
        after = None if schema is None else schema.field("after")
        key_fields = self._key_fields(record)
        write = write_of(payload, key_fields, self._losses, after)
        source = payload["source"]
        table = TableId(str(source.get("name")), "", str(source.get("keyspace")), str(source.get("table")))
        version = RowVersion(b"", self._topic, record.partition, record.offset, int(source["ts_us"]))
        cells = payload["after"]
        names = [*key_fields, *(name for name in cells if name not in key_fields and not name.startswith("_range_"))]
        fields = []
        for name in names:
            declared = None if after is None else after.field(name)
            schema = None if declared is None else declared.field("value")
            fields.append(Field(name, schema or infer_schema([(cells.get(name) or {}).get("value")])))
        approximate_bytes = len(repr(text.value)) if isinstance(text, SchemaAndValue) else len(text)
        return CassandraWrites(table, key_fields, tuple(fields), (write,), version, approximate_bytes)

    def _key_fields(self, record: KafkaRecord) -> tuple[str, ...]:
        if record.key is None:
            raise BadRecord(KEYLESS)
        plain = parse_plain(self._keys.split(record.key)[1])
        if not isinstance(plain, Mapping):
            raise BadRecord("the record's key is not a struct", stage=Stage.KEY_CONVERTER)
        return tuple(plain)
