"""Comparing rows of a source table with rows of its lake table, while both change. Pure.

Rows are compared as the lake holds them: the source's Connect values become columns as events do, in the types of the
lake's columns. Equality is that of digests (``core/verify/digest.py``).

A row that differs need not be wrong: the lake is behind the source, and rows change while they are read. ``judge``
tells a real difference from a passing one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.model.arrays import arrow_type, build_array
from headrace.core.model.errors import BadRecord, Fatal
from headrace.core.model.events import OWN_PREFIX
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import UNREADABLE
from headrace.core.verify.digest import Digests, cell_digests, row_digests

POSITION, TOPIC, PARTITION, OFFSET, SOURCE_TIME = (
    OWN_PREFIX + name for name in ("position", "topic", "partition", "offset", "source_time")
)
VERSION = (POSITION, TOPIC, PARTITION, OFFSET, SOURCE_TIME)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What of a table is compared: ``fields`` of the source and their types in the lake, the row key among them.

    ``missing`` are fields that the lake has no column for: their cells count as null there. ``kept`` are columns that
    only the lake has, of which nothing can be said.
    """

    fields: tuple[Field, ...]
    types: tuple[pa.DataType, ...]
    key_fields: tuple[str, ...]
    missing: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The compared columns."""
        return tuple(member.name for member in self.fields)

    @property
    def lake_names(self) -> tuple[str, ...]:
        """Those of them that the lake has."""
        return tuple(name for name in self.names if name not in self.missing)


def comparison(schema: Schema, stored: pa.Schema | None, key_fields: Sequence[str]) -> Comparison:
    """What can be compared of a table whose events have ``schema`` and whose lake columns are ``stored``.

    Raises Fatal where the table has no key to compare by.
    """
    names = [member.name for member in schema.fields]
    absent = [name for name in key_fields if name not in names]
    if absent or not key_fields:
        raise Fatal(
            f"rows cannot be told apart, key column(s): {', '.join(absent) or 'none'}; set primary.key.fields to those "
            "that identify a row"
        )
    lake = {} if stored is None else {column.name: column.type for column in stored}
    return Comparison(
        fields=tuple(schema.fields),
        types=tuple(lake.get(member.name, arrow_type(member.schema)) for member in schema.fields),
        key_fields=tuple(key_fields),
        missing=frozenset(name for name in names if name not in lake),
        kept=tuple(name for name in lake if name not in names),
    )


# -- rows of one side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one side: the compared columns in lake types, and (of the lake) those of the stored version.

    ``key`` and ``cells`` are the digests of each row's key and of its compared cells.
    """

    columns: Mapping[str, pa.Array]
    key: Digests
    cells: Digests
    version: Mapping[str, pa.Array] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.key)

    def keys(self, key_fields: Sequence[str]) -> pa.Table:
        """The key columns."""
        return pa.table({name: self.columns[name] for name in key_fields})


def source_rows(wanted: Comparison, values: Sequence[Sequence[Any]]) -> Rows:
    """Connect values by column of ``wanted`` as the lake would hold them.

    Raises Fatal, naming the column, where the lake's type cannot hold what the source has.
    """
    columns = {
        member.name: _in_lake_type(member, source_array(member.schema, cells), kind)
        for member, kind, cells in zip(wanted.fields, wanted.types, values, strict=True)
    }
    return _rows(wanted, columns)


def lake_rows(wanted: Comparison, table: pa.Table) -> Rows:
    """Rows as the lake gave them; a column that it does not have, or did not have yet, is null."""
    columns = {
        name: _array(table, name, kind) if name in table.column_names else pa.nulls(len(table), kind)
        for name, kind in zip(wanted.names, wanted.types, strict=True)
    }
    version = {name: table[name].combine_chunks() for name in VERSION if name in table.column_names}
    return replace(_rows(wanted, columns), version=version)


def source_array(schema: Schema, values: Sequence[Any]) -> pa.Array:
    """The column of an event; what the source has but no event could carry is null."""
    cells = [None if value is UNREADABLE else value for value in values]
    for _ in range(len(cells)):
        try:
            return build_array(schema, cells)
        except BadRecord as error:
            cells[error.culprit] = None
    return pa.nulls(len(cells), arrow_type(schema))


def _rows(wanted: Comparison, columns: Mapping[str, pa.Array]) -> Rows:
    key = row_digests([columns[name] for name in wanted.key_fields])
    return Rows(columns, key, row_digests([columns[name] for name in wanted.names]))


def _in_lake_type(member: Field, values: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return values if values.type == kind else values.cast(kind)
    except pa.ArrowException as error:
        raise Fatal(
            f"column {member.name!r} is {values.type} at the source and {kind} in the lake, and the one does not fit "
            "the other; the lake's column has to be made anew"
        ) from error


def _array(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    array = table[name].combine_chunks()
    return array if array.type == kind else array.cast(kind)


# -- a row on both sides ----------------------------------------------------------------------------------------------


class Where(StrEnum):
    """On which side a row that differs stands."""

    BOTH = "both"
    SOURCE = "source"
    LAKE = "lake"
    TWICE = "twice in the lake"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row that differs, as both sides have it at one time.

    ``source`` and ``lake`` tell its states apart (None where it does not stand); that of the lake includes the stored
    version. ``columns`` are those that differ, ``position`` is the stored one.
    """

    where: Where
    source: int | None
    lake: int | None
    columns: tuple[str, ...] = ()
    position: bytes = b""


def sightings(wanted: Comparison, source: Rows, lake: Rows) -> dict[int, Sighting]:
    """The rows that differ, by the digest of their key."""
    in_source, in_lake = _places(source), _places(lake)
    twice = _twice(lake)
    states = _lake_states(lake)
    found = {
        key: Sighting(Where.SOURCE, int(source.cells[place]), None)
        for key, place in in_source.items()
        if key not in in_lake
    }
    for key, place in in_lake.items():
        own = in_source.get(key)
        told = None if own is None else int(source.cells[own])
        if key in twice:
            found[key] = Sighting(Where.TWICE, told, states[place])
        elif own is None:
            found[key] = Sighting(Where.LAKE, None, states[place], position=_position(lake, place))
        elif source.cells[own] != lake.cells[place]:
            columns = _differing_columns(wanted, source, own, lake, place)
            found[key] = Sighting(Where.BOTH, told, states[place], columns, _position(lake, place))
    return found


def _places(rows: Rows) -> dict[int, int]:
    return {key: place for place, key in enumerate(rows.key.tolist())}


def _twice(rows: Rows) -> frozenset[int]:
    keys, counts = np.unique(rows.key, return_counts=True)
    return frozenset(keys[counts > 1].tolist())


def _lake_states(lake: Rows) -> list[int]:
    if not lake.version or len(lake) == 0:
        return lake.cells.tolist()  # type: ignore[no-any-return] # numpy's tolist is Any
    versions = row_digests(list(lake.version.values()))
    return (versions * np.uint64(3) + lake.cells).tolist()  # type: ignore[no-any-return] # as above


def _position(lake: Rows, place: int) -> bytes:
    text = lake.version[POSITION][place].as_py() if POSITION in lake.version else None
    return (text or "").encode()


def _differing_columns(wanted: Comparison, source: Rows, own: int, lake: Rows, place: int) -> tuple[str, ...]:
    return tuple(
        name
        for name in wanted.names
        if cell_digests(source.columns[name][own : own + 1]) != cell_digests(lake.columns[name][place : place + 1])
    )


# -- passing or real --------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """What is to be thought of a row that differs."""

    OPEN = "compare again"
    DIFFERENT = "different"
    EXPLAINED = "changed since by a change of a higher position"
    UNPROVEN = "different, but the lake was not seen to pass the source's position"
    UNSETTLED = "changed whenever it was looked at"


def judge(before: Sighting | None, now: Sighting, passed: bool, again: int | None) -> Verdict:
    """Whether a row that differs ``now`` differs for good.

    ``before`` is how it was seen the last time, None if it was equal or not looked at. ``passed``: between the reads of
    source and lake for ``now`` the lake was seen to reflect everything that the source's read saw. ``again`` is the
    state that the source had after that read of the lake.

    A row that stands in the lake: its last change was there before the source was read, so the source's read saw that
    change; nothing of what it saw came after it, so it must equal that change. A row that is missing in the lake might
    have been deleted since the source was read: then the source does not have it any more.
    """
    if not passed or before is None or before.lake != now.lake:
        return Verdict.OPEN
    if now.lake is None and again != now.source:
        return Verdict.OPEN
    return Verdict.DIFFERENT


def judge_at_the_end(before: Sighting | None, now: Sighting, end: bytes) -> Verdict:
    """What to say of an open row when time is up; ``end`` is where the source was read, b"" if that is unknown."""
    if end and now.position > end:
        return Verdict.EXPLAINED
    if before is not None and (before.lake, before.source) == (now.lake, now.source):
        return Verdict.UNPROVEN
    return Verdict.UNSETTLED
