"""Decode the records of a Cassandra topic into batches of writes (``cassandra/envelope.py`` reads single events)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from headrace.cassandra.envelope import write_of
from headrace.cassandra.losses import Losses
from headrace.cassandra.rows import CassandraWrites
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.envelope_events import KEYLESS, Errant, KafkaRecord
from headrace.core.decode.json_types import JsonConverter, json_type, parse_plain
from headrace.core.decode.messages import RoutedEvents
from headrace.core.decode.payload import Payload, PayloadDecoder
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.inferred_types import infer_schema
from headrace.core.model.schema import Field, Schema
from headrace.core.model.versioned_writes import joined


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
        batches: list[CassandraWrites] = []
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

    def _batch(self, record: KafkaRecord) -> CassandraWrites:
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
        return CassandraWrites(table, key_fields, tuple(fields), (write,), version, approximate_bytes)

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
