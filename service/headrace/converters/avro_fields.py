"""Readers of Avro's types over a block of payloads, compiled from a schema once (``converters/avro_block.py``).

Columns hold physical values, as ``connect_data.py`` describes them. Arrays and maps have as many steps as
their longest cell, so they are read cell by cell, by fastavro; everything else is read for all payloads at once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.converters.avro_block import Malformed, Octets, Places
from headrace.converters.avro_maps import with_pairs
from headrace.core.decode.column_rows import Cells, Struct, Wanted, filled, in_python
from headrace.core.model.schema import Schema


class Reader(Protocol):
    """Reads one field of every payload; ``at`` has the places where it begins, which are moved behind it."""

    def read(self, octets: Octets, at: Places) -> Cells:
        """The cells."""

    def skip(self, octets: Octets, at: Places) -> None:
        """Only moves on."""


class _Numbers:
    """Ints and longs."""

    def read(self, octets: Octets, at: Places) -> Cells:
        return pa.array(octets.numbers(at))

    def skip(self, octets: Octets, at: Places) -> None:
        octets.numbers(at)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What takes the same room in each payload."""

    width: int

    def read(self, octets: Octets, at: Places) -> Cells:
        begins = at.copy()
        at += self.width
        return octets.cut(begins, np.full(len(at), self.width, np.int64))

    def skip(self, octets: Octets, at: Places) -> None:
        at += self.width


class _Booleans(_Fixed):
    def read(self, octets: Octets, at: Places) -> Cells:
        told = octets.bytes[at]
        at += self.width
        return pa.array(told != 0)


@dataclass(frozen=True, slots=True)
class _Floats(_Fixed):
    kind: str

    def read(self, octets: Octets, at: Places) -> Cells:
        return octets.floats(at, self.kind)


class _Bytes:
    def read(self, octets: Octets, at: Places) -> Cells:
        return self._cut(octets, at)

    def _cut(self, octets: Octets, at: Places) -> pa.BinaryArray:
        lengths = octets.lengths(at)
        begins = at.copy()
        at += lengths
        return octets.cut(begins, lengths)

    def skip(self, octets: Octets, at: Places) -> None:
        at += octets.lengths(at)


class _Text(_Bytes):
    def read(self, octets: Octets, at: Places) -> Cells:
        return self._cut(octets, at).cast(pa.string())  # which checks that it is UTF-8


@dataclass(frozen=True, slots=True)
class _Enum:
    symbols: pa.Array

    def read(self, octets: Octets, at: Places) -> Cells:
        return self.symbols.take(pa.array(octets.numbers(at)))

    def skip(self, octets: Octets, at: Places) -> None:
        octets.numbers(at)


class _Null:
    def read(self, octets: Octets, at: Places) -> Cells:
        return pa.nulls(len(at))

    def skip(self, octets: Octets, at: Places) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _EachCell:
    """What fastavro reads, ``parsed`` being a record that has nothing else."""

    parsed: Any
    shape: Callable[[Any], Any] | None

    def read(self, octets: Octets, at: Places) -> Cells:
        stream, cells = io.BytesIO(octets.joined), []
        for row, place in enumerate(at.tolist()):
            stream.seek(place)
            (cell,) = cast(dict[str, Any], fastavro.schemaless_reader(stream, self.parsed, None)).values()
            cells.append(cell if self.shape is None else self.shape(cell))
            at[row] = stream.tell()
        return cells

    def skip(self, octets: Octets, at: Places) -> None:
        self.read(octets, at)


@dataclass(frozen=True, slots=True)
class Record:
    """Fields one behind the other."""

    fields: tuple[tuple[str, Reader], ...]

    def read(self, octets: Octets, at: Places) -> Cells:
        """All fields of each payload together."""
        columns = {name: reader.read(octets, at) for name, reader in self.fields}
        if not columns:
            return [{} for _ in at]
        if any(isinstance(column, list) for column in columns.values()):
            cells = zip(*map(in_python, columns.values()), strict=True)
            return [dict(zip(columns, each, strict=True)) for each in cells]
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def skip(self, octets: Octets, at: Places) -> None:
        """Only moves on."""
        for _, reader in self.fields:
            reader.skip(octets, at)

    def struct(self, octets: Octets, at: Places, wanted: Wanted) -> Struct:
        """The wanted fields, each by itself."""
        columns: dict[str, Cells | Struct] = {}
        for name, reader in self.fields:
            if name not in wanted:
                reader.skip(octets, at)
            elif (parts := wanted[name]) is not None and isinstance(reader, Record | Optional):
                columns[name] = reader.struct(octets, at, parts)
            else:
                columns[name] = reader.read(octets, at)
        return Struct(columns)


@dataclass(frozen=True, slots=True)
class Optional:
    """A union of one type, with null or without."""

    inner: Reader
    branch: int
    nullable: bool

    def read(self, octets: Octets, at: Places) -> Cells:
        """The cells, and nulls."""
        rows = self._present(octets, at)
        if rows is None:
            return self.inner.read(octets, at)
        if not len(rows):
            return pa.nulls(len(at))
        part = at[rows]
        cells = self.inner.read(octets, part)
        at[rows] = part
        return filled(cells, rows, len(at))

    def skip(self, octets: Octets, at: Places) -> None:
        """Only moves on."""
        rows = self._present(octets, at)
        if rows is None:
            self.inner.skip(octets, at)
        elif len(rows):
            part = at[rows]
            self.inner.skip(octets, part)
            at[rows] = part

    def struct(self, octets: Octets, at: Places, wanted: Wanted) -> Struct:
        """The wanted fields of a record that may be missing; raises Malformed where it is none."""
        rows = self._present(octets, at)
        if not isinstance(self.inner, Record):
            raise Malformed
        if rows is None:
            return self.inner.struct(octets, at, wanted)
        part = at[rows]
        inner = self.inner.struct(octets, part, wanted)
        at[rows] = part
        return Struct(inner.columns, rows)

    def _present(self, octets: Octets, at: Places) -> npt.NDArray[np.intp] | None:
        """The rows that are not null, None for all."""
        branches = octets.numbers(at)
        found = branches == self.branch
        if found.all():
            return None
        if not self.nullable or ((branches | 1) != 1).any():
            raise Malformed
        return np.flatnonzero(found)


_SIMPLE: dict[str, Reader] = {
    "null": _Null(),
    "boolean": _Booleans(1),
    "int": _Numbers(),
    "long": _Numbers(),
    "float": _Floats(4, "<f4"),
    "double": _Floats(8, "<f8"),
    "bytes": _Bytes(),
    "string": _Text(),
}


def field_reader(parsed: Any, definitions: Mapping[str, Any], schema: Schema) -> Reader:
    """The reader of a type as fastavro has parsed it, with its Connect schema. ``definitions`` are by full name."""
    if isinstance(parsed, list):
        (branch,) = [place for place, each in enumerate(parsed) if each not in _NULLS]
        return Optional(field_reader(parsed[branch], definitions, schema), branch, len(parsed) > 1)
    if isinstance(parsed, str):
        return _SIMPLE.get(parsed) or field_reader(definitions[parsed], definitions, schema)
    kind = parsed["type"]
    if kind in ("record", "error"):
        members = ((each["name"], each["type"], schema.field(each["name"])) for each in parsed["fields"])
        return Record(
            tuple((name, field_reader(each, definitions, member)) for name, each, member in members if member)
        )
    if kind in ("array", "map"):
        only = {"type": "record", "name": "Only", "fields": [{"name": "it", "type": _by_names(parsed)}]}
        return _EachCell(fastavro.parse_schema(only, dict(definitions)), with_pairs(schema))
    if kind == "enum":
        return _Enum(pa.array(parsed["symbols"]))
    return _Fixed(parsed["size"]) if kind == "fixed" else field_reader(kind, definitions, schema)


def as_record(reader: Reader) -> Record:
    """Raises Malformed for what is none."""
    if not isinstance(reader, Record):
        raise Malformed
    return reader


_NULLS = ("null", {"type": "null"})


def _by_names(parsed: Any) -> Any:
    """A type whose definitions stand elsewhere."""
    if isinstance(parsed, list):
        return [_by_names(each) for each in parsed]
    if isinstance(parsed, dict):
        return parsed.get("name") or {name: _by_names(each) for name, each in parsed.items()}
    return parsed
