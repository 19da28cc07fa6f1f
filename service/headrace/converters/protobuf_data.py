"""Convert Protobuf messages to Connect data, with the rules and options of Confluent's ``ProtobufData``.

A message becomes a struct with its short name, and a ``oneof`` a struct of its members, all null but one. A field
without presence that is not set has its default; a field with presence that is not set is null. ``Timestamp``,
``Date``, ``TimeOfDay`` and Confluent's ``Decimal`` become Connect's types, wrappers their values, enums their names.

Tests: ``tests/unit/converters/test_protobuf.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date
from operator import itemgetter
from typing import Any

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, OneofDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from headrace.converters.protobuf_schema import params
from headrace.core.connect.config_def import Importance, Type
from headrace.core.connect.typed_options import Layout, option
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import MOST_PARTS, Field, Schema, too_many_parts


def _switch(name: str, default: bool, doc: str) -> Any:
    return option(name, Type.BOOLEAN, default, doc, Importance.LOW, layout=Layout(display_name=name))


@dataclass(frozen=True, slots=True)
class ProtobufOptions:
    """How Confluent's converter reads messages, with its defaults."""

    full_names: bool = _switch(
        "enhanced.protobuf.schema.support", False, "Includes the package in the names of messages."
    )
    int_for_enums: bool = _switch("int.for.enums", False, "Reads enums as their numbers instead of their names.")
    optional_for_nullables: bool = _switch(
        "optional.for.nullables", False, "Only fields declared optional may be null."
    )
    optional_for_proto2: bool = _switch(
        "optional.for.proto2", True, "Whether fields of proto2 that are not set are null."
    )
    wrapper_for_nullables: bool = _switch("wrapper.for.nullables", False, "Only messages and wrappers may be null.")
    wrapper_for_raw_primitives: bool = _switch(
        "wrapper.for.raw.primitives", True, "Reads wrappers as the values in them."
    )
    index_for_unions: bool = _switch("generate.index.for.unions", True, "Appends the index of a oneof to its name.")
    flatten_unions: bool = _switch(
        "flatten.unions", False, "Reads the members of a oneof as fields instead of a struct."
    )


Value = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class FieldReader:
    """A Connect schema, and the function that converts Protobuf's values. It may raise an error of ``MISFITS``."""

    schema: Schema
    value: Value


MISFITS = (ValueError, OverflowError, TypeError)
"""The errors of ``FieldReader.value`` for a value that does not match the schema."""

TYPE_NAMES: Mapping[int, str] = {
    number: name.removeprefix("TYPE_").lower() for name, number in FieldDescriptorProto.Type.items()
}
"""The names of the field types in Protobuf's language."""
_CONNECT = "org.apache.kafka.connect.data."
_EPOCH = date(1970, 1, 1).toordinal()
_MOST_DIGITS = 10_000


def same(value: Any) -> Any:
    return value


def scalar(field: FieldDescriptor) -> Value:
    """Convert a scalar: unsigned numbers of 64 bits wrap around, because Java has only signed ones."""
    is_unsigned = TYPE_NAMES[field.type] in ("uint64", "fixed64")
    return (lambda value: value - (1 << 64) if value >> 63 else value) if is_unsigned else same


def wrapper_value(inner: Value) -> Value:
    return lambda message: inner(message.value)


def enum_name(enum: EnumDescriptor) -> Value:
    """Read the name of an enum's number; an unknown number gets the name that Java's library gives it."""
    names = {value.number: value.name for value in reversed(enum.values)}
    return lambda number: names.get(number) or f"UNKNOWN_ENUM_VALUE_{enum.name}_{number}"


def always(name: str, value: Value) -> Value:
    """Read a field of a message, or its default."""
    return lambda message: value(getattr(message, name))


def if_set(name: str, value: Value) -> Value:
    """Read a field with presence; None if it is not set."""
    return lambda message: value(getattr(message, name)) if message.HasField(name) else None


def chosen_value(union: str, values: Mapping[str, Value]) -> Value:
    """Read the member of a oneof that is set, as a struct; None if none is set."""

    def read(message: Any) -> Any:
        name = message.WhichOneof(union)
        return None if name is None else {name: values[name](getattr(message, name))}

    return read


def struct_value(members: list[tuple[str, Value]]) -> Value:
    return lambda message: {name: get(message) for name, get in members}


def each_value(value: Value) -> Value:
    return lambda items: [value(item) for item in items]


def pairs(key: FieldReader, value: FieldReader, is_map: bool) -> Value:
    """Read a map: a dict if its keys are text, else a list of pairs. Sorted by key, since messages have no order."""
    of_text = key.schema.type == "string"

    def read(field: Any) -> Any:
        entries = sorted(field.items(), key=itemgetter(0)) if is_map else [(entry.key, entry.value) for entry in field]
        pairs = [(key.value(name), value.value(item)) for name, item in entries]
        return dict(pairs) if of_text else pairs

    return read


# -- Connect's logical types -------------------------------------------------------------------------------


def _decimal(noted: Mapping[str, str]) -> FieldReader:
    scale = _noted_number(noted, "scale") or 0
    precision = _noted_number(noted, "precision")
    parameters: tuple[tuple[str, str], ...] = (("scale", str(scale)),)
    if precision is not None:
        parameters = (("connect.decimal.precision", str(precision)), *parameters)

    def read(message: Any) -> bytes:
        number: int = int.from_bytes(message.value, "big", signed=True)
        digits: int = scale - message.scale
        if abs(digits) > _MOST_DIGITS:
            raise ValueError("the scale is out of range")
        number, lost = (number * 10**digits, 0) if digits >= 0 else divmod(number, 10**-digits)
        if lost:
            raise ValueError("the number has more decimal places than its schema")
        return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)

    return FieldReader(Schema("bytes", optional=True, name=DECIMAL, version=1, parameters=parameters), read)


def _noted_number(noted: Mapping[str, str], name: str) -> int | None:
    """Return a number of the metadata; text that is not a number is ignored, as in Connect's converter."""
    try:
        return int(noted[name])
    except (KeyError, ValueError):
        return None


def _connects(type_name: str, name: str, value: Value) -> Callable[[Mapping[str, str]], FieldReader]:
    reader = FieldReader(Schema(type_name, optional=True, name=f"{_CONNECT}{name}", version=1), value)
    return lambda noted: reader


LOGICAL: Mapping[str, Callable[[Mapping[str, str]], FieldReader]] = {
    "confluent.type.Decimal": _decimal,
    "google.type.Date": _connects("int32", "Date", lambda day: date(day.year, day.month, day.day).toordinal() - _EPOCH),
    "google.type.TimeOfDay": _connects(
        "int32",
        "Time",
        lambda time: (time.hours * 3600 + time.minutes * 60 + time.seconds) * 1000 + time.nanos // 1_000_000,
    ),
    "google.protobuf.Timestamp": _connects(
        "int64", "Timestamp", lambda instant: instant.seconds * 1000 + instant.nanos // 1_000_000
    ),
}


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

    def of(self, message: Descriptor, within: tuple[str, ...] = ()) -> FieldReader:
        """The reader of a message. Raises BadRecord for a message that contains itself."""
        if message.full_name in within:
            raise BadRecord(f"the Protobuf message {message.full_name} contains itself")
        kind = _WRAPPED.get(message.full_name)
        if kind is not None and (self._options.wrapper_for_raw_primitives or self._options.wrapper_for_nullables):
            return FieldReader(Schema(kind), wrapper_value(scalar(message.fields_by_name["value"])))
        return self._struct(message, (*within, message.full_name))

    def _struct(self, message: Descriptor, within: tuple[str, ...]) -> FieldReader:
        described = DescriptorProto()
        message.CopyToProto(described)
        descriptors = {field.name: field for field in described.field}
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

    def _name(self, described: Descriptor | EnumDescriptor | OneofDescriptor) -> str:
        return str(described.full_name if self._options.full_names else described.name)

    # -- choices -------------------------------------------------------------------------------------------

    def _unions(
        self, message: Descriptor, descriptors: Mapping[str, FieldDescriptorProto], within: tuple[str, ...]
    ) -> Iterable[tuple[str, Schema, Value]]:
        for index, union in enumerate(message.oneofs):
            if any(descriptors[member.name].proto3_optional for member in union.fields):
                continue  # not a choice, but the synthetic oneof of an ``optional`` field
            readers = {
                member.name: self._field(member, descriptors[member.name], within, chosen=True)
                for member in union.fields
            }
            if self._options.flatten_unions:
                yield from ((name, reader.schema, if_set(name, reader.value)) for name, reader in readers.items())
                continue
            fields = tuple(Field(name, reader.schema) for name, reader in readers.items())
            schema = Schema("struct", optional=True, name=f"{_OURS}.Union.{self._name(union)}", fields=fields)
            name = f"{union.name}_{index}" if self._options.index_for_unions else union.name
            yield name, schema, chosen_value(union.name, {member: reader.value for member, reader in readers.items()})

    # -- fields --------------------------------------------------------------------------------------------

    def _field(
        self, field: FieldDescriptor, declared: FieldDescriptorProto, within: tuple[str, ...], *, chosen: bool = False
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

    def _single(self, field: FieldDescriptor, declared: FieldDescriptorProto, within: tuple[str, ...]) -> FieldReader:
        if field.enum_type is not None:
            enum, key = field.enum_type, f"{_OURS}.Enum"
            values = ((f"{key}.{value.name}", str(value.number)) for value in enum.values)
            parameters = tuple(sorted(((key, enum.name), *values)))
            kind = "int32" if self._options.int_for_enums else "string"
            schema = Schema(kind, optional=True, name=self._name(enum), parameters=parameters)
            return FieldReader(schema, same if self._options.int_for_enums else enum_name(enum))
        if field.message_type is None:
            return self._plain(field, declared)
        logical = LOGICAL.get(field.message_type.full_name)
        if logical is not None:
            return logical(params(declared.options.SerializeToString()))
        names = [member.name for member in field.message_type.fields]
        if declared.label == _REPEATED and field.message_type.name.endswith("Entry") and names == ["key", "value"]:
            return self._map(field.message_type, within)
        reader = self.of(field.message_type, within)
        return replace(reader, schema=replace(reader.schema, optional=True))

    def _plain(self, field: FieldDescriptor, declared: FieldDescriptorProto) -> FieldReader:
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

    def _map(self, entry: Descriptor, within: tuple[str, ...]) -> FieldReader:
        described = DescriptorProto()
        entry.CopyToProto(described)
        key, value = (self._field(entry.fields_by_name[field.name], field, within) for field in described.field)
        scope, dot, entry_name = self._name(entry).rpartition(".")
        field_name = re.sub(r"(?<!^)([A-Z])", r"_\1", entry_name.removesuffix("Entry")).lower()
        name = f"{scope}{dot}{field_name}"  # a.B.my_tags of a.B.MyTagsEntry
        schema = Schema("map", optional=True, name=name, keys=key.schema, values=value.schema)
        return FieldReader(schema, pairs(key, value, described.options.map_entry))


def _is_declared_optional(field: FieldDescriptor, declared: FieldDescriptorProto) -> bool:
    """Whether a field that is not a message is declared ``optional``, which gives it presence."""
    alone = field.has_presence and field.message_type is None and field.containing_oneof is None
    return bool(declared.proto3_optional or (alone and declared.label == FieldDescriptorProto.LABEL_OPTIONAL))
