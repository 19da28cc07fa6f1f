"""Transforms of headers, and headers as bytes again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from headrace.core.model.connect_data import SchemaAndValue
from headrace.transforms.fields import ReplaceField
from headrace.transforms.literals import parse_literal
from headrace.transforms.record import Header, Side, SinkRecord, cell, plain_map, struct, unusable


def header_bytes(value: bytes | SchemaAndValue | None) -> bytes | None:
    """A header as bytes again, as SimpleHeaderConverter writes it."""
    if not isinstance(value, SchemaAndValue):
        return value
    data = value.value
    if data is None:
        return None
    if isinstance(data, bytes | str):
        return data if isinstance(data, bytes) else data.encode()
    return json.dumps(
        data,
        ensure_ascii=False,
        separators=(",", ":"),
        default=lambda value: value.hex() if isinstance(value, bytes) else str(value),
    ).encode()


class InsertHeader:
    """Add a header with a fixed value to every record."""

    def __init__(self, header: str, literal: str) -> None:
        self._header, self._value = header, parse_literal(literal)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        return record.with_header(self._header, self._value)


class DropHeaders:
    """Remove headers by their names."""

    def __init__(self, headers: Sequence[str]) -> None:
        self._headers = frozenset(headers)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        return replace(record, headers=tuple(header for header in record.headers if header[0] not in self._headers))


class HeaderFrom:
    """Copy or move fields of a key or value to headers."""

    def __init__(
        self, side: Side, fields: Sequence[str], headers: Sequence[str], *, move: bool, default: bool = True
    ) -> None:
        self._side, self._default = side, default
        self._pairs = tuple(zip(fields, headers, strict=True))
        self._purpose = f"header {'move' if move else 'copy'}"
        self._removal = ReplaceField(side, fields, (), {}, default) if move else None

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = self._side.of(record)
        if data.schema is None:
            values = plain_map(data, self._purpose)
            added: list[Header] = [(header, SchemaAndValue(None, values.get(field))) for field, header in self._pairs]
        else:
            schema, values = struct(data, self._purpose)
            members = {member.name: member for member in schema.fields}
            added = []
            for field, header in self._pairs:
                if field not in members:
                    raise unusable(f"Unknown field: {field}")
                member = members[field]
                added.append((header, SchemaAndValue(member.schema, cell(values, member, default=self._default))))
        changed = record if self._removal is None else self._removal(record)
        return replace(changed, headers=(*record.headers, *added))
