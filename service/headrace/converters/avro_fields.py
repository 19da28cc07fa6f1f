"""Readers of Avro's types over a block of payloads, compiled once per schema (``converters/avro_block.py``).

Columns contain physical values, as ``connect_data.py`` describes them. Arrays and maps need as many steps as their
longest cell has entries: fastavro reads them cell by cell. All other types are read for all payloads at once.
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

from headrace.converters.avro_block import Malformed, Payloads, Positions
from headrace.converters.avro_maps import with_pairs
from headrace.core.decode.column_rows import Cells, Struct, Wanted, filled, in_python
from headrace.core.model.schema import Schema


class Reader(Protocol):
    """Read one field of every payload. ``at`` is where it begins in each; reading advances ``at`` past the field."""

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        """The cells."""

    def skip(self, payloads: Payloads, at: Positions) -> None:
        """Advance ``at`` past the field without reading it."""


class _Numbers:
    """Ints and longs."""

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        return pa.array(payloads.numbers(at))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        payloads.numbers(at)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Values of a fixed number of bytes."""

    width: int

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        begins = at.copy()
        at += self.width
        return payloads.cut(begins, np.full(len(at), self.width, np.int64))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        at += self.width


class _Booleans(_Fixed):
    def read(self, payloads: Payloads, at: Positions) -> Cells:
        values = payloads.bytes[at]
        at += self.width
        return pa.array(values != 0)


@dataclass(frozen=True, slots=True)
class _Floats(_Fixed):
    dtype: str

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        return payloads.floats(at, self.dtype)


class _Bytes:
    def read(self, payloads: Payloads, at: Positions) -> Cells:
        return self._cut(payloads, at)

    def _cut(self, payloads: Payloads, at: Positions) -> pa.BinaryArray:
        lengths = payloads.lengths(at)
        begins = at.copy()
        at += lengths
        return payloads.cut(begins, lengths)

    def skip(self, payloads: Payloads, at: Positions) -> None:
        at += payloads.lengths(at)


class _Text(_Bytes):
    def read(self, payloads: Payloads, at: Positions) -> Cells:
        return self._cut(payloads, at).cast(pa.string())  # the cast checks that it is UTF-8


@dataclass(frozen=True, slots=True)
class _Enum:
    symbols: pa.Array

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        return self.symbols.take(pa.array(payloads.numbers(at)))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        payloads.numbers(at)


class _Null:
    def read(self, payloads: Payloads, at: Positions) -> Cells:
        return pa.nulls(len(at))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        pass


@dataclass(frozen=True, slots=True)
class _EachCell:
    """Cells that fastavro reads one by one; ``parsed`` is the schema of a record with this field only."""

    parsed: Any
    shape: Callable[[Any], Any] | None

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        stream, cells = io.BytesIO(payloads.joined), []
        for row, begin in enumerate(at.tolist()):
            stream.seek(begin)
            (cell,) = cast(dict[str, Any], fastavro.schemaless_reader(stream, self.parsed, None)).values()
            cells.append(cell if self.shape is None else self.shape(cell))
            at[row] = stream.tell()
        return cells

    def skip(self, payloads: Payloads, at: Positions) -> None:
        self.read(payloads, at)


@dataclass(frozen=True, slots=True)
class RecordReader:
    """The fields of a record, in their order."""

    fields: tuple[tuple[str, Reader], ...]

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        """All fields, as one column."""
        columns = {name: reader.read(payloads, at) for name, reader in self.fields}
        if not columns:
            return [{} for _ in at]
        if any(isinstance(column, list) for column in columns.values()):
            cells = zip(*map(in_python, columns.values()), strict=True)
            return [dict(zip(columns, each, strict=True)) for each in cells]
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        """Advance ``at`` past all fields."""
        for _, reader in self.fields:
            reader.skip(payloads, at)

    def struct(self, payloads: Payloads, at: Positions, wanted: Wanted) -> Struct:
        """The wanted fields, each as its own column."""
        columns: dict[str, Cells | Struct] = {}
        for name, reader in self.fields:
            if name not in wanted:
                reader.skip(payloads, at)
            elif (parts := wanted[name]) is not None and isinstance(reader, RecordReader | OptionalReader):
                columns[name] = reader.struct(payloads, at, parts)
            else:
                columns[name] = reader.read(payloads, at)
        return Struct(columns)


@dataclass(frozen=True, slots=True)
class OptionalReader:
    """A union of a single type, or of null and one type."""

    inner: Reader
    branch: int
    nullable: bool

    def read(self, payloads: Payloads, at: Positions) -> Cells:
        """The cells, and nulls."""
        rows = self._present(payloads, at)
        if rows is None:
            return self.inner.read(payloads, at)
        if not len(rows):
            return pa.nulls(len(at))
        part = at[rows]
        cells = self.inner.read(payloads, part)
        at[rows] = part
        return filled(cells, rows, len(at))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        """Advance ``at`` past the union."""
        rows = self._present(payloads, at)
        if rows is None:
            self.inner.skip(payloads, at)
        elif len(rows):
            part = at[rows]
            self.inner.skip(payloads, part)
            at[rows] = part

    def struct(self, payloads: Payloads, at: Positions, wanted: Wanted) -> Struct:
        """The wanted fields of a record that may be null; raises Malformed if the type is not a record."""
        rows = self._present(payloads, at)
        if not isinstance(self.inner, RecordReader):
            raise Malformed
        if rows is None:
            return self.inner.struct(payloads, at, wanted)
        part = at[rows]
        inner = self.inner.struct(payloads, part, wanted)
        at[rows] = part
        return Struct(inner.columns, rows)

    def _present(self, payloads: Payloads, at: Positions) -> npt.NDArray[np.intp] | None:
        """The rows that are not null, None for all."""
        branches = payloads.numbers(at)
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
    """Return the reader of a type that fastavro has parsed; ``definitions`` are the named types by full name."""
    if isinstance(parsed, list):
        (branch,) = [index for index, each in enumerate(parsed) if each not in _NULLS]
        return OptionalReader(field_reader(parsed[branch], definitions, schema), branch, len(parsed) > 1)
    if isinstance(parsed, str):
        return _SIMPLE.get(parsed) or field_reader(definitions[parsed], definitions, schema)
    kind = parsed["type"]
    if kind in ("record", "error"):
        members = ((each["name"], each["type"], schema.field(each["name"])) for each in parsed["fields"])
        return RecordReader(
            tuple((name, field_reader(each, definitions, member)) for name, each, member in members if member)
        )
    if kind in ("array", "map"):
        only = {"type": "record", "name": "Only", "fields": [{"name": "it", "type": _by_names(parsed)}]}
        return _EachCell(fastavro.parse_schema(only, dict(definitions)), with_pairs(schema))
    if kind == "enum":
        return _Enum(pa.array(parsed["symbols"]))
    return _Fixed(parsed["size"]) if kind == "fixed" else field_reader(kind, definitions, schema)


def as_record_reader(reader: Reader) -> RecordReader:
    """Return ``reader``, which has to read records: raises Malformed otherwise."""
    if not isinstance(reader, RecordReader):
        raise Malformed
    return reader


_NULLS = ("null", {"type": "null"})


def _by_names(parsed: Any) -> Any:
    """Replace the definitions of named types within a type by their names."""
    if isinstance(parsed, list):
        return [_by_names(each) for each in parsed]
    if isinstance(parsed, dict):
        return parsed.get("name") or {name: _by_names(each) for name, each in parsed.items()}
    return parsed
