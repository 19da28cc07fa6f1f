"""Connect's converters of primitive values."""

from __future__ import annotations

import pytest

from headrace.converters.simple import SIMPLE_CONVERTERS, STRING_CONVERTER
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema

CONVERTERS = "org.apache.kafka.connect.converters."


@pytest.mark.parametrize(
    ("name", "document", "kind", "value"),
    [
        ("ByteArrayConverter", b"\x00\xff", "bytes", b"\x00\xff"),
        ("IntegerConverter", b"\xff\xff\xff\xfe", "int32", -2),
        ("LongConverter", b"\x00\x00\x00\x01\x00\x00\x00\x00", "int64", 2**32),
        ("ShortConverter", b"\x01\x00", "int16", 256),
        ("FloatConverter", b"\x3f\xc0\x00\x00", "float", 1.5),
        ("DoubleConverter", b"\x3f\xf8\x00\x00\x00\x00\x00\x00", "double", 1.5),
        ("BooleanConverter", b"\x01", "boolean", True),
    ],
)
def test_values_of_fixed_width(name: str, document: bytes, kind: str, value: object) -> None:
    """Numbers are read big-endian with an optional schema (``connect.md`` section 12)."""
    converter = SIMPLE_CONVERTERS[f"{CONVERTERS}{name}"]({})
    assert converter.to_connect_data(document, ()) == SchemaAndValue(Schema(kind, optional=True), value)


@pytest.mark.parametrize(
    ("name", "document"), [("IntegerConverter", b"123"), ("BooleanConverter", b"\x02"), ("BooleanConverter", b"")]
)
def test_bytes_of_another_width_are_a_bad_record(name: str, document: bytes) -> None:
    """Bytes of another length, or a boolean other than 0 and 1, raise BadRecord."""
    with pytest.raises(BadRecord, match="Failed to deserialize"):
        SIMPLE_CONVERTERS[f"{CONVERTERS}{name}"]({}).to_connect_data(document, ())


@pytest.mark.parametrize(
    ("options", "document", "text"),
    [
        ({}, b"\xc3\xa4\xff", "ä\ufffd"),
        ({"converter.encoding": "ISO-8859-1"}, b"\xe4", "ä"),
        ({"deserializer.encoding": "windows-1252"}, b"\x80", "€"),
        ({"converter.encoding": "UTF-16", "deserializer.encoding": "UTF-8"}, b"\xfe\xff\x00a", "a"),
    ],
)
def test_strings_have_the_configured_encoding(options: dict[str, str], document: bytes, text: str) -> None:
    """Bytes that are invalid in the configured encoding are replaced, as in Java."""
    assert SIMPLE_CONVERTERS[STRING_CONVERTER](options).to_connect_data(document, ()).value == text
