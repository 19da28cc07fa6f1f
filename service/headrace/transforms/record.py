"""Kafka Connect's ``SinkRecord``, the record that transforms take and return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from headrace.converters.conversion import Converter
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Stage
from headrace.transforms.literals import parse_literal

NOTHING = SchemaAndValue(None, None)
"""The key or value of a record without one."""

Header = tuple[str, "bytes | SchemaAndValue | None"]
"""A header's name and value: the bytes from Kafka, or data that a transform has added."""


@dataclass(frozen=True, slots=True)
class SinkRecord:
    """One record. ``partition`` and ``offset`` are its place in Kafka, whatever becomes of the topic's name.

    A ``timestamp`` below zero is none, as with Kafka's clients.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: SchemaAndValue
    value: SchemaAndValue
    headers: tuple[Header, ...] = ()
    header_converter: Converter | None = None
    """The converter of headers that are bytes; None is SimpleHeaderConverter, which infers their type."""

    def header_value(self, header: Header) -> SchemaAndValue:
        """Convert a header to data, if it is bytes. Raises BadRecord (stage HEADER_CONVERTER)."""
        _, value = header
        if isinstance(value, SchemaAndValue):
            return value
        if value is None:
            return NOTHING
        if self.header_converter is None:
            return parse_literal(value.decode("utf-8", "replace"))
        try:
            return self.header_converter.to_connect_data(value, ())
        except BadRecord as error:
            error.stage = Stage.HEADER_CONVERTER
            raise

    def with_topic(self, topic: str) -> SinkRecord:
        """The record with another topic."""
        return self if topic == self.topic else replace(self, topic=topic)

    def with_header(self, name: str, value: SchemaAndValue) -> SinkRecord:
        """The record with one more header."""
        return replace(self, headers=(*self.headers, (name, value)))


Transform = Callable[[SinkRecord], "SinkRecord | None"]
"""Returns the transformed record, None if it is dropped. Raises BadRecord if it cannot transform the record."""

Predicate = Callable[[SinkRecord], bool]


class Side(StrEnum):
    """The half of a record that a ``$Key`` or ``$Value`` class works on."""

    KEY = "Key"
    VALUE = "Value"

    def of(self, record: SinkRecord) -> SchemaAndValue:
        """This half of a record."""
        return record.key if self is Side.KEY else record.value

    def put(self, record: SinkRecord, data: SchemaAndValue) -> SinkRecord:
        """The record with another half."""
        return replace(record, key=data) if self is Side.KEY else replace(record, value=data)


def unusable(message: str) -> BadRecord:
    """Return the error for a record that a transform cannot use. The message must not contain a value."""
    return BadRecord(message, stage=Stage.TRANSFORMATION)
