"""Transform the records of one topic, then decode them.

Transformed records may have several topics, which determine the tables. Partition and offset stay those of the original
record, so that offsets, errors and dead letters refer to it.

``ExtractNewRecordState`` removes the source block, which contains the order and the origin of changes. The decoder adds
the fields of the source block to the record's headers, with the names that ``add.headers`` would give them, and
``core/decode/flattened.py`` reads them there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import msgspec

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
from headrace.transforms.chain import Chain
from headrace.transforms.headers import header_bytes
from headrace.transforms.key_completion import KeyCompletion
from headrace.transforms.record import NOTHING, SinkRecord
from headrace.transforms.unwrap import is_envelope


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
        given = Conversion() if conversion is None else conversion
        self._keys: Converter = given.key or JsonData(options.key_schemas)
        self._values: Converter = given.value or JsonData(options.value_schemas)
        self._header_converter = given.header
        self._key_completion = KeyCompletion(options.key_fields)
        self._decoders: dict[str, RecordDecoder] = {}

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival; events have the topics that the chain gives them."""
        out = Decoded([] if self._chain.keeps_cells else [InsufficientMetadata(self._topic)])
        transformed = [each for each in self._through_chain(records, out) if each is not None]
        for topic, run in groupby(transformed, lambda each: each.topic):
            self._decode_run(topic, list(run), out)
        out.errant.sort(key=lambda each: each.index)
        return out

    def _through_chain(self, records: Sequence[KafkaRecord], out: Decoded) -> Iterator[_Transformed | None]:
        for index, record in enumerate(records):
            try:
                transformed = self._transformed(index, record)
            except BadRecord as error:
                out.errant.append(Errant(index, error.stage or Stage.VALUE_CONVERTER, error))
                continue
            if transformed is None:
                out.skipped += 1
                out.dropped += [index] if record.value is not None else []  # a tombstone only repeats its delete
            yield transformed

    def _transformed(self, index: int, record: KafkaRecord) -> _Transformed | None:
        key = self._data(record.key, record.headers, self._keys, Stage.KEY_CONVERTER)
        value = self._data(record.value, record.headers, self._values, Stage.VALUE_CONVERTER)
        coordinate = (record.partition, record.offset, record.timestamp)
        before = SinkRecord(self._topic, *coordinate, key, value, tuple(record.headers), self._header_converter)
        after = self._chain.apply(before)
        if after is None:
            return None
        after = self._key_completion.completed(after)
        added = self._source_headers(before.value, after.value)
        headers = [*added, *((name, header_bytes(each) or b"") for name, each in after.headers)]
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

    def _source_headers(self, before: SchemaAndValue, after: SchemaAndValue) -> Iterator[tuple[str, bytes]]:
        """Headers with the operation and the source block of an envelope that the chain has converted to a row."""
        if not _is_event(before) or _is_event(after):
            return
        yield f"{self._prefix}op", msgspec.json.encode(before.value.get("op"))
        for name, value in (before.value.get("source") or {}).items():
            if name in self._source_fields and value is not None:
                yield f"{self._prefix}source_{name}", msgspec.json.encode(value)

    def _decode_run(self, topic: str, run: Sequence[_Transformed], out: Decoded) -> None:
        if topic not in self._decoders:
            self._decoders[topic] = RecordDecoder(self._topic, self._options, self._catalog, self._sources)
        decoded = self._decoders[topic].decode(run)
        decoded.errant = [replace(each, index=run[each.index].index) for each in decoded.errant]
        decoded.messages = [
            replace(message, topic=topic) if isinstance(message, RoutedEvents) else message
            for message in decoded.messages
        ]
        out.add(decoded)


def _is_event(data: SchemaAndValue) -> bool:
    """Whether a value is a change event with its envelope, with a schema or without."""
    if data.schema is not None or not isinstance(data.value, dict):
        return is_envelope(data.schema) and data.value is not None
    return "op" in data.value and "source" in data.value


def _or_none(data: SchemaAndValue) -> SchemaAndValue | None:
    return None if data.value is None else data
