"""Compares a table with the dump of its database, cell by cell, except for the named differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from recordings.canonical import comparable, expected, field_name, plain, without_nulls
from recordings.columns import columns
from recordings.differences import (
    DROPPED_COLUMNS,
    NEVER_TYPED,
    NO_ARRAY_TYPE,
    REFUSED,
    STANDING,
    TABLES,
    Difference,
    allowed,
)
from recordings.forms import Form
from recordings.records import DumpedTable, RecordedRecord, Variant, dump, recording, topic_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Expectation:
    """The rows that one table must contain, by ``row_key``; ``sources`` are the dump's rows for them."""

    table: DumpedTable
    of: Variant
    typed: bool
    forms: Mapping[str, Form]
    rows: Mapping[str, Row]
    sources: Mapping[str, Mapping[str, str | None]]


def compared_tables(of: Variant) -> Sequence[DumpedTable]:
    """The tables of the dump that are compared cell by cell."""
    return [table for name, table in dump(of.dump_file).items() if name not in TABLES]


def records_of(table: DumpedTable, of: Variant) -> Sequence[RecordedRecord]:
    """The records of one table's topic."""
    return recording(of.name)[topic_of(table, of)]


def row_key(row: Row, fields: Sequence[str]) -> str:
    """The text by which rows of the dump and of a table are matched."""
    return json.dumps([row[name] for name in fields], default=repr, sort_keys=True)


def expectation(table: DumpedTable, of: Variant, fields: Sequence[str], *, typed: bool) -> Expectation:
    """The rows that ``table`` must contain, identified by the record key's ``fields``.

    ``typed`` is False if neither the records nor a database contain the columns' types.
    """
    forms = columns(table, of)
    for name in _without_type(table, of, typed):
        del forms[name]
    names = {field_name(column, of): column for column in table.types}
    rows: dict[str, Row] = {}
    sources = {}
    refused = REFUSED.get((of.name, table.name), ())
    for source in table.rows:
        if _identity(source) in refused:
            continue
        row = {name: expected(source[names[name]], column, typed=typed) for name, column in forms.items()}
        rows[row_key(row, fields)] = row
        sources[row_key(row, fields)] = source
    assert len(rows) == len(table.rows) - len(refused), f"{table.name}: two rows of the dump share a key"
    return Expectation(table, of, typed, forms, rows, sources)


def _without_type(table: DumpedTable, of: Variant, typed: bool) -> Sequence[str]:
    if typed:
        return NO_ARRAY_TYPE.get(table.name, ()) if of.bare else ()
    return NEVER_TYPED.get(table.name, ())


def rows_of(content: pa.Table, fields: Sequence[str]) -> Mapping[str, Row]:
    """The rows of a lake table by ``row_key``. Fails when two rows share a key."""
    names = [name for name in content.column_names if not name.startswith("__headrace_")]
    cells = [comparable(content.column(name)) for name in names]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]
    found = {row_key(row, fields): row for row in rows}
    assert len(found) == len(rows), f"{len(rows) - len(found)} duplicate rows"
    return found


def problems(
    want: Expectation,
    have: Mapping[str, Row],
    *,
    reselected: bool,
    any_order: bool = False,
    untold: Callable[[str, Any], bool] = lambda column, value: False,
) -> list[str]:
    """All cells that are neither equal nor a named difference; empty when the table is right.

    ``any_order``: the rows were not read in the order in which they were recorded. ``untold(column, value)`` is True
    for a cell that is not compared.
    """
    standing = {row_key(row, list(row)) for row in STANDING.get(want.table.name, ())}
    found = [f"row {key} is missing" for key in (want.rows.keys() | standing) - have.keys()]
    found += [f"row {key} should not be there" for key in have.keys() - want.rows.keys() - standing]
    dropped = DROPPED_COLUMNS.get(want.table.name, frozenset())
    named = allowed(want.of, reselected=reselected, typed=want.typed, any_order=any_order)
    forms = want.forms
    for key in want.rows.keys() & have.keys():
        for name in (forms.keys() | have[key].keys()) - dropped:
            if name not in forms or name not in have[key]:
                found.append(f"row {key}: column {name} is {'not expected' if name not in forms else 'missing'}")
                continue
            value = have[key][name] if want.typed else without_nulls(have[key][name])
            value = plain(forms[name].seen(value))
            if not untold(name, value):
                found += _cell(want, key, name, value, named.get(_place(want, key, name)))
    return sorted(found)


def _place(want: Expectation, key: str, name: str) -> tuple[str, str, int]:
    return want.table.name, name, _identity(want.sources[key])


def _identity(source: Mapping[str, str | None]) -> int:
    """The number by which a difference names a row; 0 for rows without one."""
    identity = source.get("id") or ""
    return int(identity) if identity.lstrip("-").isdigit() else 0


def _cell(want: Expectation, key: str, name: str, value: Any, difference: Difference | None) -> list[str]:
    truth, cell = want.rows[key][name], f"row {key}, {name}"
    equal = value == truth and type(value) is type(truth)
    if difference is None:
        return [] if equal else [f"{cell}: {value!r:.120} instead of {truth!r:.120}"]
    if equal and difference.always:
        return [f"{cell}: equals the dump, but is named as different ({difference.reason})"]
    return [] if equal or difference.holds(value) else [f"{cell}: {value!r:.120}, but {difference.reason}"]
