"""The transform Cast: convert values to another primitive type, as Java does.

Tests: ``tests/unit/transforms/test_recorded.py``, ``tests/unit/transforms/test_hostile_values.py``.
"""

from __future__ import annotations

import base64
import math
import struct as binary
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.java_formats import DateFormat
from headrace.transforms.record import (
    DATE,
    DECIMAL,
    TIME,
    TIMESTAMP,
    SchemaMemo,
    Side,
    SinkRecord,
    cell,
    default_of,
    plain_map,
    schemaless_type,
    struct,
    unusable,
    with_fields,
)

_DAY = 86_400_000
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_SPELLED = {"float32": "float", "float64": "double"}
OUTPUTS = ("int8", "int16", "int32", "int64", "float32", "float64", "boolean", "string")
_INPUTS = frozenset({*_BITS, "float", "double", "boolean", "string", "bytes"})


def parse_spec(entries: Sequence[str]) -> Mapping[str | None, str]:
    """Return the target type by field, or by None for the complete value. Raises ValueError with Connect's message."""
    spec: dict[str | None, str] = {}
    for entry in entries:
        field, colon, type_name = entry.rpartition(":")
        type_name = type_name.strip().lower()
        if ":" in field:
            raise ValueError(f"Invalid rename mapping: {entry}")
        if type_name not in OUTPUTS:
            raise ValueError(f"Invalid type found in casting spec: {type_name}")
        spec[field.strip() if colon else None] = _SPELLED.get(type_name, type_name)
    if not spec:
        raise ValueError("Must specify at least one field to cast.")
    if None in spec and len(entries) > 1:
        raise ValueError(
            "Cast transformations that specify a type to cast the entire value to may ony specify a single cast in "
            "their spec"
        )
    return spec


class Cast:
    """Cast fields, or a complete key or value."""

    def __init__(self, side: Side, spec: Mapping[str | None, str], default: bool = True) -> None:
        self._side, self._spec, self._default = side, spec, default
        self._whole = spec.get(None)
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = self._side.of(record)
        if data.value is None:
            return record
        if self._whole is not None:
            schema = None if data.schema is None else self._schemas(data.schema)
            return self._side.put(record, SchemaAndValue(schema, cast(data, self._whole)))
        if data.schema is None:
            values = dict(plain_map(data, "cast types"))
            for name, type_name in self._spec.items():
                values[str(name)] = cast(SchemaAndValue(None, values.get(str(name))), type_name)
            return self._side.put(record, SchemaAndValue(None, values))
        schema, members = struct(data, "cast types")
        cast_values = {}
        for member in schema.fields:
            value = cell(members, member, default=self._default)
            to = self._spec.get(member.name)
            cast_values[member.name] = value if to is None else cast(SchemaAndValue(member.schema, value), to)
        return self._side.put(record, SchemaAndValue(self._schemas(schema), cast_values))

    def _schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            return _cast_schema(schema, self._whole)
        fields = [
            Field(member.name, _cast_schema(member.schema, self._spec[member.name], bare=True))
            if member.name in self._spec
            else member
            for member in schema.fields
        ]
        return replace(with_fields(schema, fields), optional=schema.optional)


def _cast_schema(schema: Schema, type_name: str, *, bare: bool = False) -> Schema:
    default = cast(SchemaAndValue(schema, default_of(schema)), type_name)
    if bare:
        return Schema(type_name, schema.optional, default=default)
    return Schema(type_name, schema.optional, schema.name, schema.version, schema.parameters, default=default)


def cast(data: SchemaAndValue, type_name: str) -> Any:
    """Convert a value to another type. Raises BadRecord if that is impossible, without the value in the message."""
    if data.value is None:
        return None
    given = schemaless_type(data.value) if data.schema is None else data.schema.type
    if given not in _INPUTS:
        raise unusable(f"Cast transformation does not support casting from {given.upper()}")
    try:
        value = _java_value(data, type_name)
        return _TO[type_name](value) if type_name in _TO else _to_integer(value, _BITS[type_name])
    except (ValueError, ArithmeticError):
        raise unusable("Value was out of range for requested data type") from None  # Python's message has the value


class _JavaDate(int):
    """Milliseconds since 1970 in a ``java.util.Date``."""


class _Float32(float):
    """A number of four bytes, which Java prints with fewer digits."""


def _java_value(data: SchemaAndValue, type_name: str) -> Any:
    """Return the value in the form that Connect's Cast gets."""
    name = None if data.schema is None else data.schema.name
    if name in (DATE, TIME, TIMESTAMP) and type_name != "string":
        return data.value
    if name == DECIMAL and data.schema is not None:
        scale = int(data.schema.parameter("scale") or 0)
        return Decimal(int.from_bytes(data.value, signed=True)).scaleb(-scale)
    if name == DATE:
        return _JavaDate(data.value * _DAY)
    if name in (TIME, TIMESTAMP):
        return _JavaDate(data.value)
    if data.schema is not None and data.schema.type == "float":
        return _Float32(data.value)
    return float(data.value) if data.schema is not None and data.schema.type == "double" else data.value


def _to_integer(value: Any, bits: int) -> int:
    if isinstance(value, str):
        bare = value[1:] if value[:1] in ("+", "-") else value
        if not bare.isdecimal():  # Python's int also accepts spaces and underscores, Java does not
            raise ValueError
        number = int(value)
        if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
            raise ValueError
        return number
    number, half = _numeric(value), 1 << (bits - 1)
    if isinstance(number, float):  # Java limits it to the range of int or long; of a decimal, it drops the high bits
        limit = 1 << (31 if bits < 64 else 63)
        number = 0 if math.isnan(number) else max(-limit, min(limit - 1, number))
    return (int(number) + half) % (1 << bits) - half  # wraps around, as Java's narrowing does


def _numeric(value: Any) -> Any:
    if isinstance(value, _JavaDate | bytes):
        raise unusable(f"Unexpected type in Cast transformation: {type(value).__name__.strip('_')}")
    return int(value) if isinstance(value, bool) else value


def _to_double(value: Any) -> float:
    return float(value.strip()) if isinstance(value, str) else float(_numeric(value))


def as_float(number: float) -> float:
    """Return the nearest number of four bytes."""
    try:
        return float(binary.unpack("f", binary.pack("f", number))[0])
    except OverflowError:
        return math.copysign(math.inf, number)


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _JavaDate):  # as a time on the first day, as a date if the time is zero, otherwise as both
        milliseconds = int(value)
        if milliseconds < _DAY:
            return DateFormat("HH:mm:ss.SSS'Z'").format(milliseconds)
        if milliseconds % _DAY == 0:
            return DateFormat("yyyy-MM-dd").format(milliseconds)
        return DateFormat("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'").format(milliseconds)
    if isinstance(value, float):
        return java_double(value)
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)


def java_double(value: float) -> str:
    """Format a number as Java does: always with a point, large and small numbers with an exponent."""
    if math.isnan(value) or math.isinf(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    sign, digits, exponent = Decimal(_shortest(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)
    prefix = "-" if sign else ""
    if value == 0:
        return prefix + "0.0"
    if -3 < point <= 7:
        whole = (text[:point] or "0").ljust(point, "0") if point > 0 else "0"
        fraction = text[point:] if point > 0 else "0" * -point + text
        return f"{prefix}{whole}.{fraction or '0'}"
    return f"{prefix}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _shortest(value: float) -> str:
    """Return the shortest digits that parse to the same number."""
    if not isinstance(value, _Float32):
        return repr(float(value))
    texts = (f"{float(value):.{digits}g}" for digits in range(1, 10))
    return next((text for text in texts if as_float(float(text)) == float(value)), repr(float(value)))


_TO: dict[str, Callable[[Any], Any]] = {
    # The number with the fewest digits that identify its four bytes, as in JSON.
    "float": lambda value: float(_shortest(_Float32(as_float(_to_double(value))))),
    "double": _to_double,
    "boolean": lambda value: value.lower() == "true" if isinstance(value, str) else _to_integer(value, 64) != 0,
    "string": _to_string,
}
