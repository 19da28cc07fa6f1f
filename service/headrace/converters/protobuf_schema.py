"""Load the registry's Protobuf schemas: each with everything that it imports, in its own descriptor pool.

A registry stores descriptors, or schemas in Protobuf's language, which proto-schema-parser parses. Names of types are
not resolved here, because the descriptor pool resolves them by the language's rules. Only options that affect reading
are kept: Confluent's ``field_meta``, ``map_entry`` and defaults. Services and extensions are ignored.

Tests: ``tests/unit/converters/test_protobuf_schemas.py``.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import (
    DESCRIPTOR,
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from headrace.converters.registered import RegisteredSchema
from headrace.core.model.errors import BadRecord

_NUMBER = 1088


def _options() -> Any:
    file = FileDescriptorProto(name="headrace/meta.proto", package="headrace", syntax="proto3")
    meta = file.message_type.add(name="Meta")
    entry = meta.nested_type.add(name="ParamsEntry")
    entry.options.map_entry = True
    for number, name in enumerate(("key", "value"), 1):
        entry.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING)
    repeated = FieldDescriptorProto.LABEL_REPEATED
    meta.field.add(name="params", number=2, label=repeated, type_name=".headrace.Meta.ParamsEntry")
    file.message_type.add(name="Options").field.add(name="field_meta", number=_NUMBER, type_name=".headrace.Meta")
    for message in (meta, file.message_type[1]):
        message.field[0].type = FieldDescriptorProto.TYPE_MESSAGE
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("headrace.Options"))


_Options = _options()


def encode_params(params: Mapping[str, str]) -> bytes:
    options = _Options()
    options.field_meta.params.update(params)
    return bytes(options.SerializeToString())


def params(options: bytes) -> dict[str, str]:
    return dict(_Options.FromString(options).field_meta.params)


_META = ("(confluent.field_meta)", "(.confluent.field_meta)")
_PARAMS = tuple(f"{option}.params" for option in _META)

_TEXT_OR_COMMENT = re.compile(r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_SCALARS = {
    name: getattr(FieldDescriptorProto, f"TYPE_{name.upper()}")
    for name in (
        *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
    )
}
_LABELS = {
    None: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.OPTIONAL: FieldDescriptorProto.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: FieldDescriptorProto.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: FieldDescriptorProto.LABEL_REPEATED,
}


class _Refusing(ErrorListener):  # type: ignore[misc] # antlr4 ships no types
    """Raise an error where ANTLR would print a message and continue."""

    def syntaxError(self, recognizer: Any, symbol: Any, line: int, column: int, msg: str, e: Any) -> None:  # noqa: N802 - ANTLR's
        raise BadRecord(f"the registry's schema is not a valid Protobuf schema: line {line}, column {column}")


def parse_schema_text(text: str, name: str) -> FileDescriptorProto:
    """Return a schema as a file with ``name``. Raises BadRecord for an invalid schema, or one with an edition."""

    def refuse(reader: Any) -> None:
        reader.removeErrorListeners()
        reader.addErrorListener(_Refusing())

    # The parser accepts comments between statements only. Line numbers stay, for error messages.
    plain = _TEXT_OR_COMMENT.sub(lambda match: match[1] or " " + "\n" * match[0].count("\n"), text)
    try:
        parsed = Parser(setup_lexer=refuse, setup_parser=refuse).parse(plain)
        if parsed.edition:
            raise BadRecord(f"the Protobuf schema has edition {parsed.edition}; only proto2 and proto3 are supported")
        proto3 = parsed.syntax == "proto3"
        file = FileDescriptorProto(name=name, syntax="proto3" if proto3 else "proto2")
        for element in parsed.file_elements:
            if isinstance(element, ast.Package):
                file.package = element.name
            elif isinstance(element, ast.Import):
                if element.public:
                    file.public_dependency.append(len(file.dependency))
                file.dependency.append(element.name)
            elif isinstance(element, ast.Message):
                file.message_type.append(_message(element, proto3))
            elif isinstance(element, ast.Enum):
                file.enum_type.append(_enum(element))
    except BadRecord:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # the parser's errors for some literals
        raise BadRecord(f"the registry's schema is not a valid Protobuf schema ({type(error).__name__})") from error
    return file


def _message(parsed: ast.Message, proto3: bool) -> DescriptorProto:
    message = DescriptorProto(name=parsed.name)
    entries = []  # appended after the declared messages, because documents contain the indexes of those
    for element in parsed.elements:
        if isinstance(element, ast.Group):
            raise BadRecord(f"the Protobuf schema has a group ({element.name}), which has no equivalent in Connect")
        if isinstance(element, ast.Field):
            message.field.append(_field(element))
        elif isinstance(element, ast.MapField):
            key, value = _field_of_type("key", 1, element.key_type), _field_of_type("value", 2, element.value_type)
            entry = DescriptorProto(name=entry_name(element.name), field=(key, value))
            entry.options.map_entry = True
            entries.append(entry)
            field = _field_of_type(element.name, element.number, entry_name(element.name))
            field.label = FieldDescriptorProto.LABEL_REPEATED
            message.field.append(field)
        elif isinstance(element, ast.OneOf):
            message.field.extend(_members(element, len(message.oneof_decl)))
            message.oneof_decl.add(name=element.name)
        elif isinstance(element, ast.Message):
            message.nested_type.append(_message(element, proto3))
        elif isinstance(element, ast.Enum):
            message.enum_type.append(_enum(element))
        elif isinstance(element, ast.Option) and element.name == "map_entry":
            message.options.map_entry = bool(element.value)
    message.nested_type.extend(entries)
    if proto3:
        _add_synthetic_oneofs(message, parsed)
    return message


def _add_synthetic_oneofs(message: DescriptorProto, parsed: ast.Message) -> None:
    """Add a oneof for each field that is declared ``optional``, which gives it presence in proto3."""
    optional = {
        element.name
        for element in parsed.elements
        if isinstance(element, ast.Field) and element.cardinality is ast.FieldCardinality.OPTIONAL
    }
    for field in message.field:
        if field.name in optional:
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")


def _members(parsed: ast.OneOf, index: int) -> Iterator[FieldDescriptorProto]:
    for element in parsed.elements:
        if isinstance(element, ast.Group):
            raise BadRecord(f"the Protobuf schema has a group ({element.name}), which has no equivalent in Connect")
        if isinstance(element, ast.Field):
            field = _field(element)
            field.oneof_index = index
            yield field


def _field(parsed: ast.Field) -> FieldDescriptorProto:
    field = _field_of_type(parsed.name, parsed.number, parsed.type)
    field.label = _LABELS[parsed.cardinality]
    for option in parsed.options:
        if option.name == "default":
            value = option.value
            field.default_value = str(value).lower() if isinstance(value, bool) else str(getattr(value, "name", value))
        elif params := _params(option):
            field.options.MergeFromString(encode_params(params))
    return field


def _field_of_type(name: str, number: int, type_name: str) -> FieldDescriptorProto:
    field = FieldDescriptorProto(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type_name = type_name  # the descriptor pool finds out whether it is a message or an enum
    return field


def entry_name(name: str) -> str:
    """Return the name of the message of a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _enum(parsed: ast.Enum) -> EnumDescriptorProto:
    enum = EnumDescriptorProto(name=parsed.name)
    for element in parsed.elements:
        if isinstance(element, ast.EnumValue):
            enum.value.add(name=element.name, number=element.number)
    return enum


# -- Confluent's metadata of fields ------------------------------------------------------------------------


def _params(option: ast.Option) -> dict[str, str]:
    """Return the parameters of a field's metadata, in either syntax."""
    if option.name in _META and isinstance(option.value, ast.MessageLiteral):
        values = [member.value for member in _literal(option.value) if member.name == "params"]
    elif option.name in _PARAMS:
        values = [option.value]
    else:
        return {}
    entries = [entry for value in values for entry in (value if isinstance(value, list) else [value])]
    pairs = ({member.name: member.value for member in _literal(entry)} for entry in entries)
    return {str(pair["key"]): str(pair["value"]) for pair in pairs if {"key", "value"} <= pair.keys()}


def _literal(value: Any) -> list[ast.MessageLiteralField]:
    return [element for element in getattr(value, "elements", ()) if isinstance(element, ast.MessageLiteralField)]


ROOT = "schema.proto"
"""The file name of a schema that was fetched by its id."""

_GOOGLE = {
    module.name: module.serialized_pb
    for module in (
        DESCRIPTOR,
        *(any_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR, empty_pb2.DESCRIPTOR, field_mask_pb2.DESCRIPTOR),
        *(struct_pb2.DESCRIPTOR, timestamp_pb2.DESCRIPTOR, wrappers_pb2.DESCRIPTOR),
    )
}
_BUILT_IN = {
    "confluent/meta.proto": 'syntax = "proto3"; package confluent;',  # ``params`` reads its extension
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; '
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    ),
    "confluent/types/decimal.proto": (  # its former path
        'syntax = "proto3"; import public "confluent/type/decimal.proto";'
    ),
    "google/type/date.proto": (
        'syntax = "proto3"; package google.type; message Date { int32 year = 1; int32 month = 2; int32 day = 3; }'
    ),
    "google/type/timeofday.proto": (
        'syntax = "proto3"; package google.type; '
        "message TimeOfDay { int32 hours = 1; int32 minutes = 2; int32 seconds = 3; int32 nanos = 4; }"
    ),
}
"""Files that schemas import without a reference, because converters contain them."""


def load_schema(registered: RegisteredSchema) -> FileDescriptor:
    """Return a schema as a ``FileDescriptor``. Raises BadRecord for a schema that cannot be loaded."""
    pool = DescriptorPool()
    _add(pool, registered, ROOT, set())
    return pool.FindFileByName(ROOT)


def _add(pool: DescriptorPool, registered: RegisteredSchema, name: str, added: set[str]) -> None:
    """Add a schema and its imports to the pool, imports first."""
    if name in added:
        return
    added.add(name)
    file = _file(registered.text, name)
    for imported in file.dependency:
        reference = registered.references.get(imported)
        if reference is not None:
            _add(pool, reference, imported, added)
        elif imported in _BUILT_IN:
            _add(pool, RegisteredSchema(_BUILT_IN[imported], "PROTOBUF"), imported, added)
        elif imported not in added:
            added.add(imported)
            if imported not in _GOOGLE:
                raise BadRecord(
                    f"the Protobuf schema imports {imported}, which is not among its references in the registry"
                )
            _put(pool, FileDescriptorProto.FromString(bytes(_GOOGLE[imported])))
    _put(pool, file)


def _put(pool: DescriptorPool, file: FileDescriptorProto) -> None:
    try:
        pool.Add(file)
        pool.FindFileByName(file.name)
    except (TypeError, KeyError) as error:
        raise BadRecord(f"the registry's Protobuf schema cannot be loaded: {error}") from error


def _file(text: str, name: str) -> FileDescriptorProto:
    """Parse a schema: text, or a descriptor in base64; registries store either."""
    try:
        file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return parse_schema_text(text, name)
    file.name = name
    return file
