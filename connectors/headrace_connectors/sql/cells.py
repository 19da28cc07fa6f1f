"""The cells of an answer of any database: which rows were found, and the conversion of their values.

A value that does not fit the event's type is UNREADABLE. A key of several rows is an error.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes
from headrace.core.model.errors import Fatal
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.rows import UNREADABLE, Rows

Reader = Callable[[Any], object]
"""Makes the Connect value of a driver's value; raises ValueError for one that the target type cannot contain."""


_UNFIT = (ValueError, KeyError, ArithmeticError, TypeError)

EXACT_DIGITS = sys.float_info.dig
"""Decimal digits that a double preserves."""


class FoundRows:
    """The rows of a SELECT, by the ordinals of the request, with the driver's values."""

    def __init__(self, table: TableId, rows: int, columns: int) -> None:
        self.found = np.zeros(rows, np.bool_)
        self.values: list[list[object]] = [[None] * rows for _ in range(columns)]
        self._table = table

    def put(self, index: int, values: Sequence[object]) -> None:
        """Store the row that answers request ``index``. Raises Fatal if there is one already."""
        if self.found[index]:
            raise self._several_rows()
        self.found[index] = True
        for column, value in zip(self.values, values, strict=True):
            column[index] = value

    def put_all(self, indexes: Rows, columns: Sequence[list[Any]]) -> None:
        """Store the rows that answer the requests ``indexes``, column by column. Raises Fatal as ``put`` does."""
        if self.found[indexes].any() or np.bincount(indexes, minlength=1).max() > 1:
            raise self._several_rows()
        self.found[indexes] = True
        if np.array_equal(indexes, np.arange(len(self.found))):
            self.values = list(columns)
            return
        for stored, values in zip(self.values, columns, strict=True):
            for index, value in zip(indexes.tolist(), values, strict=True):
                stored[index] = value

    def _several_rows(self) -> Fatal:
        return Fatal(
            f"{self._table.schema}.{self._table.table}: several rows have the same key, so it does not identify a row; "
            "set primary.key.fields to columns that do"
        )


class Wanted(Protocol):
    """A column with the name and type in its events: ``events.Column`` or ``schema.Field``."""

    @property
    def name(self) -> str: ...

    @property
    def schema(self) -> Schema: ...


@dataclass(frozen=True, slots=True)
class ReadableColumn:
    """A wanted column that the table has: its index among the wanted ones, and the conversion of its values."""

    index: int
    catalog: CatalogColumn
    read: Reader

    def values(self, given: Sequence[object]) -> list[object]:
        """Return the Connect values of the driver's values; UNREADABLE for those that do not fit the event's type."""
        read = self.read
        try:
            return [None if value is None else read(value) for value in given]
        except _UNFIT:
            return [self._value(value) for value in given]

    def _value(self, given: object) -> object:
        try:
            return None if given is None else self.read(given)
        except _UNFIT:
            return UNREADABLE


@dataclass(frozen=True, slots=True)
class ReadableColumns:
    """The wanted columns that can be read; ``wanted`` is the number of all."""

    wanted: int
    columns: tuple[ReadableColumn, ...]

    @staticmethod
    def of(
        wanted: Sequence[Wanted],
        find: Callable[[str], CatalogColumn | None],
        reader: Callable[[Schema, CatalogColumn], Reader],
    ) -> ReadableColumns:
        """Select the readable columns. ``find`` returns a catalog entry by name, ``reader`` a conversion by schema."""
        columns = [
            ReadableColumn(index, column, reader(event_column.schema, column))
            for index, event_column in enumerate(wanted)
            if (column := find(event_column.name)) is not None
        ]
        return ReadableColumns(len(wanted), tuple(columns))

    @property
    def indexes(self) -> list[int]:
        return [column.index for column in self.columns]

    @property
    def names(self) -> list[str]:
        return [column.catalog.name for column in self.columns]

    def values(self, given: Sequence[Sequence[object]], rows: int) -> tuple[Sequence[object], ...]:
        """Return the Connect values of all wanted columns, from the driver's values of the readable ones."""
        values: list[Sequence[object]] = [[UNREADABLE] * rows] * self.wanted
        for column, given_values in zip(self.columns, given, strict=True):
            is_text = isinstance(given_values, pa.Array)
            values[column.index] = given_values if is_text else column.values(given_values)
        return tuple(values)


def key_column(catalog: CatalogTable, name: str) -> CatalogColumn:
    """Return the catalog's entry of a key column. Raises Fatal if it does not exist any more."""
    column = catalog.column(name)
    if column is None:
        raise Fatal(f"key column {name} is not in table {catalog.table.schema}.{catalog.table.table} any more")
    return column


def inexact_key(name: str, schema: Schema, column: CatalogColumn) -> Fatal:
    """Return the error for a key whose events contain less than the database: "row not found" would be wrong."""
    return Fatal(
        f"key column {name} cannot identify rows in the source: its events ({schema.name or schema.type}) do not "
        f"contain the exact value of type {column.type.name}; use another handling mode at the source connector, or "
        "set reselect.source.reads=none"
    )


def truncating(read: Reader, schema: Schema) -> Reader:
    """``column.truncate.to.N.chars`` of the source connector, which counts UTF-16 units; else ``read`` itself."""
    length = schema.parameter("truncateLength")
    if length is None:
        return read

    def read_truncated(given: object) -> object:
        value = read(given)
        if not isinstance(value, str):
            return value
        return value.encode("utf-16-le", "surrogatepass")[: 2 * int(length)].decode("utf-16-le", "replace")

    return read_truncated


def bytes_writer(schema: Schema, modes: HandlingModes) -> Callable[[bytes], bytes | str]:
    """Return a conversion of bytes by ``binary.handling.mode``."""
    if schema.type == "bytes":
        return bytes
    if modes.binary == "hex":
        return bytes.hex
    encode = base64.urlsafe_b64encode if modes.binary == "base64-url-safe" else base64.b64encode
    return lambda data: encode(data).decode()


def bytes_of(text: str, modes: HandlingModes) -> bytes:
    """Return the bytes of a text from ``bytes_writer``."""
    if modes.binary == "hex":
        return bytes.fromhex(text)
    return base64.urlsafe_b64decode(text) if modes.binary == "base64-url-safe" else base64.b64decode(text)
