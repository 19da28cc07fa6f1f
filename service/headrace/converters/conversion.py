"""Convert keys and values with converters other than JsonConverter, then decode the records.

Documents of JsonConverter are not converted here (``core/decode/payload.py`` explains why): a ``Conversion`` has no
converter for such keys or values.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import msgspec
import numpy as np

from headrace.core.decode.column_rows import Struct, Wanted, in_python, take_rows
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.envelope_block import Block
from headrace.core.decode.json_converter import Document, document_bytes
from headrace.core.decode.record_decoder import Decoder, RecordDecoder, Sources
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.model.catalog import Catalog
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.core.model.schema import Schema

Headers = Sequence[tuple[str, bytes]]


class Converter(Protocol):
    """Convert keys, or values, to Connect data. Not thread-safe."""

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        """The data of one document, in the form that ``connect_data.py`` describes; equal schemas are one object.

        Raises BadRecord. Any other error means that the records have to be converted again (a schema is missing).
        """


@runtime_checkable
class BlockReader(Protocol):
    """Read the documents of one schema; many at once if ``reads_blocks`` is true."""

    schema: Schema
    reads_blocks: bool

    def __call__(self, payload: bytes) -> SchemaAndValue:
        """The data of one payload. Raises BadRecord."""

    def block(self, documents: Sequence[bytes], offset: int, wanted: Wanted) -> Struct:
        """The wanted fields of all documents, whose payloads begin at ``offset``. Raises BadRecord for all of them."""


@runtime_checkable
class BlockConverter(Converter, Protocol):
    """A converter that can read many documents of one schema at once."""

    reads_blocks: bool
    """Whether to try it: false if the schema of the last document cannot be read in blocks."""

    def reader_of(self, documents: Sequence[bytes], headers: Set[str]) -> tuple[BlockReader, int] | None:
        """The reader of all documents, and where their payloads begin; None unless all have the last schema.

        ``headers`` are the names of all headers of these records.
        """


@runtime_checkable
class TopicConverter(Converter, Protocol):
    """A converter that needs the topic to identify the schema of its documents."""

    def of_topic(self, topic: str) -> Converter:
        """The converter of one topic's documents."""


class ConvertedRecord(msgspec.Struct, gc=False):
    """A ``KafkaRecord`` whose key or value is Connect data. ``original_key`` is its key as it was in Kafka."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | SchemaAndValue | None
    value: bytes | Document | SchemaAndValue | None
    headers: Headers
    original_key: bytes | SchemaAndValue | None = None


@dataclass(frozen=True, slots=True)
class Conversion:
    """The converters of a connector; None stands for JsonConverter."""

    key: Converter | None = None
    value: Converter | None = None
    header: Converter | None = None
    """The converter of headers that a transform reads; None is SimpleHeaderConverter."""

    def __bool__(self) -> bool:
        return self.key is not None or self.value is not None

    def of_topic(self, topic: str) -> Conversion:
        """The same converters, for the records of one topic."""
        key, value = (
            converter.of_topic(topic) if isinstance(converter, TopicConverter) else converter
            for converter in (self.key, self.value)
        )
        return replace(self, key=key, value=value)

    def block(self, records: Sequence[KafkaRecord]) -> Block | None:
        """The records as one block; None if their values have to be converted one by one."""
        values: list[Any] = [record.value for record in records if record.value is not None]
        block_reader = _block_reader(self.value, values, records)
        if block_reader is None:
            return None
        reader, offset = block_reader
        return Block(records, reader.schema, partial(reader.block, values, offset), partial(self._keys, records))

    @property
    def reads_blocks(self) -> bool:
        return isinstance(self.value, BlockConverter) and self.value.reads_blocks

    def _keys(self, records: Sequence[KafkaRecord], indexes: Sequence[int], names: Sequence[str]) -> Sequence[Any]:
        """The keys at ``indexes``. Raises BadRecord if any of the keys is bad."""
        keys: list[Any] = [record.key for record in records]
        if self.key is None:
            return [keys[index] for index in indexes]
        block_reader = _block_reader(self.key, keys, records)
        if block_reader is None:
            converted = [
                _convert_document(self.key, record.key, record.headers, Stage.KEY_CONVERTER) for record in records
            ]
            if None in converted:
                raise BadRecord("a record's key is null", stage=Stage.KEY_CONVERTER)
            return [converted[index] for index in indexes]
        reader, offset = block_reader
        columns = reader.block(keys, offset, dict.fromkeys(names)).columns
        rows = np.array(indexes, np.int64)
        cells = {name: in_python(take_rows(column, rows)) for name, column in columns.items()}
        return [
            SchemaAndValue(reader.schema, {name: column[row] for name, column in cells.items()})
            for row in range(len(indexes))
        ]

    def convert(self, record: KafkaRecord) -> ConvertedRecord:
        """Convert one record. Raises BadRecord with its stage, and what else its converters raise."""
        return ConvertedRecord(
            record.partition,
            record.offset,
            record.timestamp,
            _convert_document(self.key, record.key, record.headers, Stage.KEY_CONVERTER),
            _convert_document(self.value, record.value, record.headers, Stage.VALUE_CONVERTER),
            record.headers,
            record.key,
        )


def _block_reader(
    converter: Converter | None, documents: Sequence[Any], records: Sequence[KafkaRecord]
) -> tuple[BlockReader, int] | None:
    """Return the reader of the keys or the values of all records, see ``BlockConverter.reader_of``."""
    if not isinstance(converter, BlockConverter) or not converter.reads_blocks or set(map(type, documents)) != {bytes}:
        return None
    return converter.reader_of(documents, {name for record in records for name, _ in record.headers})


def _convert_document(
    converter: Converter | None, document: bytes | Document | SchemaAndValue | None, headers: Headers, stage: Stage
) -> Any:
    """Convert a document; null data becomes None, like a tombstone's value."""
    if converter is None or document is None or isinstance(document, SchemaAndValue):
        return document
    try:
        data = converter.to_connect_data(document_bytes(document) or b"", headers)
    except BadRecord as error:
        error.stage = stage
        raise
    return None if data.value is None else data


_SMALLEST_BLOCK = 100
"""The smallest number of records that is decoded as a block: fewer cost less when they are decoded one by one."""


def converting_decoder(
    topic: str,
    options: EnvelopeOptions,
    catalog: Catalog | None = None,
    conversion: Conversion | None = None,
    sources: Sources | None = None,
) -> Decoder:
    """Return the decoder of a topic; JsonConverter's documents go to ``RecordDecoder`` without a conversion."""
    decoder = RecordDecoder(topic, options, catalog, sources)
    return ConvertingDecoder(decoder, conversion) if conversion else decoder


class ConvertingDecoder:
    """Convert records, and decode them with ``decoder``: in blocks of one schema if possible, else one by one."""

    def __init__(self, decoder: RecordDecoder, conversion: Conversion) -> None:
        self._decoder = decoder
        self._conversion = conversion

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """See ``Decoder``."""
        result = Decoded()
        parts = [(0, len(records))]
        try:
            while parts:
                begin, end = parts.pop()
                decoded = self._decode_block(records[begin:end])
                if decoded is None and self._reads_blocks(end - begin) and end - begin >= 2 * _SMALLEST_BLOCK:
                    # A block may contain a few records that do not fit: the halves without them are still blocks.
                    half = begin + (end - begin) // 2
                    parts += [(half, end), (begin, half)]
                    continue
                decoded = decoded or self._decode_each(records[begin:end])
                decoded.errant = [replace(errant, index=begin + errant.index) for errant in decoded.errant]
                result.add(decoded)
        except Exception:  # the caller passes the same records again: their notes would be missing
            if self._decoder.envelopes is not None:
                self._decoder.envelopes.discard_notes(result.notes)
            raise
        return result

    def _reads_blocks(self, count: int) -> bool:
        """Whether so many records may be decoded as a block."""
        envelopes = self._decoder.envelopes
        return (
            count >= _SMALLEST_BLOCK
            and self._conversion.reads_blocks
            and envelopes is not None
            and envelopes.reads_blocks
        )

    def _decode_block(self, records: Sequence[KafkaRecord]) -> Decoded | None:
        envelopes = self._decoder.envelopes
        if envelopes is None or not self._reads_blocks(len(records)):
            return None
        block = self._conversion.block(records)
        return None if block is None else envelopes.decode_block(block)

    def _decode_each(self, records: Sequence[KafkaRecord]) -> Decoded:
        converted: list[KafkaRecord] = []
        indexes: list[int] = []
        errant: list[Errant] = []
        for index, record in enumerate(records):
            try:
                converted.append(self._conversion.convert(record))
            except BadRecord as error:
                errant.append(Errant(index, error.stage or Stage.VALUE_CONVERTER, error))
            else:
                indexes.append(index)
        if self._conversion.key is None:
            errant = [self._decoder.key_fault_first(records[bad.index], bad) for bad in errant]
        decoded = self._decoder.decode(converted)
        errant += [replace(bad, index=indexes[bad.index]) for bad in decoded.errant]
        decoded.errant = sorted(errant, key=lambda bad: bad.index)
        return decoded
