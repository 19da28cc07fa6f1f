"""The layout of new tables: partition and sort expressions, with the syntax of Iceberg's Kafka Connect sink.

``table.partition.by`` is a list of ``column``, ``years(column)``, ``months(column)``, ``days(column)``,
``hours(column)``, ``bucket(n, column)`` and ``truncate(n, column)``. ``table.sort.by`` is a list of ``column``, each
optionally followed by ``ASC`` or ``DESC``. They are parsed here, and compared with the columns of a new table, so that
a mistake is found before the table is created: Iceberg's sort order is a second statement, which would be missing in a
table that exists. Each format writes its own DDL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import pyarrow as pa

from headrace.core.model.errors import ConfigError

PARTITION_BY, SORT_BY = "table.partition.by", "table.sort.by"

_TIMES = ("years", "months", "days", "hours")
_SIZED = ("bucket", "truncate")
_SHOWN = 50
"""Columns that a message names."""
_ENTRY = re.compile(r"\s*([^(),]+(?:\([^()]*\))?)\s*(?:,|$)")
_CALL = re.compile(r"(\w+)\s*\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A column, or a transform of it; ``size`` is the first argument of bucket and truncate."""

    column: str
    transform: str = "identity"
    size: int = 0


@dataclass(frozen=True, slots=True)
class SortField:
    """A column to sort by."""

    column: str
    descending: bool = False


@dataclass(frozen=True, slots=True)
class TableLayout:
    """How rows are distributed over files."""

    partition: tuple[PartitionField, ...] = ()
    sort: tuple[SortField, ...] = ()


def table_layout(table_format: str, partition_by: str, sort_by: str) -> TableLayout:
    """Parse the options' values. Raises ConfigError for invalid expressions, and for those the format lacks."""
    layout = TableLayout(partition_fields(partition_by), sort_fields(sort_by))
    for one, other in combinations(layout.partition, 2):
        alike = one.transform == other.transform or {one.transform, other.transform} <= {*_TIMES}
        if one.column == other.column and alike:
            raise ConfigError(
                f"{PARTITION_BY}: column {one.column!r} has two transforms that exclude each other; remove one",
                PARTITION_BY,
            )
    if table_format == "delta" and any(field.transform != "identity" for field in layout.partition):
        raise ConfigError(f"{PARTITION_BY}: Delta tables are partitioned by columns, without a transform", PARTITION_BY)
    if table_format == "delta" and layout.partition and layout.sort:
        raise ConfigError(f"{SORT_BY}: Delta clusters by these columns, which partitions exclude; set one", SORT_BY)
    return layout


def check_columns(table: str, table_format: str, layout: TableLayout, schema: pa.Schema) -> None:
    """Raise ConfigError if a new table does not have a column of its layout, or the column's type does not fit.

    ``schema`` has all columns of the table, in lake types. Names are compared with their case, as Spark does.
    """
    uses = [(PARTITION_BY, field.column, field.transform) for field in layout.partition]
    uses += [(SORT_BY, field.column, "identity") for field in layout.sort]
    for option, column, transform in uses:
        if column not in schema.names:
            shown = [*schema.names[:_SHOWN], *(["…"] if len(schema.names) > _SHOWN else [])]
            raise ConfigError(
                f"{table}: {option} names column {column!r}, which the table does not have; correct it, the columns "
                f"are {', '.join(shown)}",
                option,
            )
        data_type = schema.field(column).type
        if not _fits(data_type, transform, clusters=table_format == "delta" and option == SORT_BY):
            use = f"{transform}({column})" if transform != "identity" else f"column {column!r}"
            raise ConfigError(
                f"{table}: {option} has {use}, whose type {data_type} does not fit; choose another column or transform",
                option,
            )


def _fits(data_type: pa.DataType, transform: str, *, clusters: bool) -> bool:
    """Whether a format accepts columns of a type: Iceberg's table of transforms, and Delta's of clustering columns."""
    types = pa.types
    if transform in _TIMES:
        fitting = [types.is_timestamp] if transform == "hours" else [types.is_timestamp, types.is_date]
        return any(check(data_type) for check in fitting)
    if transform == "truncate":
        fitting = [types.is_integer, types.is_decimal, types.is_string, types.is_binary]
        return any(check(data_type) for check in fitting)
    excluded = [types.is_nested]
    if transform == "bucket":
        excluded += [types.is_floating, types.is_boolean]
    if clusters:
        excluded += [types.is_boolean, types.is_binary]
    return not any(check(data_type) for check in excluded)


def partition_fields(text: str) -> tuple[PartitionField, ...]:
    """Parse ``table.partition.by``. Raises ConfigError that contains the invalid entry."""
    fields = []
    for entry in _entries(text, PARTITION_BY):
        call = _CALL.fullmatch(entry)
        transform, arguments = "identity", [entry]
        if call is not None:
            transform, arguments = call[1].lower(), [argument.strip() for argument in call[2].split(",")]
        is_sized = transform in _SIZED and len(arguments) == 2 and arguments[0].isdecimal() and int(arguments[0]) > 0
        if is_sized:
            fields.append(PartitionField(arguments[1], transform, int(arguments[0])))
        elif (call is None and "(" not in entry) or (transform in _TIMES and len(arguments) == 1 and arguments[0]):
            fields.append(PartitionField(arguments[0], transform))
        else:
            raise ConfigError(
                f"{PARTITION_BY}: {entry!r} is not column, {'(column), '.join(_TIMES)}(column), bucket(n, column) or "
                "truncate(n, column)",
                PARTITION_BY,
            )
    return tuple(fields)


def sort_fields(text: str) -> tuple[SortField, ...]:
    """Parse ``table.sort.by``. Raises ConfigError that contains the invalid entry."""
    fields = []
    for entry in _entries(text, SORT_BY):
        column, _, direction = entry.rpartition(" ")
        if column and direction.lower() in ("asc", "desc"):
            fields.append(SortField(column.strip(), direction.lower() == "desc"))
        elif "(" in entry:
            raise ConfigError(f"{SORT_BY}: {entry!r} is not a column, optionally followed by ASC or DESC", SORT_BY)
        else:
            fields.append(SortField(entry))
    return tuple(fields)


def _entries(text: str, key: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    index = 0
    while index < len(text.rstrip()):
        entry = _ENTRY.match(text, index)
        if entry is None:
            raise ConfigError(f"{key}: {text[index:].strip()!r} is not a list of columns", key)
        yield entry[1].strip()
        index = entry.end()


class Maintenance(StrEnum):
    """Who compacts a table and expires its snapshots: the worker beside its writes or between them, or nobody here."""

    BACKGROUND = "background"
    INLINE = "inline"
    OFF = "off"
