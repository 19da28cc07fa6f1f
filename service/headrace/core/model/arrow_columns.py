"""Convert Connect values to Arrow columns (``reselect.md`` section 8.2).

Values of events and of reselected rows are both converted by ``build_array``, so that a reselected cell equals the cell
that the event would have contained. Its input is Connect values in Python: int, float, str, bytes, bool, list, dict,
None.

Dates and timestamps are stored as counts of days or microseconds, so that years that SQL engines cannot print are kept;
``infinity`` is Debezium's count for it. A value that does not match its type is a BadRecord with the row's index.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from operator import index
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import BadRecord
from headrace.core.model.instants import INFINITY_MICROS, NEGATIVE_INFINITY_MICROS, zoned_micros
from headrace.core.model.schema import Schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"
VARIABLE_SCALE_DECIMAL = "io.debezium.data.VariableScaleDecimal"
ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
MAX_DIGITS = 38  # the largest precision of Spark's and Iceberg's decimals

_DATES = frozenset({"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"})
_MILLIS = frozenset({"io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"})
_MICROS = frozenset({"io.debezium.time.MicroTimestamp"})

_PRIMITIVES = {
    "boolean": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "bytes": pa.binary(),
    "null": pa.null(),  # a column with only nulls, in JSON without schemas
}


FEW = 32
"""Cells for which a loop costs less than calls of Arrow and numpy. Most chunks have no more with hundreds of tables."""


def arrow_type(schema: Schema) -> pa.DataType:
    """Return the Arrow type of the lake column for a Connect schema."""
    if schema.type == "array":
        return pa.list_(arrow_type(_required_schema(schema.items)))
    if schema.type == "map":
        return pa.map_(arrow_type(_required_schema(schema.keys)), arrow_type(_required_schema(schema.values)))
    if schema.type == "struct":
        if schema.name == VARIABLE_SCALE_DECIMAL:
            return pa.string()
        return pa.struct([pa.field(member.name, arrow_type(member.schema)) for member in schema.fields])
    if schema.name == DECIMAL:
        scale = int(schema.parameter("scale") or 0)
        precision = max(int(schema.parameter("connect.decimal.precision") or MAX_DIGITS), scale)
        if scale < 0 or precision > MAX_DIGITS:
            return pa.string()  # more digits than a lake decimal holds: exact text
        return pa.decimal128(precision, scale)
    if schema.name in _DATES:
        return pa.date32()
    if schema.name in _MILLIS or schema.name in _MICROS:
        return pa.timestamp("us")
    if schema.name == ZONED_TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    return _PRIMITIVES[schema.type]


def build_array(schema: Schema, values: Sequence[object] | pa.Array) -> pa.Array:
    """Return the column of ``values``, of type ``arrow_type(schema)``.

    ``values`` may also be an Arrow array of the physical type. Raises BadRecord with the index of a value that does not
    match the schema.
    """
    build = _builder(schema)
    if isinstance(values, pa.Array) and build in _NESTED_BUILDERS:
        values = values.to_pylist()
    try:
        return build(schema, values)
    except (pa.ArrowException, ValueError, ArithmeticError, TypeError, AttributeError, KeyError) as error:
        culprit = None  # the first value that cannot be converted by itself
        for position, value in enumerate(_in_python(values)):
            try:
                build(schema, [value])
            except (pa.ArrowException, ValueError, ArithmeticError, TypeError, AttributeError, KeyError):
                culprit = position
                break
        type_name = f"{schema.type} ({schema.name})" if schema.name else schema.type
        raise BadRecord(f"a value does not fit {type_name}", index=culprit) from error


def byte_lengths(values: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
    """Return the bytes of each text or byte string, and any number for a null.

    They are the differences of the array's offsets. For the few cells of most polls, Arrow's kernels take ten times as
    long.
    """
    if not len(values):
        return np.zeros(0, np.int64)
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_binary(values.type)
    offset_type = np.dtype(np.int64 if is_large else np.int32)
    offsets = np.frombuffer(
        values.buffers()[1], offset_type, len(values) + 1, offset=values.offset * offset_type.itemsize
    )
    return np.diff(offsets)


def _in_arrow(values: Sequence[object], arrow_type: pa.DataType) -> pa.Array:
    return values.cast(arrow_type) if isinstance(values, pa.Array) else pa.array(values, arrow_type)


def _in_python(values: Sequence[Any]) -> Sequence[Any]:
    return values.to_pylist() if isinstance(values, pa.Array) else values


Builder = Callable[[Schema, Sequence[object]], pa.Array]


def _builder(schema: Schema) -> Builder:
    if schema.type in _NESTED:
        return _variable_scale if schema.name == VARIABLE_SCALE_DECIMAL else _NESTED[schema.type]
    if schema.name == DECIMAL:
        return _decimals
    if schema.name in _MILLIS:
        return _millis
    if schema.name == ZONED_TIMESTAMP:
        return _zoned_timestamps
    if schema.type in ("float", "double"):
        return _floats
    return _plain


def _plain(schema: Schema, values: Sequence[object]) -> pa.Array:
    target = arrow_type(schema)
    if pa.types.is_date32(target):
        return _whole_numbers(values, pa.int32()).view(target)
    if pa.types.is_timestamp(target):
        return _whole_numbers(values, pa.int64()).view(target)
    return _whole_numbers(values, target) if pa.types.is_integer(target) else _in_arrow(values, target)


def _whole_numbers(values: Sequence[object], arrow_type: pa.DataType) -> pa.Array:
    """Convert integers, also those with a decimal point in JSON. Arrow would truncate fractions."""
    if not isinstance(values, pa.Array) and {float, Decimal} & set(map(type, values)):
        values = [_whole(value) if isinstance(value, float | Decimal) else value for value in values]
    return _in_arrow(values, arrow_type)


_DIGITS_OF_INT64 = 19


def _whole(number: float | Decimal) -> int:
    if isinstance(number, Decimal) and number.adjusted() > _DIGITS_OF_INT64:
        raise ValueError("the number is out of range")  # an exponent of a billion would fill the memory
    whole = int(number)
    if whole != number:
        raise ValueError("the number has a fraction")
    return whole


def _millis(schema: Schema, values: Sequence[object]) -> pa.Array:
    millis = _whole_numbers(values, pa.int64())
    infinite = pc.or_(pc.equal(millis, INFINITY_MICROS), pc.equal(millis, NEGATIVE_INFINITY_MICROS))
    if pc.any(infinite).as_py():  # infinity has the same count in every unit
        finite = pc.multiply_checked(pc.if_else(infinite, 0, millis), 1000)
        return pc.if_else(infinite, millis, finite).view(arrow_type(schema))
    return pc.multiply_checked(millis, 1000).view(arrow_type(schema))


def _floats(schema: Schema, values: Sequence[object]) -> pa.Array:
    kinds = () if isinstance(values, pa.Array) else set(map(type, values))
    if bool in kinds:
        raise TypeError("a boolean is not a number")
    if str in kinds:
        values = [_float(value) if isinstance(value, str) else value for value in values]
    floats = _in_arrow(values, arrow_type(schema))
    infinite = pc.is_inf(floats)
    if schema.type == "double" or not pc.any(infinite).as_py():
        return floats
    if pc.any(pc.and_(infinite, pc.is_finite(_in_arrow(values, pa.float64())))).as_py():
        raise ValueError("the number is out of the range of a float")
    return floats


_NUMBER = re.compile(r"-?\d{1,400}(\.\d{1,400})?([eE][+-]?\d{1,4})?", re.ASCII)
NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
"""The JSON texts of doubles that are not finite."""


def _float(text: str) -> float:
    """Parse a number in a text: a double that is not finite, or a key that is text only."""
    number = float(text) if text in NOT_FINITE or _NUMBER.fullmatch(text) else math.nan
    if not math.isfinite(number) and text not in NOT_FINITE:
        raise ValueError("the text is not a number, or out of the range of a double")
    return number


# -- decimals ----------------------------------------------------------------------------------------------


def _decimals(schema: Schema, values: Sequence[Any]) -> pa.Array:
    target = arrow_type(schema)
    scale = int(schema.parameter("scale") or 0)
    if pa.types.is_string(target):
        return pa.array([None if v is None else _decimal_text(v, scale) for v in _in_python(values)], target)
    values = _in_python(values)
    if target.precision <= 18 and set(map(type, values)) <= _OCTETS:
        return _small_decimals(target, values)
    exact = [
        v if v is None else _arrow_decimal(v) if isinstance(v, Decimal) else _decimal_of_bytes(v, scale) for v in values
    ]
    return pa.array(exact, target)


_MOST_PLACES = 1000


def _arrow_decimal(number: Decimal) -> Decimal:
    """Return a number that Arrow can convert: it ends the process for an exponent of minus a billion."""
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int) or abs(exponent) > _MOST_PLACES:
        raise ValueError("the decimal is not finite, or has more places than any database stores")
    return number


_OCTETS = {bytes, type(None)}


def _small_decimals(target: pa.DataType, encoded: Sequence[bytes | None]) -> pa.Array:
    """Convert decimals of up to 18 digits through int64: a seventh of the cost of Decimal objects."""
    if b"" in encoded:
        raise ValueError("the decimal has no bytes")
    limit = 10**target.precision
    numbers = [None if octets is None else int.from_bytes(octets, "big", signed=True) for octets in encoded]
    column = pa.array(numbers, pa.int64())  # raises an error for more than 64 bits
    low = np.asarray(column.fill_null(0) if column.null_count else column)
    if ((low >= limit) | (low <= -limit)).any():
        raise ValueError("the decimal has more digits than the column's precision")
    words = np.empty((len(low), 2), "<i8")
    words[:, 0], words[:, 1] = low, low >> 63
    return pa.Array.from_buffers(target, len(low), [column.buffers()[0], pa.py_buffer(words)])


def _decimal_of_bytes(value: bytes, scale: int) -> Decimal:
    if not isinstance(value, bytes | bytearray | memoryview) or not len(value):
        raise ValueError("the decimal has no bytes")
    number = int.from_bytes(value, "big", signed=True)
    # Built from digits, because scaleb() would round to the context's precision.
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def _decimal_text(value: bytes | Decimal, scale: int) -> str:
    return plain_text(value if isinstance(value, Decimal) else _decimal_of_bytes(value, scale))


_MOST_ZEROS = 200_000  # PostgreSQL stores 131,072 digits; an exponent could mean a billion


def plain_text(number: Decimal) -> str:
    """Format a decimal as digits without trailing zeros, so that equal numbers have equal texts."""
    if not number.is_finite() or abs(number.adjusted()) > _MOST_ZEROS:
        raise ValueError("the decimal is not finite, or has more zeros than any database stores")
    text = format(number, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _variable_scale(schema: Schema, values: Sequence[Any]) -> pa.Array:
    return pa.array([None if v is None else _decimal_text(v["value"], index(v["scale"])) for v in values], pa.string())


# -- time --------------------------------------------------------------------------------------------------


def _zoned_timestamps(schema: Schema, values: Sequence[Any]) -> pa.Array:
    target = arrow_type(schema)
    texts = _in_arrow(values, pa.string())
    try:
        if pc.all(pc.ends_with(texts, "Z")).as_py():  # Arrow accepts invalid offsets such as +00:60
            return texts.cast(target)
    except pa.ArrowInvalid:  # years of more than four digits, infinity, nanoseconds
        pass
    micros = [None if v is None else zoned_micros(v) for v in _in_python(values)]
    return pa.array(micros, pa.int64()).view(target)


def cut_instants(schema: Schema, values: Sequence[object]) -> npt.NDArray[np.bool_] | None:
    """Return which ZonedTimestamps have nanosecond digits, which are truncated; None if none has."""
    if schema.name != ZONED_TIMESTAMP:
        return None
    texts = _in_arrow(values, pa.string())
    if byte_lengths(texts).max(initial=0) <= len("2020-01-01T00:00:00.000000Z"):
        return None
    finer = np.asarray(pc.match_substring_regex(texts, r"[.]\d{6}\d*[1-9]").fill_null(False))
    return finer if finer.any() else None


# -- nested ------------------------------------------------------------------------------------------------


def _lists(schema: Schema, values: Sequence[Any]) -> pa.Array:
    items = _required_schema(schema.items)
    flat = [item for value in values if value is not None for item in value]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if v is None else len(v) for v in values], out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), _builder(items)(items, flat), type=arrow_type(schema), mask=_nulls(values)
    )


def _maps(schema: Schema, values: Sequence[Any]) -> pa.Array:
    keys, items = _required_schema(schema.keys), _required_schema(schema.values)
    pairs = [None if v is None else list(v.items() if isinstance(v, dict) else map(tuple, v)) for v in values]
    flat = [pair for entry in pairs if entry is not None for pair in entry]
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if entry is None else len(entry) for entry in pairs], out=offsets[1:])
    flat_keys = _builder(keys)(keys, [pair[0] for pair in flat])
    flat_items = _builder(items)(items, [pair[1] for pair in flat])
    return pa.MapArray.from_arrays(
        pa.array(offsets), flat_keys, flat_items, type=arrow_type(schema), mask=_nulls(values)
    )


def _structs(schema: Schema, values: Sequence[Any]) -> pa.Array:
    target = arrow_type(schema)
    children = [
        _builder(member.schema)(member.schema, [None if v is None else v.get(member.name) for v in values])
        for member in schema.fields
    ]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=_nulls(values))


def _nulls(values: Sequence[object]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _required_schema(schema: Schema | None) -> Schema:
    if schema is None:
        raise BadRecord("the schema of an array or a map does not contain the schema of its elements")
    return schema


_NESTED: dict[str, Builder] = {"array": _lists, "map": _maps, "struct": _structs}
_NESTED_BUILDERS = (*_NESTED.values(), _variable_scale)
