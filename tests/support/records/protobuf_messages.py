"""Schemas and messages for the tests of Protobuf."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from headrace.converters.protobuf_schema import load_schema
from headrace.converters.registered import RegisteredSchema


def registered(text: str, **references: str) -> RegisteredSchema:
    """Return a schema as the registry returns it, with its imports by their names without ``.proto``."""
    named = {f"{name}.proto": RegisteredSchema(each, "PROTOBUF") for name, each in references.items()}
    return RegisteredSchema(text, "PROTOBUF", named)


def message(schema: RegisteredSchema, content: dict[str, Any], name: str = "") -> bytes:
    """Serialize a message of the first type of a schema, or of the named type, without message indexes."""
    messages = load_schema(schema).message_types_by_name
    return bytes(ParseDict(content, GetMessageClass(messages[name or next(iter(messages))])()).SerializeToString())


def varint(number: int) -> bytes:
    """Encode a number as a Protobuf varint; a negative one takes ten bytes."""
    encoded, number = bytearray(), number & (1 << 64) - 1
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))
