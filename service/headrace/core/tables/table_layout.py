"""The layout of new tables: partition and sort expressions, with the syntax of Iceberg's Kafka Connect sink.

``table.partition.by`` is a list of ``column``, ``years(column)``, ``months(column)``, ``days(column)``,
``hours(column)``, ``bucket(n, column)`` and ``truncate(n, column)``. ``table.sort.by`` is a list of ``column``, each
optionally followed by ``ASC`` or ``DESC``. They are parsed here, so that a mistake is found before a table is created.
Each format writes its own DDL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.core.model.errors import ConfigError

PARTITION_BY, SORT_BY = "table.partition.by", "table.sort.by"

_TIMES = ("years", "months", "days", "hours")
_SIZED = ("bucket", "truncate")
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
    if table_format == "delta" and any(field.transform != "identity" for field in layout.partition):
        raise ConfigError(f"{PARTITION_BY}: Delta tables are partitioned by columns, without a transform", PARTITION_BY)
    if table_format == "delta" and layout.partition and layout.sort:
        raise ConfigError(f"{SORT_BY}: Delta clusters by these columns, which partitions exclude; set one", SORT_BY)
    return layout


def partition_fields(text: str) -> tuple[PartitionField, ...]:
    """Parse ``table.partition.by``. Raises ConfigError that contains the invalid entry."""
    return tuple(_partition_field(entry) for entry in _entries(text, PARTITION_BY))


def sort_fields(text: str) -> tuple[SortField, ...]:
    """Parse ``table.sort.by``. Raises ConfigError that contains the invalid entry."""
    return tuple(_sort_field(entry) for entry in _entries(text, SORT_BY))


def _entries(text: str, key: str) -> Iterator[str]:
    """Split at the commas outside of brackets."""
    index = 0
    while index < len(text.rstrip()):
        entry = _ENTRY.match(text, index)
        if entry is None:
            raise ConfigError(f"{key}: {text[index:].strip()!r} is not a list of columns", key)
        yield entry[1].strip()
        index = entry.end()


def _partition_field(entry: str) -> PartitionField:
    call = _CALL.fullmatch(entry)
    if call is None and "(" not in entry:
        return PartitionField(entry)
    if call is not None:
        transform, arguments = call[1].lower(), [argument.strip() for argument in call[2].split(",")]
        if transform in _TIMES and len(arguments) == 1 and arguments[0]:
            return PartitionField(arguments[0], transform)
        if transform in _SIZED and len(arguments) == 2 and arguments[0].isdecimal() and int(arguments[0]) > 0:
            return PartitionField(arguments[1], transform, int(arguments[0]))
    raise ConfigError(
        f"{PARTITION_BY}: {entry!r} is not column, {'(column), '.join(_TIMES)}(column), bucket(n, column) or "
        "truncate(n, column)",
        PARTITION_BY,
    )


def _sort_field(entry: str) -> SortField:
    column, _, direction = entry.rpartition(" ")
    if column and direction.lower() in ("asc", "desc"):
        return SortField(column.strip(), direction.lower() == "desc")
    if "(" in entry:
        raise ConfigError(f"{SORT_BY}: {entry!r} is not a column, optionally followed by ASC or DESC", SORT_BY)
    return SortField(entry)
