"""Schemas and messages that the tests of Protobuf write."""

from __future__ import annotations

from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass

from headrace.converters.protobuf_files import loaded
from headrace.converters.registered import RegisteredSchema


def registered(text: str, **references: str) -> RegisteredSchema:
    """A schema as the registry has it, and those that it imports, by their names without ``.proto``."""
    named = {f"{name}.proto": RegisteredSchema(each, "PROTOBUF") for name, each in references.items()}
    return RegisteredSchema(text, "PROTOBUF", named)


def message(schema: RegisteredSchema, content: dict[str, Any], name: str = "") -> bytes:
    """A message of the first type in a schema, or of one that is named, without what says which it is."""
    messages = loaded(schema).message_types_by_name
    return bytes(ParseDict(content, GetMessageClass(messages[name or next(iter(messages))])()).SerializeToString())


def varint(number: int) -> bytes:
    """A number as Protobuf writes it; a negative one as ten bytes."""
    octets, number = bytearray(), number & (1 << 64) - 1
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*octets, number))
