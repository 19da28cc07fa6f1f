"""Parse texts as ``SimpleHeaderConverter`` does, which infers their type (``Values.parseString`` of Kafka Connect 4.3).

It recognizes ``true``, ``false`` and ``null``; dates, times and timestamps in one format each, in UTC; numbers, as the
smallest integer type that is exact, otherwise as a float, double or Decimal; and lists and maps, with texts in quotes.
Everything else is text. There is one difference: a number or a list that is followed by other characters is text, where
Kafka Connect ignores these characters (``12:30`` is not 12).
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeVar

from headrace.core.decode.json_converter import unscaled_bytes
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.instants import days_from_civil
from headrace.core.model.schema import DEEPEST, Schema

_LOGICAL = "org.apache.kafka.connect.data."
_DATE = Schema("int32", name=f"{_LOGICAL}Date", version=1)
_TIME = Schema("int32", name=f"{_LOGICAL}Time", version=1)
_TIMESTAMP = Schema("int64", name=f"{_LOGICAL}Timestamp", version=1)
_WORDS = {
    "null": SchemaAndValue(None, None),
    "true": SchemaAndValue(Schema("boolean"), True),
    "false": SchemaAndValue(Schema("boolean"), False),
}
_INTEGERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}
_NUMBERS = (*_INTEGERS, "float", "double")
_TEXT = Schema("string")

_DAY, _CLOCK = r"(\d{4})-(\d\d)-(\d\d)", r"(\d\d):(\d\d):(\d\d)\.(\d{3})Z"
_MOMENT = re.compile(f"{_DAY}(?:T{_CLOCK})?|{_CLOCK}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|(?<=[+-])\.\d+)(?:[eE][+-]?\d{1,9})?")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_TOKEN = re.compile(f"{_DAY}T{_CLOCK}|{_CLOCK}" + r'|[^\[\]{},:"]*', re.ASCII)
_SPACE = re.compile(r"\s*")

T = TypeVar("T")


class _NotAStructure(Exception):
    """The text is not a list or map."""


def parse_literal(text: str) -> SchemaAndValue:
    """Parse a text to a value of the inferred type."""
    plain = text.strip()
    if plain in _WORDS:
        return _WORDS[plain]
    if plain[:1] in ("[", "{"):
        try:
            return _Structure(plain).parse()
        except _NotAStructure:
            return SchemaAndValue(_TEXT, text)
    return _moment(plain) or _number(plain) or SchemaAndValue(_TEXT, text)


def _moment(text: str) -> SchemaAndValue | None:
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    parts = [int(part) for part in match.groups() if part is not None]
    if len(parts) == 3:
        return SchemaAndValue(_DATE, _days(*parts))
    if len(parts) == 4:
        return SchemaAndValue(_TIME, _millis(*parts))
    return SchemaAndValue(_TIMESTAMP, _days(*parts[:3]) * 86_400_000 + _millis(*parts[3:]))


def _millis(hours: int, minutes: int, seconds: int, millis: int) -> int:
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + millis


def _days(year: int, month: int, day: int) -> int:
    """Count the days since 1970; months and days out of range carry over, as in Java."""
    return days_from_civil(year + (month - 1) // 12, (month - 1) % 12 + 1, 1) + day - 1


def _number(text: str) -> SchemaAndValue | None:
    if not _NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    if number.adjusted() < 19 and number == number.to_integral_value():
        whole = int(number)
        type_name = next((name for name, bits in _INTEGERS.items() if -(1 << bits) <= whole < 1 << bits), None)
        if type_name is not None:
            return SchemaAndValue(Schema(type_name), whole)
    exponent = int(number.as_tuple().exponent)
    if exponent:
        try:
            nearest = float(struct.unpack("f", struct.pack("f", float(number)))[0])
        except OverflowError:
            nearest = math.inf
        for type_name, value in (("float", nearest), ("double", float(number))):
            if math.isfinite(value):
                return SchemaAndValue(Schema(type_name), value)
    schema = Schema("bytes", name=DECIMAL, version=1, parameters=(("scale", str(-exponent)),))
    try:
        return SchemaAndValue(schema, unscaled_bytes(number, -exponent))
    except BadRecord:
        return None  # thousands of digits


class _Structure:
    """A parser of a list or a map."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def parse(self) -> SchemaAndValue:
        """Parse the complete text. Raises _NotAStructure."""
        value = self._value(0)
        if self._at < len(self._text):
            raise _NotAStructure
        return value

    def _value(self, depth: int) -> SchemaAndValue:
        if depth > DEEPEST:
            raise _NotAStructure
        if self._takes("["):
            items = list(self._until("]", lambda: self._value(depth + 1)))
            schema = _common_schema(item.schema for item in items)
            return SchemaAndValue(Schema("array", items=schema), [_align(item, schema) for item in items])
        if self._takes("{"):
            entries = list(self._until("}", lambda: self._entry(depth + 1)))
            keys = _common_schema(key.schema for key, _ in entries)
            values = _common_schema(value.schema for _, value in entries)
            pairs = [(_align(key, keys), _align(value, values)) for key, value in entries]
            by_text = keys is None or keys.type == "string"
            return SchemaAndValue(Schema("map", keys=keys, values=values), dict(pairs) if by_text else pairs)
        quoted = _QUOTED.match(self._text, self._at)
        if quoted:
            self._move(quoted.end())
            return _moment(quoted[1]) or SchemaAndValue(_TEXT, quoted[1])
        token = _TOKEN.match(self._text, self._at)
        plain = token[0].strip() if token else ""
        self._move(token.end() if token else self._at)
        scalar = _WORDS.get(plain) or _moment(plain) or _number(plain)
        if scalar is None:
            raise _NotAStructure
        return scalar

    def _entry(self, depth: int) -> tuple[SchemaAndValue, SchemaAndValue]:
        key = self._value(depth)
        if key.value is None or isinstance(key.value, list | dict) or not self._takes(":"):
            raise _NotAStructure
        return key, self._value(depth)

    def _until(self, end: str, read: Callable[[], T]) -> Iterable[T]:
        while not self._takes(end):
            yield read()
            if not self._takes(",") and self._text[self._at : self._at + 1] != end:
                raise _NotAStructure

    def _takes(self, mark: str) -> bool:
        is_next = self._text.startswith(mark, self._at)
        if is_next:
            self._move(self._at + len(mark))
        return is_next

    def _move(self, to: int) -> None:
        space = _SPACE.match(self._text, to)
        self._at = space.end() if space else to


def _common_schema(schemas: Iterable[Schema | None]) -> Schema | None:
    """Return a schema that fits all values, None if there is none or no value. Raises for nulls among values."""
    given = set(schemas)
    typed = [schema for schema in given if schema is not None]
    if typed and None in given:
        raise _NotAStructure
    if len(typed) < 2:
        return typed[0] if typed else None
    if any(schema.type not in _NUMBERS or schema.name for schema in typed):
        return None
    return Schema(max((schema.type for schema in typed), key=_NUMBERS.index))


def _align(data: SchemaAndValue, schema: Schema | None) -> Any:
    is_real = schema is not None and schema.type in ("float", "double")
    return float(data.value) if is_real and isinstance(data.value, int) else data.value
