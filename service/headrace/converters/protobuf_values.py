"""Convert values of Protobuf messages to the physical form of Connect data, logical types included."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from operator import itemgetter
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.schema import Schema

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
    """Return a value that is already in its physical form."""
    return value


def scalar(field: Any) -> Value:
    """Convert a scalar: unsigned numbers of 64 bits wrap around, because Java has only signed ones."""
    return _signed if TYPE_NAMES[field.type] in ("uint64", "fixed64") else same


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def wrapped(inner: Value) -> Value:
    """Read the value of a wrapper."""
    return lambda message: inner(message.value)


def enum_name(enum: Any) -> Value:
    """Read the name of an enum's number; an unknown number gets the name that Java's library gives it."""
    names = {each.number: each.name for each in reversed(enum.values)}
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
    """Read all members of a message."""
    return lambda message: {name: get(message) for name, get in members}


def each_value(value: Value) -> Value:
    """Read a repeated field."""
    return lambda found: [value(each) for each in found]


def pairs(key: FieldReader, value: FieldReader, is_map: bool) -> Value:
    """Read a map: a dict if its keys are text, else a list of pairs. Sorted by key, since messages have no order."""
    of_text = key.schema.type == "string"

    def read(found: Any) -> Any:
        entries = sorted(found.items(), key=itemgetter(0)) if is_map else [(each.key, each.value) for each in found]
        pairs = [(key.value(name), value.value(each)) for name, each in entries]
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
        number = int.from_bytes(message.value, "big", signed=True)
        return _rescaled(number, scale - message.scale)

    return FieldReader(Schema("bytes", optional=True, name=DECIMAL, version=1, parameters=parameters), read)


def _noted_number(noted: Mapping[str, str], name: str) -> int | None:
    """Return a number of the metadata; text that is not a number is ignored, as in Connect's converter."""
    try:
        return int(noted[name])
    except (KeyError, ValueError):
        return None


def _rescaled(number: int, digits: int) -> bytes:
    """Return a Decimal's unscaled bytes with ``digits`` more decimal places. Raises ValueError if digits are lost."""
    if abs(digits) > _MOST_DIGITS:
        raise ValueError("the scale is out of range")
    number, lost = (number * 10**digits, 0) if digits >= 0 else divmod(number, 10**-digits)
    if lost:
        raise ValueError("the number has more decimal places than its schema")
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)


def _connects(type_name: str, name: str, value: Value) -> Callable[[Mapping[str, str]], FieldReader]:
    reader = FieldReader(Schema(type_name, optional=True, name=f"{_CONNECT}{name}", version=1), value)
    return lambda noted: reader


def _days(message: Any) -> int:
    return date(message.year, message.month, message.day).toordinal() - _EPOCH


def _millis_of_day(message: Any) -> int:
    return int((message.hours * 3600 + message.minutes * 60 + message.seconds) * 1000 + message.nanos // 1_000_000)


def _millis(message: Any) -> int:
    return int(message.seconds * 1000 + message.nanos // 1_000_000)


LOGICAL: Mapping[str, Callable[[Mapping[str, str]], FieldReader]] = {
    "confluent.type.Decimal": _decimal,
    "google.type.Date": _connects("int32", "Date", _days),
    "google.type.TimeOfDay": _connects("int32", "Time", _millis_of_day),
    "google.protobuf.Timestamp": _connects("int64", "Timestamp", _millis),
}
