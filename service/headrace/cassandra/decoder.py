"""Decode the records of a Cassandra topic into batches of writes (``cassandra/envelope.py`` reads single events).

One connector writes a topic, and its records contain the connector's name: ``RecordDecoder`` examines records until
one contains it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from headrace.cassandra.envelope import write_of
from headrace.cassandra.losses import Losses
from headrace.converters.conversion import Conversion
from headrace.converters.json_data import JsonData
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.envelope_events import KEYLESS, Errant, KafkaRecord
from headrace.core.decode.json_types import Document, JsonConverter, json_type, parse_plain
from headrace.core.decode.messages import RoutedEvents
from headrace.core.decode.payload import Payload, PayloadDecoder
from headrace.core.model.catalog import Catalog
from headrace.core.model.cell_batch import CassandraBatch, joined
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Retriable, Stage
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.inference import infer_schema
from headrace.core.model.schema import Field, Schema

_SMALLEST_BLOCK = 100
"""The smallest number of records that is decoded as a block: fewer cost less when they are decoded one by one."""

_CASSANDRA = b'"connector":"cassandra"'


class RecordDecoder:
    """Decode the records of one topic in the format of the connector that wrote them."""

    def __init__(
        self,
        topic: str,
        options: EnvelopeOptions,
        catalog: Catalog | None = None,
        conversion: Conversion | None = None,
    ) -> None:
        self._conversion = conversion or None
        self._json_keys = JsonData(options.key_schemas) if conversion is None or conversion.key is None else None
        self._rows = TopicDecoder(topic, options, catalog)
        self._cassandra = CassandraDecoder(topic, options)
        self._is_cassandra: bool | None = None

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival. The result lists bad records; none raises an error.

        Raises Retriable where a converter cannot reach its registry. The caller may then pass the same records again.
        """
        out = self._decode(records) if self._conversion is None else self._decode_parts(self._conversion, records)
        out.errant = [self._first_fault(records[each.index], each) for each in out.errant]
        return out

    def _first_fault(self, record: KafkaRecord, errant: Errant) -> Errant:
        """Report a bad key before a bad value, as Kafka Connect does: it converts the key first."""
        if self._json_keys is None or errant.stage is not Stage.VALUE_CONVERTER or not isinstance(record.key, bytes):
            return errant
        try:
            self._json_keys.to_connect_data(record.key)
        except BadRecord as error:
            return replace(errant, stage=Stage.KEY_CONVERTER, error=error)
        return errant

    def _decode_parts(self, conversion: Conversion, records: Sequence[KafkaRecord]) -> Decoded:
        out = Decoded()
        try:
            self._decode_part(conversion, records, 0, out)
        except Retriable:
            self._rows.discard_notes(out.notes)
            raise
        return out

    def _decode_part(self, conversion: Conversion, records: Sequence[KafkaRecord], begin: int, out: Decoded) -> None:
        """Decode records, the first of which is the chunk's ``begin``-th: as a block, else in halves, else each."""
        reads_blocks = conversion.reads_blocks and self._rows.reads_blocks and not self._is_cassandra
        in_blocks = reads_blocks and len(records) >= _SMALLEST_BLOCK
        block = conversion.block(records) if in_blocks else None
        decoded = None if block is None else self._rows.decode_block(block)
        if decoded is None and in_blocks and len(records) >= 2 * _SMALLEST_BLOCK:
            half = len(records) // 2
            self._decode_part(conversion, records[:half], begin, out)
            self._decode_part(conversion, records[half:], begin + half, out)
            return
        decoded = decoded or self._decode_each(conversion, records)
        decoded.errant = [replace(each, index=begin + each.index) for each in decoded.errant]
        out.add(decoded)

    def _decode_each(self, conversion: Conversion, records: Sequence[KafkaRecord]) -> Decoded:
        converted = conversion.convert(records)
        decoded = self._decode(converted.records)
        errant = [replace(each, index=converted.indexes[each.index]) for each in decoded.errant]
        decoded.errant = sorted(errant + converted.errant, key=lambda each: each.index)
        return decoded

    def _decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        if self._is_cassandra is None:
            first = next((record.value for record in records if record.value is not None), None)
            self._is_cassandra = None if first is None else _is_cassandra(first)
        return self._cassandra.decode(records) if self._is_cassandra else self._rows.decode(records)


def _is_cassandra(value: bytes | Document | SchemaAndValue) -> bool:
    if isinstance(value, SchemaAndValue):
        source = value.value.get("source") if isinstance(value.value, Mapping) else None
        return isinstance(source, Mapping) and source.get("connector") == "cassandra"
    return _CASSANDRA in (value.payload if isinstance(value, Document) else value)


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
        out = Decoded()
        batches: list[CassandraBatch] = []
        for index, record in enumerate(records):
            if record.value is None:
                out.skipped += 1
                continue
            try:
                batches.append(self._batch(record))
            except BadRecord as error:
                out.errant.append(Errant(index, error.stage or Stage.TASK_PUT, error))
        out.messages += [RoutedEvents(self._topic, batch) for batch in joined(batches)]
        out.notes, out.losses = self._losses.drain()
        return out

    def _batch(self, record: KafkaRecord) -> CassandraBatch:
        """Return a batch of one event. Raises BadRecord."""
        assert record.value is not None  # noqa: S101 - the caller has looked
        schema, text = self._values.split(record.value)
        payload = self._payload(schema, text)
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
        return CassandraBatch(table, key_fields, tuple(fields), (write,), version, approximate_bytes)

    def _payload(self, schema: Schema | None, text: Payload) -> Mapping[str, Any]:
        try:
            payload = self._decoder(schema)(text)
        except msgspec.DecodeError as error:
            message = f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
            raise BadRecord(message, stage=Stage.VALUE_CONVERTER) from error
        except BadRecord as error:
            error.stage = Stage.VALUE_CONVERTER
            raise
        if not isinstance(payload, Mapping):
            raise BadRecord("the record's value is not a Debezium change event")
        return payload

    def _decoder(self, schema: Schema | None) -> Callable[[Payload], Any]:
        if schema is None:
            return parse_plain
        if id(schema) not in self._decoders:
            # The entry holds the schema, so that no other object gets its id.
            self._decoders[id(schema)] = (schema, PayloadDecoder(json_type(schema)).decode)
        return self._decoders[id(schema)][1]

    def _key_fields(self, record: KafkaRecord) -> tuple[str, ...]:
        if record.key is None:
            raise BadRecord(KEYLESS)
        plain = parse_plain(self._keys.split(record.key)[1])
        if not isinstance(plain, Mapping):
            raise BadRecord("the record's key is not a struct", stage=Stage.KEY_CONVERTER)
        return tuple(plain)
