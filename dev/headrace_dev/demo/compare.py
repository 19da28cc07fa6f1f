"""Compare database and lake, cell by cell, without a JVM: psycopg reads one, PyIceberg the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg import sql
from pyiceberg.table import StaticTable

from headrace_dev.demo.load import Connection

# Debezium sends these types as text, so the lake contains text.
_AS_TEXT = ("jsonb", "json", "uuid")
_MISSING = object()
_OWN_COLUMNS = "__headrace_"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Difference:
    """One row that differs; ``columns`` is empty if only one side (``where``) has it."""

    table: str
    key: tuple[Any, ...]
    where: str
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.table} {'/'.join(map(str, self.key))}"
        return f"{place}: {', '.join(self.columns)} differ" if self.columns else f"{place}: only in the {self.where}"


def lake_table(folder: Path) -> StaticTable | None:
    """The newest version of an Iceberg table of the embedded catalog; None before its first commit."""
    newest = newest_metadata(folder)
    return StaticTable.from_metadata(str(newest)) if newest else None


def newest_metadata(folder: Path) -> Path | None:
    """The metadata file of the newest version of such a table; None before its first commit."""
    versions = folder.glob("metadata/v*.metadata.json")
    return max(versions, key=lambda path: int(path.name[1:].split(".")[0]), default=None)


def lake_rows(folder: Path) -> list[dict[str, Any]]:
    """The data columns of every row of a table of the embedded catalog."""
    table = lake_table(folder)
    return [] if table is None else data_rows(table)


def data_rows(table: StaticTable) -> list[dict[str, Any]]:
    """The data columns of every row."""
    stored = table.scan().to_arrow()
    names = [name for name in stored.column_names if not name.startswith(_OWN_COLUMNS)]
    rows: list[dict[str, Any]] = stored.select(names).to_pylist()
    return rows


def has_row(rows: Sequence[Row], key: Row) -> bool:
    """Whether one of the rows has these cells."""
    return any(all(row[name] == value for name, value in key.items()) for row in rows)


def database_rows(connection: Connection, table: str) -> list[dict[str, Any]]:
    """Return every row as the lake must contain it."""
    typed = connection.execute(
        "SELECT attname, atttypid::regtype::text FROM pg_attribute"
        " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (table,),
    ).fetchall()
    names = [name for name, _ in typed]
    cells = [sql.SQL("{}::text" if kind in _AS_TEXT else "{}").format(sql.Identifier(name)) for name, kind in typed]
    query = sql.SQL("SELECT {} FROM {}").format(sql.SQL(", ").join(cells), sql.Identifier(table))
    return [dict(zip(names, row, strict=True)) for row in connection.execute(query)]


def key_columns(connection: Connection, table: str) -> list[str]:
    """The primary key's columns in order."""
    query = (
        "SELECT a.attname FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
        " WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY array_position(i.indkey::int[], a.attnum::int)"
    )
    return [name for (name,) in connection.execute(query, (table,))]


def differences(table: str, key: Sequence[str], wanted: Sequence[Row], found: Sequence[Row]) -> Iterator[Difference]:
    """Yield each row that differs between ``wanted`` (database) and ``found`` (lake), or that occurs twice."""
    database = {_key(row, key): row for row in wanted}
    seen = set()
    for row in found:
        place = _key(row, key)
        if place in seen:
            yield Difference(table, place, "lake, twice")
        elif place not in database:
            yield Difference(table, place, "lake")
        elif columns := _unequal(database[place], row):
            yield Difference(table, place, "both", columns)
        seen.add(place)
    for place in database.keys() - seen:
        yield Difference(table, place, "database")


def _key(row: Row, key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in key)


def _unequal(wanted: Row, found: Row) -> tuple[str, ...]:
    names = [*wanted, *(name for name in found if name not in wanted)]
    return tuple(name for name in names if not _equal(wanted.get(name, _MISSING), found.get(name, _MISSING)))


def _equal(wanted: Any, found: Any) -> bool:
    return type(wanted) is type(found) and bool(wanted == found)
