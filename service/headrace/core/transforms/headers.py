"""Transforms of headers, and headers as the values that transforms read and write."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headrace.core.connect_data import SchemaAndValue
from headrace.core.schema import Schema
from headrace.core.transforms.casting import as_float
from headrace.core.transforms.fields import ReplaceField
from headrace.core.transforms.record import Header, Side, SinkRecord, unusable
from headrace.core.transforms.structs import cell, plain_map, struct

_INTEGERS = ((7, "int8"), (15, "int16"), (31, "int32"), (63, "int64"))
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


def parse_literal(text: str) -> SchemaAndValue:
    """What SimpleHeaderConverter makes of a text: null, booleans, the smallest number, quoted text, lists and maps."""
    plain = text.strip()
    if plain == "null":
        return SchemaAndValue(None, None)
    if plain.lower() in ("true", "false"):
        return SchemaAndValue(Schema("boolean"), plain.lower() == "true")
    if _NUMBER.fullmatch(plain):
        return _number(plain)
    if plain[:1] + plain[-1:] in ("[]", "{}"):
        return _structured(plain, text)
    return SchemaAndValue(Schema("string"), text)


def _number(text: str) -> SchemaAndValue:
    if re.fullmatch(r"[+-]?\d+", text):
        number = int(text)
        kind = next((word for bits, word in _INTEGERS if -(1 << bits) <= number < 1 << bits), None)
        return SchemaAndValue(Schema(kind or "double"), number if kind else float(number))
    fraction = float(text)
    return SchemaAndValue(Schema("float" if as_float(fraction) == fraction else "double"), fraction)


def _structured(text: str, given: str) -> SchemaAndValue:
    try:
        value = json.loads(text)
    except ValueError:
        return SchemaAndValue(Schema("string"), given)
    members = list(value.values()) if isinstance(value, dict) else value
    if not members or not all(isinstance(member, str) for member in members):
        return SchemaAndValue(None, value)
    of_text = Schema("string")
    schema = Schema("map", keys=of_text, values=of_text) if isinstance(value, dict) else Schema("array", items=of_text)
    return SchemaAndValue(schema, value)


def header_value(header: Header) -> SchemaAndValue:
    """A header as data, whatever it is so far."""
    _, value = header
    if isinstance(value, SchemaAndValue):
        return value
    return SchemaAndValue(None, None) if value is None else parse_literal(value.decode("utf-8", "replace"))


def header_bytes(value: bytes | SchemaAndValue | None) -> bytes | None:
    """A header as bytes again, as SimpleHeaderConverter writes it."""
    if not isinstance(value, SchemaAndValue):
        return value
    data = value.value
    if data is None:
        return None
    if isinstance(data, bytes | str):
        return data if isinstance(data, bytes) else data.encode()
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), default=_as_text).encode()


def _as_text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


class InsertHeader:
    """Adds a header with a fixed value to every record."""

    def __init__(self, header: str, literal: str) -> None:
        self._header, self._value = header, parse_literal(literal)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the header."""
        return record.with_header(self._header, self._value)


class DropHeaders:
    """Removes headers by their names."""

    def __init__(self, headers: Sequence[str]) -> None:
        self._headers = frozenset(headers)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record without the headers."""
        return replace(record, headers=tuple(each for each in record.headers if each[0] not in self._headers))


class HeaderFrom:
    """Copies or moves fields of a key or value into headers."""

    def __init__(
        self, side: Side, fields: Sequence[str], headers: Sequence[str], *, move: bool, default: bool = True
    ) -> None:
        self._side, self._default = side, default
        self._pairs = tuple(zip(fields, headers, strict=True))
        self._purpose = f"header {'move' if move else 'copy'}"
        self._removal = ReplaceField(side, fields, (), {}, default) if move else None

    def __call__(self, record: SinkRecord) -> SinkRecord:
        """The record with the headers."""
        data = self._side.of(record)
        added = self._of_map(data) if data.schema is None else self._of_struct(data)
        changed = record if self._removal is None else self._removal(record)
        return replace(changed, headers=(*record.headers, *added))

    def _of_map(self, data: SchemaAndValue) -> list[Header]:
        values = plain_map(data, self._purpose)
        return [(header, SchemaAndValue(None, values.get(field))) for field, header in self._pairs]

    def _of_struct(self, data: SchemaAndValue) -> list[Header]:
        schema, values = struct(data, self._purpose)
        members = {member.name: member for member in schema.fields}
        added: list[Header] = []
        for field, header in self._pairs:
            if field not in members:
                raise unusable(f"Unknown field: {field}")
            member = members[field]
            added.append((header, SchemaAndValue(member.schema, cell(values, member, default=self._default))))
        return added
