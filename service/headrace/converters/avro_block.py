"""Read many Avro payloads of one schema at once: field by field over all of them, instead of record by record.

The payloads are concatenated, and ``at`` is the current position in each. Reading a field takes a few numpy operations
over all positions, advances them, and returns a column. Positions only increase: if all payloads end at their expected
positions, each was read within its own bytes. An error fails the block: then the reader of single records finds the bad
payload (``converters/avro.py``).

Columns contain physical values, as ``connect_data.py`` describes them. Arrays and maps need as many steps as their
longest cell has entries: fastavro reads them cell by cell. All other types are read for all payloads at once.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.decode.column_rows import Cells, Struct, Wanted, fill_rows, in_python
from headrace.core.model.schema import Schema

Positions = npt.NDArray[np.int64]

_PADDING = bytes(16)  # the last payload's positions are read as complete words too
_LARGEST = 2**31 - 1  # the largest offset of Arrow's binary arrays
_GATHERED = 16  # bytes of a cell: longer cells cost less as slices, and gathering takes 24 bytes of memory per byte


class Malformed(ValueError):
    """The bytes do not match their schema."""


class Payloads:
    """Concatenated payloads. ``offset`` bytes before each contain the id of its schema."""

    def __init__(self, documents: Sequence[bytes], offset: int) -> None:
        joined = b"".join((*documents, _PADDING))
        lengths = np.fromiter(map(len, documents), np.int64, len(documents))
        if len(joined) > _LARGEST:
            raise Malformed
        self.joined = joined
        self.bytes = np.frombuffer(joined, np.uint8)
        self._words = np.ndarray(len(joined) - 7, "<u8", joined, strides=(1,))
        self.ends = np.cumsum(lengths)
        self.begins = self.ends - lengths + offset

    def numbers(self, at: Positions) -> npt.NDArray[np.int64]:
        """Read Avro's ints and longs: zigzag, seven bits per byte."""
        first = self.bytes[at]
        if first.max(initial=0) < 0x80:  # one byte, as for nearly all lengths and branches
            at += 1
            number = first.astype(np.uint64)
        else:
            number = self._long_numbers(at)
        return ((number >> 1) ^ (~(number & 1) + 1)).view(np.int64)

    def _long_numbers(self, at: Positions) -> npt.NDArray[np.uint64]:
        words = self._words[at]
        last = ~words & _CONTINUED
        below = (last & (~last + 1)) - 1  # the mask of each number's bits within its word
        wide = np.flatnonzero(last == 0)  # the numbers longer than a word
        number: npt.NDArray[np.uint64] = words & below
        for even, odd, distance in _SEVENS:  # join the eight groups of seven bits of each word
            number = (number & even) | ((number & odd) >> distance)
        if len(wide):
            more = self.bytes[at[wide, None] + (8, 9)].astype(np.uint64)
            ten = more[:, 0] >= 0x80
            if (more[ten, 1] > 1).any():
                raise Malformed
            number[wide] |= ((more[:, 0] & 0x7F) << 56) | np.where(ten, more[:, 1] << 63, 0)
            at[wide] += 1 + ten
        at += (np.bitwise_count(below) + 1) >> 3
        return number

    def lengths(self, at: Positions) -> npt.NDArray[np.int64]:
        """Read the numbers of the bytes that follow."""
        lengths = self.numbers(at)
        if lengths.min(initial=0) < 0 or lengths.max(initial=0) > len(self.bytes):
            raise Malformed
        return lengths

    def cut(self, begins: Positions, lengths: npt.NDArray[np.int64]) -> pa.BinaryArray:
        """Return ``lengths`` bytes from each of ``begins``."""
        offsets = np.zeros(len(begins) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        if offsets[-1] > len(self.bytes):
            raise Malformed
        if offsets[-1] > _GATHERED * len(begins):
            ends = begins + lengths
            slices = (self.joined[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True))
            return pa.array(slices, pa.binary())
        source = np.repeat(begins - offsets[:-1], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(self.bytes[source])]
        return pa.Array.from_buffers(pa.binary(), len(begins), buffers)

    def floats(self, at: Positions, dtype: str) -> pa.Array:
        words = self._words[at]
        at += np.dtype(dtype).itemsize
        return pa.array(words.view(dtype)[:: 8 // np.dtype(dtype).itemsize])


_CONTINUED = np.uint64(0x8080808080808080)
_SEVENS = (
    (np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00), np.uint64(1)),
    (np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000), np.uint64(2)),
    (np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000), np.uint64(4)),
)
"""Masks of even and of odd groups, and the shift that joins them: groups of 7 bits, of 14 and of 28."""


def with_pairs(schema: Schema) -> Callable[[Any], Any] | None:
    """Return a function that converts the entries of maps to pairs; None if the schema has no such map."""
    if schema.type == "struct":
        members = {m.name: shape for m in schema.fields if (shape := with_pairs(m.schema)) is not None}
        if not members:
            return None
        return lambda value: value and {**value, **{name: shape(value[name]) for name, shape in members.items()}}
    if schema.items is not None:
        inner = with_pairs(schema.items)
        return None if inner is None else lambda value: value and [inner(item) for item in value]
    if schema.keys is None or schema.values is None:
        return None
    key, value = with_pairs(schema.keys), with_pairs(schema.values)
    if schema.keys == Schema("string") and value is None:
        return None  # an Avro map
    shape_key, shape_value = key or _same, value or _same
    has_text_keys = schema.keys.type == "string"

    def shape_map(given: Any) -> Any:
        if given is None:
            return None
        pairs = [(entry["key"], entry["value"]) for entry in given] if isinstance(given, list) else given.items()
        entries = [(shape_key(name), shape_value(value)) for name, value in pairs]
        return dict(entries) if has_text_keys else entries

    return shape_map


def _same(value: Any) -> Any:
    return value


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
            return [dict(zip(columns, row, strict=True)) for row in cells]
        return pa.StructArray.from_arrays(list(columns.values()), list(columns))

    def skip(self, payloads: Payloads, at: Positions) -> None:
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
        rows = self._rows_with_value(payloads, at)
        if rows is None:
            return self.inner.read(payloads, at)
        if not len(rows):
            return pa.nulls(len(at))
        part = at[rows]
        cells = self.inner.read(payloads, part)
        at[rows] = part
        return fill_rows(cells, rows, len(at))

    def skip(self, payloads: Payloads, at: Positions) -> None:
        rows = self._rows_with_value(payloads, at)
        if rows is None:
            self.inner.skip(payloads, at)
        elif len(rows):
            part = at[rows]
            self.inner.skip(payloads, part)
            at[rows] = part

    def struct(self, payloads: Payloads, at: Positions, wanted: Wanted) -> Struct:
        """The wanted fields of a record that may be null; raises Malformed if the type is not a record."""
        rows = self._rows_with_value(payloads, at)
        if not isinstance(self.inner, RecordReader):
            raise Malformed
        if rows is None:
            return self.inner.struct(payloads, at, wanted)
        part = at[rows]
        inner = self.inner.struct(payloads, part, wanted)
        at[rows] = part
        return Struct(inner.columns, rows)

    def _rows_with_value(self, payloads: Payloads, at: Positions) -> npt.NDArray[np.intp] | None:
        """The rows that are not null, None for all."""
        branches = payloads.numbers(at)
        has_value = branches == self.branch
        if has_value.all():
            return None
        if not self.nullable or ((branches | 1) != 1).any():
            raise Malformed
        return np.flatnonzero(has_value)


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
        (branch,) = [index for index, member in enumerate(parsed) if member not in _NULLS]
        return OptionalReader(field_reader(parsed[branch], definitions, schema), branch, len(parsed) > 1)
    if isinstance(parsed, str):
        return _SIMPLE.get(parsed) or field_reader(definitions[parsed], definitions, schema)
    kind = parsed["type"]
    if kind in ("record", "error"):
        members = ((field["name"], field["type"], schema.field(field["name"])) for field in parsed["fields"])
        return RecordReader(
            tuple((name, field_reader(avro_type, definitions, member)) for name, avro_type, member in members if member)
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
        return [_by_names(branch) for branch in parsed]
    if isinstance(parsed, dict):
        return parsed.get("name") or {name: _by_names(value) for name, value in parsed.items()}
    return parsed
