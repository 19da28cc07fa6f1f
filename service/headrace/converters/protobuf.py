"""Convert Protobuf's binary format to Connect data, with the schema of the registry.

The id of the schema is followed by the message type within the schema: Confluent writes its index, Apicurio its name
(``connect.md`` section 13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from headrace.converters.protobuf_data import MISFITS, FieldReaders, ProtobufOptions
from headrace.converters.protobuf_schema import load_schema
from headrace.converters.registered import Read, RegisteredSchema
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord

_NAME_TAG = 0x0A
_NO_MESSAGE = "the document's message type is not in its Protobuf schema"

Find = Callable[[FileDescriptor, bytes], tuple[Descriptor, int]]
"""Takes a file and a payload; returns the message's descriptor, and where in the payload the message begins."""


def protobuf_reader(registered: RegisteredSchema, options: ProtobufOptions | None = None) -> Read:
    """Return a reader of payloads of Confluent's serializers. Raises BadRecord for a schema that is not Protobuf."""
    registered.require_type("PROTOBUF", "Protobuf")
    return _reader(registered, options or ProtobufOptions(), _by_index)


def named_protobuf_reader(registered: RegisteredSchema) -> Read:
    """Return a reader of payloads of Apicurio's serializers. Raises BadRecord for a schema that is not Protobuf.

    Apicurio's API does not return the type of a schema.
    """
    return _reader(registered, ProtobufOptions(), _by_name)


def _reader(registered: RegisteredSchema, options: ProtobufOptions, find: Find) -> Read:
    file = load_schema(registered)
    fields = FieldReaders(options)
    readers: dict[str, Read] = {}

    def read(payload: bytes) -> SchemaAndValue:
        message, begin = find(file, payload)
        reader = readers.get(message.full_name)
        if reader is None:
            reader = readers[message.full_name] = _message_reader(message, fields)
        return reader(payload[begin:])

    return read


def _by_index(file: FileDescriptor, payload: bytes) -> tuple[Descriptor, int]:
    """Confluent's format: a count, then as many indexes, outermost first; a single zero is the file's first message."""
    count, begin = _zigzag(payload, 0)
    if count < 0:
        raise BadRecord(_NO_MESSAGE)
    path = []
    for _ in range(count):
        index, begin = _zigzag(payload, begin)
        path.append(index)
    message, candidates = None, list(file.message_types_by_name.values())
    for index in path or [0]:
        if not 0 <= index < len(candidates):
            raise BadRecord(_NO_MESSAGE)
        message = candidates[index]
        candidates = list(message.nested_types)
    return message, begin


def _by_name(file: FileDescriptor, payload: bytes) -> tuple[Descriptor, int]:
    """Apicurio's format: a length, then a message that contains the name."""
    length, begin = _varint(payload, 0)
    head = payload[begin : begin + length]
    if head[:1] != bytes((_NAME_TAG,)):
        raise BadRecord(
            "the document does not contain its Protobuf message type in the format of Apicurio's serializers"
        )
    size, start = _varint(head, 1)
    name = head[start : start + size].decode(errors="replace")
    if name not in file.message_types_by_name:
        raise BadRecord(f"{_NO_MESSAGE}: {name[:100]}")
    return file.message_types_by_name[name], begin + length


def _zigzag(payload: bytes, begin: int) -> tuple[int, int]:
    number, end = _varint(payload, begin)
    return (number >> 1) ^ -(number & 1), end


def _varint(payload: bytes, begin: int) -> tuple[int, int]:
    """Read a number; return it and where the next one begins. Raises BadRecord at the payload's end."""
    number = 0
    for index, byte in enumerate(payload[begin : begin + 5]):
        number |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return number, begin + index + 1
    raise BadRecord("the document ends before its Protobuf message begins")


def _message_reader(descriptor: Descriptor, fields: FieldReaders) -> Read:
    reader = fields.of(descriptor)
    parse: Callable[[bytes], Any] = GetMessageClass(descriptor).FromString

    def read(message: bytes) -> SchemaAndValue:
        try:
            return SchemaAndValue(reader.schema, reader.value(parse(message)))
        except (DecodeError, *MISFITS) as error:
            raise BadRecord(f"the bytes do not match their Protobuf schema ({type(error).__name__})") from error

    return read
