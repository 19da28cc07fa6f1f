"""Choose the decoder of a topic by the connector that writes it.

Debezium's connectors write envelopes, which ``core/decode/envelope.py`` decodes. A source whose events have another
form has a pack with a decoder, which the worker is given by the name of the connector. One connector
writes a topic, and its events contain the connector's name: the first record with a value decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.json_converter import Document, JsonData
from headrace.core.decode.records import Errant, KafkaRecord
from headrace.core.model.catalog import Catalog
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage


class Decoder(Protocol):
    """Decode the records of one topic. Not thread-safe."""

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        """Decode records of one partition, in order of arrival. The result lists bad records; none raises an error.

        Raises Retriable if the source database does not answer, and what converters raise for a schema that has to be
        fetched first. The caller may then pass the same records again.
        """


class OpenDecoder(Protocol):
    """What an entry point of ``headrace.sources`` names."""

    def __call__(self, topic: str, options: EnvelopeOptions, /) -> Decoder:
        """Return the decoder of a topic."""


Sources = Mapping[str, OpenDecoder]
"""Decoders of topics by the name of the connector (``source.connector``) whose events have a form of their own."""


class RecordDecoder:
    """The decoder of one topic, which is chosen once. ``envelopes`` is None if the topic has no envelopes."""

    def __init__(
        self, topic: str, options: EnvelopeOptions, catalog: Catalog | None = None, sources: Sources | None = None
    ) -> None:
        self.envelopes: TopicDecoder | None = TopicDecoder(topic, options, catalog, sources or ())
        self._decoder: Decoder = self.envelopes
        self._topic, self._options = topic, options
        self._undecided = dict(sources or {})
        self._keys = JsonData(options.key_schemas)

    def decode(self, records: Sequence[KafkaRecord]) -> Decoded:
        values = (record.value for record in records if record.value is not None)
        if self._undecided and (first := next(values, None)) is not None:
            connector = _connector(first, self._undecided)
            if connector is not None:
                self._decoder, self.envelopes = self._undecided[connector](self._topic, self._options), None
            self._undecided.clear()
        decoded = self._decoder.decode(records)
        if decoded.errant:
            decoded.errant = [self.key_fault_first(records[errant.index], errant) for errant in decoded.errant]
        return decoded

    def key_fault_first(self, record: KafkaRecord, errant: Errant) -> Errant:
        """Report a key that JsonConverter cannot convert before other faults: Kafka Connect converts the key first.

        If ``primary.key.fields`` names the key's columns, the key of a row is not used, and is no cause of its fault.
        """
        needed = errant.stage is Stage.VALUE_CONVERTER or not self._options.key_fields
        if errant.stage is not Stage.KEY_CONVERTER and needed and isinstance(record.key, bytes):
            try:
                self._keys.to_connect_data(record.key)
            except BadRecord as error:
                return replace(errant, stage=Stage.KEY_CONVERTER, error=error)
        return errant


def _connector(value: bytes | Document | SchemaAndValue, connectors: Mapping[str, object]) -> str | None:
    """Which of ``connectors`` has written an event."""
    if not isinstance(value, SchemaAndValue):
        text = value.payload if isinstance(value, Document) else value
        return next((name for name in connectors if b'"connector":"%s"' % name.encode() in text), None)
    source = value.value.get("source") if isinstance(value.value, Mapping) else None
    name = source.get("connector") if isinstance(source, Mapping) else None
    return name if name in connectors else None
