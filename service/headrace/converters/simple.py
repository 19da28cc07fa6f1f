"""Kafka Connect's converters of single values: text, bytes, numbers and booleans (``connect.md`` section 12).

Their results are not rows. They are for keys, and for values that a transform converts to rows.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.converters.conversion import Converter, Headers
from headrace.core.connect.config_def import Importance, InvalidValue, Type, Width
from headrace.core.connect.typed_options import Layout, option, parse_options
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema

STRING_CONVERTER = "org.apache.kafka.connect.storage.StringConverter"
_CONVERTERS = "org.apache.kafka.connect.converters."
BYTE_ARRAY_CONVERTER = f"{_CONVERTERS}ByteArrayConverter"
BOOLEAN_CONVERTER = f"{_CONVERTERS}BooleanConverter"

_STRING, _BYTES, _BOOLEAN = (Schema(kind, optional=True) for kind in ("string", "bytes", "boolean"))


@dataclass(frozen=True, slots=True)
class StringConverter:
    """Convert text; bytes that are invalid in its encoding are replaced, as in Java."""

    encoding: str = "UTF-8"

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        return SchemaAndValue(_STRING, document.decode(self.encoding, "replace"))


class ByteArrayConverter:
    """Return bytes unchanged."""

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        return SchemaAndValue(_BYTES, document)


@dataclass(frozen=True, slots=True)
class NumberConverter:
    """Convert big-endian numbers of one width; ``name`` is Connect's name of the type."""

    name: str
    schema: Schema
    form: struct.Struct

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        """A number. Raises BadRecord for bytes of another length."""
        if len(document) != self.form.size:
            raise BadRecord(f"Failed to deserialize {self.name}: {len(document)} bytes, {self.form.size} are required")
        return SchemaAndValue(self.schema, self.form.unpack(document)[0])


class BooleanConverter:
    """Convert one byte: 1 is true, 0 is false."""

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        """A boolean. Raises BadRecord for any other byte."""
        if document not in (b"\0", b"\1"):
            raise BadRecord("Failed to deserialize boolean: one byte with value 0 or 1 is required")
        return SchemaAndValue(_BOOLEAN, document == b"\1")


_NUMBERS = {
    "Integer": ("integer", "int32", ">i"),
    "Long": ("long", "int64", ">q"),
    "Short": ("short", "int16", ">h"),
    "Float": ("float", "float", ">f"),
    "Double": ("double", "double", ">d"),
}
NUMBER_CONVERTERS = tuple(f"{_CONVERTERS}{name}Converter" for name in _NUMBERS)


def _number_converter(name: str, type_name: str, form: str) -> Callable[[Mapping[str, str]], Converter]:
    return lambda options: NumberConverter(name, Schema(type_name, optional=True), struct.Struct(form))


def _encoding(name: str, value: Any) -> None:
    try:
        codecs.lookup(str(value))
    except LookupError as error:
        message = f"Invalid value {value} for configuration {name}: Encoding {value} not found."
        raise InvalidValue(message) from error


@dataclass(frozen=True, slots=True)
class StringOptions:
    """The options of StringConverter."""

    encoding: str = option(
        "converter.encoding",
        Type.STRING,
        StringConverter().encoding,
        "Character set of the text, by its name in Java or Python.",
        Importance.HIGH,
        _encoding,
        layout=Layout(None, -1, Width.MEDIUM, "Encoding"),
    )


def _string_converter(options: Mapping[str, str]) -> Converter:
    """Kafka's converter takes ``deserializer.encoding`` as well, which it does not list."""
    unlisted = options.get("deserializer.encoding", "").strip()
    if unlisted and not options.get("converter.encoding"):
        return StringConverter(unlisted)
    return StringConverter(parse_options(StringOptions, options).encoding)


SIMPLE_CONVERTERS: Mapping[str, Callable[[Mapping[str, str]], Converter]] = {
    STRING_CONVERTER: _string_converter,
    BYTE_ARRAY_CONVERTER: lambda options: ByteArrayConverter(),
    BOOLEAN_CONVERTER: lambda options: BooleanConverter(),
    **{f"{_CONVERTERS}{name}Converter": _number_converter(*parts) for name, parts in _NUMBERS.items()},
}
"""Functions that make a converter from its options, by class name."""
