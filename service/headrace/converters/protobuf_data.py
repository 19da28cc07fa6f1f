"""Convert Protobuf messages to Connect data, with the rules and options of Confluent's ``ProtobufData``.

A message becomes a struct with its short name, and a ``oneof`` a struct of its members, of which one is set. A field
without presence that is not set has its default; a field with presence that is not set is null. ``Timestamp``,
``Date``, ``TimeOfDay`` and Confluent's ``Decimal`` become Connect's types, wrappers their values, enums their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from headrace.converters.protobuf_meta import params
from headrace.converters.protobuf_options import ProtobufOptions
from headrace.converters.protobuf_values import (
    LOGICAL,
    TYPE_NAMES,
    FieldReader,
    Value,
    always,
    chosen_value,
    each_value,
    enum_name,
    if_set,
    pairs,
    same,
    scalar,
    struct_value,
    wrapped,
)
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import MOST_PARTS, Field, Schema, too_many_parts

_OURS = "io.confluent.connect.protobuf"
_WRAPPED = {
    f"google.protobuf.{name}Value": kind
    for name, kind in (
        ("Double", "double"), ("Float", "float"), ("Int64", "int64"), ("UInt64", "int64"), ("Int32", "int32"),
        ("UInt32", "int64"), ("Bool", "boolean"), ("String", "string"), ("Bytes", "bytes"),
    )
}  # fmt: skip
_KINDS = {
    "double": "double",
    "float": "float",
    "bool": "boolean",
    "string": "string",
    "bytes": "bytes",
    **dict.fromkeys(("int32", "sint32", "sfixed32"), "int32"),
    **dict.fromkeys(("uint32", "fixed32", "int64", "uint64", "sint64", "fixed64", "sfixed64"), "int64"),
}
_REPEATED = FieldDescriptorProto.LABEL_REPEATED


class FieldReaders:
    """Build the readers of a schema's messages."""

    def __init__(self, options: ProtobufOptions) -> None:
        self._options = options
        self._parts = 0

    def of(self, message: Any, within: tuple[str, ...] = ()) -> FieldReader:
        """The reader of a message. Raises BadRecord for a message that contains itself."""
        if message.full_name in within:
            raise BadRecord(f"the Protobuf message {message.full_name} contains itself")
        kind = _WRAPPED.get(message.full_name)
        if kind is not None and (self._options.wrapper_for_raw_primitives or self._options.wrapper_for_nullables):
            return FieldReader(Schema(kind), wrapped(scalar(message.fields_by_name["value"])))
        return self._struct(message, (*within, message.full_name))

    def _struct(self, message: Any, within: tuple[str, ...]) -> FieldReader:
        described = DescriptorProto()
        message.CopyToProto(described)
        descriptors = {each.name: each for each in described.field}
        members = [*self._unions(message, descriptors, within)]
        for field in message.fields:
            if field.containing_oneof is None or descriptors[field.name].proto3_optional:
                declared = descriptors[field.name]
                reader = self._field(field, declared, within)
                optional = declared.proto3_optional or (
                    self._options.optional_for_proto2 and _is_declared_optional(field, declared)
                )
                has_default = declared.label == _REPEATED or field.message_type is None
                getter = always if has_default and not optional else if_set
                members.append((field.name, reader.schema, getter(field.name, reader.value)))
        schema = Schema("struct", fields=tuple(Field(name, of) for name, of, _ in members), name=self._name(message))
        return FieldReader(schema, struct_value([(name, get) for name, _, get in members]))

    def _name(self, described: Any) -> str:
        return str(described.full_name if self._options.full_names else described.name)

    # -- choices -------------------------------------------------------------------------------------------

    def _unions(
        self, message: Any, descriptors: Mapping[str, FieldDescriptorProto], within: tuple[str, ...]
    ) -> Iterable[tuple[str, Schema, Value]]:
        for index, union in enumerate(message.oneofs):
            if any(descriptors[each.name].proto3_optional for each in union.fields):
                continue  # not a choice, but the synthetic oneof of an ``optional`` field
            readers = {
                each.name: self._field(each, descriptors[each.name], within, chosen=True) for each in union.fields
            }
            if self._options.flatten_unions:
                yield from ((name, reader.schema, if_set(name, reader.value)) for name, reader in readers.items())
                continue
            fields = tuple(Field(name, reader.schema) for name, reader in readers.items())
            schema = Schema("struct", optional=True, name=f"{_OURS}.Union.{self._name(union)}", fields=fields)
            name = f"{union.name}_{index}" if self._options.index_for_unions else union.name
            yield name, schema, chosen_value(union.name, {each: reader.value for each, reader in readers.items()})

    # -- fields --------------------------------------------------------------------------------------------

    def _field(
        self, field: Any, declared: FieldDescriptorProto, within: tuple[str, ...], *, chosen: bool = False
    ) -> FieldReader:
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise too_many_parts()
        reader = self._single(field, declared, within)
        if declared.label == _REPEATED and reader.schema.type != "map":
            items = replace(reader.schema, optional=True)
            reader = FieldReader(Schema("array", optional=True, items=items), each_value(reader.value))
        schema = reader.schema
        tagged = tuple(sorted((*schema.parameters, (f"{_OURS}.Tag", str(field.number)))))
        nullable = (
            _is_declared_optional(field, declared)
            if self._options.optional_for_nullables
            else not self._options.wrapper_for_nullables
        )
        optional = schema.optional or chosen or nullable
        return FieldReader(replace(schema, optional=optional, parameters=tagged), reader.value)

    def _single(self, field: Any, declared: FieldDescriptorProto, within: tuple[str, ...]) -> FieldReader:
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        if field.message_type is None:
            return self._plain(field, declared)
        logical = LOGICAL.get(field.message_type.full_name)
        if logical is not None:
            return logical(params(declared.options.SerializeToString()))
        if declared.label == _REPEATED and _is_map_entry(field.message_type):
            return self._map(field.message_type, within)
        reader = self.of(field.message_type, within)
        return replace(reader, schema=replace(reader.schema, optional=True))

    def _plain(self, field: Any, declared: FieldDescriptorProto) -> FieldReader:
        name = TYPE_NAMES[field.type]
        if name not in _KINDS:
            raise BadRecord(f"the Protobuf schema has a {name} ({field.full_name}), which has no equivalent in Connect")
        kind = _KINDS[name]
        narrow = params(declared.options.SerializeToString()).get("connect.type") if kind == "int32" else None
        if narrow in ("int8", "int16"):
            return FieldReader(Schema(narrow), same)
        other = kind in ("int32", "int64") and name != kind
        parameters = ((f"{_OURS}.Type", name),) if other else ()
        return FieldReader(Schema(kind, parameters=parameters), scalar(field))

    def _enum(self, enum: Any) -> FieldReader:
        key = f"{_OURS}.Enum"
        values = ((f"{key}.{each.name}", str(each.number)) for each in enum.values)
        parameters = tuple(sorted(((key, enum.name), *values)))
        kind = "int32" if self._options.int_for_enums else "string"
        schema = Schema(kind, optional=True, name=self._name(enum), parameters=parameters)
        return FieldReader(schema, same if self._options.int_for_enums else enum_name(enum))

    def _map(self, entry: Any, within: tuple[str, ...]) -> FieldReader:
        described = DescriptorProto()
        entry.CopyToProto(described)
        key, value = (self._field(entry.fields_by_name[each.name], each, within) for each in described.field)
        schema = Schema("map", optional=True, name=_map_name(self._name(entry)), keys=key.schema, values=value.schema)
        return FieldReader(schema, pairs(key, value, described.options.map_entry))


def _map_name(entry: str) -> str:
    """Convert ``a.B.MyTagsEntry`` to ``a.B.my_tags``."""
    within, dot, name = entry.rpartition(".")
    return within + dot + re.sub(r"(?<!^)([A-Z])", r"_\1", name.removesuffix("Entry")).lower()


def _is_map_entry(message: Any) -> bool:
    names = [each.name for each in message.fields]
    return message.name.endswith("Entry") and names == ["key", "value"]


def _is_declared_optional(field: Any, declared: FieldDescriptorProto) -> bool:
    """Whether a field that is not a message is declared ``optional``, which gives it presence."""
    alone = field.has_presence and field.message_type is None and field.containing_oneof is None
    return bool(declared.proto3_optional or (alone and declared.label == FieldDescriptorProto.LABEL_OPTIONAL))
