"""Convert schemas in Protobuf's language, as a registry stores them, to descriptors.

proto-schema-parser parses the text. Names of types are not resolved, because the descriptor pool resolves them by the
language's rules. Only options that affect reading are kept: Confluent's ``field_meta``, ``map_entry`` and defaults.
Services and extensions are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from headrace.converters.protobuf_meta import encoded
from headrace.core.model.errors import BadRecord

_META = ("(confluent.field_meta)", "(.confluent.field_meta)")
_PARAMS = tuple(f"{each}.params" for each in _META)

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


def described(text: str, name: str) -> FileDescriptorProto:
    """Return a schema as a file with ``name``. Raises BadRecord for an invalid schema, or one with an edition."""
    try:
        return _file(_parsed(text), name)
    except BadRecord:
        raise
    except (ValueError, TypeError, AttributeError, RecursionError) as error:  # the parser's errors for some literals
        raise BadRecord(f"the registry's schema is not a valid Protobuf schema ({type(error).__name__})") from error


def _parsed(text: str) -> ast.File:
    def refuse(reader: Any) -> None:
        reader.removeErrorListeners()
        reader.addErrorListener(_Refusing())

    return Parser(setup_lexer=refuse, setup_parser=refuse).parse(_TEXT_OR_COMMENT.sub(_without_comment, text))


def _without_comment(found: re.Match[str]) -> str:
    """Remove a comment: the parser accepts them between statements only. Line numbers stay, for error messages."""
    return found[1] or " " + "\n" * found[0].count("\n")


def _file(parsed: ast.File, name: str) -> FileDescriptorProto:
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
            entries.append(_entry(element))
            field = _typed(element.name, element.number, entry_name(element.name))
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
        each.name
        for each in parsed.elements
        if isinstance(each, ast.Field) and each.cardinality is ast.FieldCardinality.OPTIONAL
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
    field = _typed(parsed.name, parsed.number, parsed.type)
    field.label = _LABELS[parsed.cardinality]
    for option in parsed.options:
        if option.name == "default":
            value = option.value
            field.default_value = str(value).lower() if isinstance(value, bool) else str(getattr(value, "name", value))
        elif params := _params(option):
            field.options.MergeFromString(encoded(params))
    return field


def _typed(name: str, number: int, type_name: str) -> FieldDescriptorProto:
    field = FieldDescriptorProto(name=name, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
    if type_name in _SCALARS:
        field.type = _SCALARS[type_name]
    else:
        field.type_name = type_name  # the descriptor pool finds out whether it is a message or an enum
    return field


def entry_name(name: str) -> str:
    """Return the name of the message of a map's entries."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) + "Entry"


def _entry(parsed: ast.MapField) -> DescriptorProto:
    entry = DescriptorProto(name=entry_name(parsed.name))
    entry.field.extend((_typed("key", 1, parsed.key_type), _typed("value", 2, parsed.value_type)))
    entry.options.map_entry = True
    return entry


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
        found = [each.value for each in _literal(option.value) if each.name == "params"]
    elif option.name in _PARAMS:
        found = [option.value]
    else:
        return {}
    entries = [entry for value in found for entry in (value if isinstance(value, list) else [value])]
    pairs = ({each.name: each.value for each in _literal(entry)} for entry in entries)
    return {str(pair["key"]): str(pair["value"]) for pair in pairs if {"key", "value"} <= pair.keys()}


def _literal(value: Any) -> list[ast.MessageLiteralField]:
    return [each for each in getattr(value, "elements", ()) if isinstance(each, ast.MessageLiteralField)]
