"""Protobuf's binary form as Connect data, by the schema that the registry has.

Between the schema's id and the message stands which of the schema's messages it is: Confluent counts them, Apicurio
writes the name (``connect.md`` section 13).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from headrace.converters.protobuf_data import ProtobufOptions, Shapes
from headrace.converters.protobuf_files import loaded
from headrace.converters.protobuf_values import MISFITS
from headrace.converters.registered import Read, RegisteredSchema
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord

_NAME_TAG = 0x0A
_NO_MESSAGE = "the document names a message that its Protobuf schema does not have"

Find = Callable[[Any, bytes], tuple[Any, int]]
"""From a file and a payload to the message's descriptor, and where in the payload the message begins."""


def protobuf_reader(registered: RegisteredSchema, options: ProtobufOptions | None = None) -> Read:
    """Reads what Confluent's serializers write behind the id. Raises BadRecord for a schema that is not Protobuf."""
    if registered.kind.upper() != "PROTOBUF":
        raise BadRecord(f"the registry has a schema of {registered.kind} under the record's id, not a Protobuf schema")
    return _reader(registered, options or ProtobufOptions(), _by_place)


def named_protobuf_reader(registered: RegisteredSchema) -> Read:
    """Reads what Apicurio's serializers write behind the id, whose API does not say what kind of schema it has.

    Raises BadRecord for a schema that is not Protobuf.
    """
    return _reader(registered, ProtobufOptions(), _by_name)


def _reader(registered: RegisteredSchema, options: ProtobufOptions, find: Find) -> Read:
    file = loaded(registered)
    shapes = Shapes(options)
    readers: dict[str, Read] = {}

    def read(payload: bytes) -> SchemaAndValue:
        message, begin = find(file, payload)
        reader = readers.get(message.full_name)
        if reader is None:
            reader = readers[message.full_name] = _message_reader(message, shapes)
        return reader(payload[begin:])

    return read


def _by_place(file: Any, payload: bytes) -> tuple[Any, int]:
    """Confluent's form: how many numbers, then each, outermost first; a single zero is the file's first message."""
    count, begin = _zigzag(payload, 0)
    if count < 0:
        raise BadRecord(_NO_MESSAGE)
    place = []
    for _ in range(count):
        index, begin = _zigzag(payload, begin)
        place.append(index)
    message, among = None, list(file.message_types_by_name.values())
    for index in place or [0]:
        if not 0 <= index < len(among):
            raise BadRecord(_NO_MESSAGE)
        message = among[index]
        among = list(message.nested_types)
    return message, begin


def _by_name(file: Any, payload: bytes) -> tuple[Any, int]:
    """Apicurio's form: a message with the name, after its length."""
    length, begin = _varint(payload, 0)
    head = payload[begin : begin + length]
    if head[:1] != bytes((_NAME_TAG,)):
        raise BadRecord("the document does not name its Protobuf message as Apicurio's serializers do")
    size, start = _varint(head, 1)
    name = head[start : start + size].decode(errors="replace")
    if name not in file.message_types_by_name:
        raise BadRecord(f"{_NO_MESSAGE}: {name[:100]}")
    return file.message_types_by_name[name], begin + length


def _zigzag(payload: bytes, begin: int) -> tuple[int, int]:
    number, end = _varint(payload, begin)
    return (number >> 1) ^ -(number & 1), end


def _varint(payload: bytes, begin: int) -> tuple[int, int]:
    """A number, and where the next one begins. Raises BadRecord at the payload's end."""
    number = 0
    for place, octet in enumerate(payload[begin : begin + 5]):
        number |= (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return number, begin + place + 1
    raise BadRecord("the document ends before its Protobuf message begins")


def _message_reader(descriptor: Any, shapes: Shapes) -> Read:
    shape = shapes.of(descriptor)
    parse: Callable[[bytes], Any] = GetMessageClass(descriptor).FromString

    def read(message: bytes) -> SchemaAndValue:
        try:
            return SchemaAndValue(shape.schema, shape.value(parse(message)))
        except (DecodeError, *MISFITS) as error:
            raise BadRecord(f"the bytes are not what their Protobuf schema says ({type(error).__name__})") from error

    return read
