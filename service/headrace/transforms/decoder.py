"""Transform the records of one topic, then decode them.

Transformed records may have several topics, which determine the tables. Partition and offset stay those of the original
record, so that offsets, errors and dead letters refer to it.

``ExtractNewRecordState`` removes the source block, which contains the order and the origin of changes. The decoder adds
the fields of the source block to the record's headers, with the names that ``add.headers`` would give them, and
``core/decode/flattened.py`` reads them there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec
from cachetools import LRUCache

from headrace.converters.conversion import Conversion, Converter, Headers
from headrace.core.decode.codec import Source
from headrace.core.decode.decoded import Decoded, InsufficientMetadata, RoutedEvents
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.json_converter import JsonData
from headrace.core.decode.record_decoder import RecordDecoder, Sources
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.model.catalog import Catalog
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.schema import PRIMITIVES, Field, Schema
from headrace.transforms.chain import Chain
from headrace.transforms.change_events import is_envelope
from headrace.transforms.headers import header_bytes
from headrace.transforms.record import NOTHING, Side, SinkRecord

_IMAGES = ("before", "after")


class KeyCompletion:
    """Add the fields of keys that rows do not have, such as ByLogicalTableRouter's.

    ``named`` are the key columns of the connector's configuration: a key that is not a struct becomes the only one.
    """

    def __init__(self, named: tuple[str, ...]) -> None:
        self._named = named
        self._rows: LRUCache[tuple[int, int], tuple[Schema, Schema, Schema, tuple[str, ...]]] = LRUCache(64)
        self._structs: LRUCache[int, tuple[Schema, Schema]] = LRUCache(64)

    def complete(self, record: SinkRecord) -> SinkRecord:
        """Return the record with a key that is a struct, and with all fields of the key in its row."""
        record = self._with_struct(record)
        key, value = record.key, record.value
        if not isinstance(key.value, dict) or not isinstance(value.value, dict):
            return record
        if key.schema is not None and value.schema is not None:
            schemas = id(key.schema), id(value.schema)
            if schemas not in self._rows:
                self._rows[schemas] = key.schema, value.schema, *_with_fields(value.schema, key.schema.fields)
            *_, schema, missing = self._rows[schemas]
            if not missing:
                return record
            return Side.VALUE.put(record, SchemaAndValue(schema, _fill(value.value, key.value, missing)))
        if key.schema is None and value.schema is None and _is_plain_event(value.value):
            return Side.VALUE.put(record, SchemaAndValue(None, _fill(value.value, key.value, tuple(key.value))))
        return record

    def _with_struct(self, record: SinkRecord) -> SinkRecord:
        key = record.key
        if len(self._named) != 1 or key.value is None or isinstance(key.value, dict):
            return record
        [name] = self._named
        schema = None
        if key.schema is not None:
            if key.schema.type not in PRIMITIVES:
                return record
            if id(key.schema) not in self._structs:
                self._structs[id(key.schema)] = key.schema, Schema("struct", fields=(Field(name, key.schema),))
            schema = self._structs[id(key.schema)][1]
        return replace(record, key=SchemaAndValue(schema, {name: key.value}))


def _with_fields(value: Schema, fields: tuple[Field, ...]) -> tuple[Schema, tuple[str, ...]]:
    """Return the schema of a value with ``fields`` added to its row, and the names of the added fields."""
    row = value.field("after") if is_envelope(value) else value
    if row is None or row.type != "struct":
        return value, ()
    names = {member.name for member in row.fields}
    added = tuple(member for member in fields if member.name not in names)
    longer = replace(row, fields=(*row.fields, *added))
    if not is_envelope(value):
        return longer, tuple(member.name for member in added)
    members = (Field(member.name, longer if member.name in _IMAGES else member.schema) for member in value.fields)
    return replace(value, fields=tuple(members)), tuple(member.name for member in added)


def _is_plain_event(value: dict[str, Any]) -> bool:
    """Whether a value is an envelope. Other values without a schema may not be rows, such as heartbeats."""
    return "op" in value and ("after" in value or "before" in value)


def _fill(value: dict[str, Any], key: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Add the key's fields ``names`` to the row of a value, if it does not have them."""
    if _is_plain_event(value):
        return {
            name: _fill(member, key, names) if name in _IMAGES and isinstance(member, dict) else member
            for name, member in value.items()
        }
    return {**{name: key.get(name) for name in names if name not in value}, **value}


@dataclass(frozen=True, slots=True)
class _Transformed:
    """A transformed record, in the form that decoders read."""

    index: int
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: SchemaAndValue | None
    value: SchemaAndValue | None
    headers: Sequence[tuple[str, bytes]]


class TransformingDecoder:
    """Decode the records of one topic after ``chain``. It caches schemas. Not thread-safe."""

    def __init__(
        self,
        topic: str,
        options: EnvelopeOptions,
        chain: Chain,
        catalog: Catalog | None = None,
        conversion: Conversion | None = None,
        sources: Sources | None = None,
    ) -> None:
        self._topic, self._options, self._chain, self._catalog = topic, options, chain, catalog
        self._sources = sources
        self._prefix = options.added.headers_prefix
        self._source_fields = options.added.positions | set(Source.__struct_fields__)
        conversion = Conversion() if conversion is None else conversion
        self._keys: Converter = conversion.key or JsonData(options.key_schemas)
        self._values: Converter = conversion.value or JsonData(options.value_schemas)
        self._header_converter = conversion.header
        self._key_completion = KeyCompletion(options.key_fields)
        self._decoders: dict[str, RecordDecoder] = {}

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival; events have the topics that the chain gives them."""
        decoded = Decoded([] if self._chain.keeps_cells else [InsufficientMetadata(self._topic)])
        transformed: list[_Transformed] = []
        for index, record in enumerate(records):
            try:
                result = self._transform(index, record)
            except BadRecord as error:
                decoded.errant.append(Errant(index, error.stage or Stage.VALUE_CONVERTER, error))
                continue
            if result is not None:
                transformed.append(result)
                continue
            decoded.skipped += 1
            if record.value is not None:  # a tombstone only repeats its delete
                decoded.dropped.append(index)

        for topic, run in groupby(transformed, lambda record: record.topic):
            if topic not in self._decoders:
                self._decoders[topic] = RecordDecoder(self._topic, self._options, self._catalog, self._sources)
            records_of_topic = list(run)
            part = self._decoders[topic].decode(records_of_topic)
            part.errant = [replace(errant, index=records_of_topic[errant.index].index) for errant in part.errant]
            part.messages = [
                replace(message, topic=topic) if isinstance(message, RoutedEvents) else message
                for message in part.messages
            ]
            decoded.add(part)
        decoded.errant.sort(key=lambda errant: errant.index)
        return decoded

    def _transform(self, index: int, record: KafkaRecord) -> _Transformed | None:
        key = self._data(record.key, record.headers, self._keys, Stage.KEY_CONVERTER)
        value = self._data(record.value, record.headers, self._values, Stage.VALUE_CONVERTER)
        coordinate = (record.partition, record.offset, record.timestamp)
        before = SinkRecord(self._topic, *coordinate, key, value, tuple(record.headers), self._header_converter)
        after = self._chain.apply(before)
        if after is None:
            return None
        after = self._key_completion.complete(after)
        headers = []
        if is_change_event(value) and not is_change_event(after.value):  # the chain has converted an envelope to a row
            headers.append((f"{self._prefix}op", msgspec.json.encode(value.value.get("op"))))
            for name, field in (value.value.get("source") or {}).items():
                if name in self._source_fields and field is not None:
                    headers.append((f"{self._prefix}source_{name}", msgspec.json.encode(field)))
        headers += [(name, header_bytes(header) or b"") for name, header in after.headers]
        return _Transformed(index, after.topic, *coordinate, _or_none(after.key), _or_none(after.value), headers)

    @staticmethod
    def _data(document: Any, headers: Headers, converter: Converter, stage: Stage) -> SchemaAndValue:
        if document is None:
            return NOTHING
        try:
            return converter.to_connect_data(document, headers)
        except BadRecord as error:
            error.stage = stage
            raise


def is_change_event(data: SchemaAndValue) -> bool:
    """Whether a value is a change event with its envelope, with a schema or without."""
    if data.schema is not None or not isinstance(data.value, dict):
        return is_envelope(data.schema) and data.value is not None
    return "op" in data.value and "source" in data.value


def _or_none(data: SchemaAndValue) -> SchemaAndValue | None:
    return None if data.value is None else data
