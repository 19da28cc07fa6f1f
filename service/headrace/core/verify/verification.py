"""Compare rows of a source table with rows of its lake table, while both change.

Rows are compared as the lake stores them: the source's Connect values are converted as events are, to the types of the
lake's columns. Two rows are equal if their digests are equal (``core/verify/digest.py``).

A row that differs is not necessarily wrong: the lake is behind the source, and rows change while they are read.
``judge`` distinguishes real differences from temporary ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import pyarrow as pa

from headrace.core.model.arrow_columns import arrow_type, build_array
from headrace.core.model.errors import BadRecord, Fatal
from headrace.core.model.events import OWN_PREFIX
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import UNREADABLE
from headrace.core.verify.digest import Digests, cell_digests, row_digests

POSITION, TOPIC, PARTITION, OFFSET, SOURCE_TIME = (
    OWN_PREFIX + name for name in ("position", "topic", "partition", "offset", "source_time")
)
VERSION = (POSITION, TOPIC, PARTITION, OFFSET, SOURCE_TIME)
UNAVAILABLE = OWN_PREFIX + "unavailable"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The compared columns of a table: ``fields`` of the source and their types in the lake, including the row key.

    ``missing`` are fields without a column in the lake: their cells count as null there. ``kept`` are columns that only
    the lake has; they are not compared. ``fields`` have the names of the lake, ``sources`` those of the source.
    ``changed`` are columns of the lake whose cells the connector's transforms make; they are not compared either.
    """

    fields: tuple[Field, ...]
    types: tuple[pa.DataType, ...]
    key_fields: tuple[str, ...]
    missing: frozenset[str] = frozenset()
    kept: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    @property
    def source_fields(self) -> tuple[Field, ...]:
        """The columns to read from the source. Two columns of the lake may be copies of one."""
        schemas = {name: member.schema for name, member in zip(self.sources, self.fields, strict=True)}
        return tuple(Field(name, schema) for name, schema in schemas.items())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(member.name for member in self.fields)

    @property
    def lake_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.names if name not in self.missing)


def comparison(
    schema: Schema,
    stored: pa.Schema | None,
    key_fields: Sequence[str],
    sources: Mapping[str, str] | None = None,
    changed: Sequence[str] = (),
) -> Comparison:
    """Return the comparable columns of a table whose events have ``schema`` and whose lake columns are ``stored``.

    Raises Fatal where the table has no key. ``sources`` are the source columns by column of the events, if transforms
    have renamed them. ``changed`` are columns that transforms have changed.
    """
    names = [member.name for member in schema.fields]
    absent = [name for name in key_fields if name not in names]
    if absent or not key_fields:
        raise Fatal(
            f"rows cannot be matched: the source does not have the key columns ({', '.join(absent) or 'none'}); set "
            "primary.key.fields to the columns that identify a row"
        )
    lake = {} if stored is None else {column.name: column.type for column in stored}
    return Comparison(
        fields=tuple(schema.fields),
        types=tuple(lake.get(member.name, arrow_type(member.schema)) for member in schema.fields),
        key_fields=tuple(key_fields),
        missing=frozenset(name for name in names if name not in lake),
        kept=tuple(name for name in lake if name not in names and name not in changed),
        sources=tuple(names if sources is None else (sources[name] for name in names)),
        changed=tuple(name for name in changed if stored is None or name in lake),
    )


# -- rows of one side -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one side: the compared columns in lake types, and for the lake the columns of the stored version.

    ``key`` and ``cells`` are the digests of each row's key and of its compared cells. ``unavailable`` are, for a
    history, the columns that the last event of each row omits.
    """

    columns: Mapping[str, pa.Array]
    key: Digests
    cells: Digests
    version: Mapping[str, pa.Array] = field(default_factory=dict)
    unavailable: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.key)

    def keys(self, key_fields: Sequence[str]) -> pa.Table:
        return pa.table({name: self.columns[name] for name in key_fields})


def source_rows(wanted: Comparison, values: Sequence[Sequence[object]]) -> Rows:
    """Convert Connect values, by column of ``wanted.source_fields``, to the form in which the lake stores them.

    Raises Fatal, naming the column, where a value of the source does not fit the lake's type.
    """
    columns = {}
    by_source = dict(zip((member.name for member in wanted.source_fields), values, strict=True))
    for member, lake_type, source in zip(wanted.fields, wanted.types, wanted.sources, strict=True):
        array = source_array(member.schema, by_source[source])
        try:
            columns[member.name] = array if array.type == lake_type else array.cast(lake_type)
        except pa.ArrowException as error:
            raise Fatal(
                f"column {member.name!r}: type {array.type} of the source cannot be converted to {lake_type} of the "
                "lake; recreate the lake's column"
            ) from error
    return _rows(wanted, columns)


def lake_rows(wanted: Comparison, table: pa.Table) -> Rows:
    """Return rows that were read from the lake; a column that the lake does not have is null."""
    columns = {}
    for name, kind in zip(wanted.names, wanted.types, strict=True):
        values = table[name].combine_chunks() if name in table.column_names else pa.nulls(len(table), kind)
        columns[name] = values if values.type == kind else values.cast(kind)
    version = {name: table[name].combine_chunks() for name in VERSION if name in table.column_names}
    unavailable = table[UNAVAILABLE].combine_chunks() if UNAVAILABLE in table.column_names else None
    return replace(_rows(wanted, columns), version=version, unavailable=unavailable)


def source_array(schema: Schema, values: Sequence[object]) -> pa.Array:
    """Return values of the source as the column of an event; a value that no event can contain is null."""
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


# -- a row on both sides ----------------------------------------------------------------------------------------------


class Where(StrEnum):
    """The side that has a row that differs."""

    BOTH = "both"
    SOURCE = "source"
    LAKE = "lake"
    TWICE = "twice in the lake"


@dataclass(frozen=True, slots=True)
class Sighting:
    """A row that differs, as both sides have it at one time.

    ``source`` and ``lake`` are digests of its states (None where the row does not exist); that of the lake includes the
    stored version. ``columns`` are those that differ, ``position`` is the stored one.
    """

    where: Where
    source: int | None
    lake: int | None
    columns: tuple[str, ...] = ()
    position: bytes = b""


def sightings(wanted: Comparison, source: Rows, lake: Rows) -> dict[int, Sighting]:
    """Return the rows that differ, by the digest of their key."""
    in_source, in_lake = _index_by_key(source), _index_by_key(lake)
    keys, counts = np.unique(lake.key, return_counts=True)
    twice = frozenset(keys[counts > 1].tolist())
    states: list[int] = lake.cells.tolist()
    if lake.version and len(lake):  # a row whose version has changed is in another state, also with equal cells
        states = (row_digests(list(lake.version.values())) * np.uint64(3) + lake.cells).tolist()
    differing = {
        key: Sighting(Where.SOURCE, int(source.cells[index]), None)
        for key, index in in_source.items()
        if key not in in_lake
    }
    for key, index in in_lake.items():
        at_source = in_source.get(key)
        source_state = None if at_source is None else int(source.cells[at_source])
        if key in twice:
            differing[key] = Sighting(Where.TWICE, source_state, states[index])
        elif at_source is None:
            differing[key] = Sighting(Where.LAKE, None, states[index], position=_position(lake, index))
        elif source.cells[at_source] != lake.cells[index]:
            unavailable = () if lake.unavailable is None else lake.unavailable[index].as_py() or ()
            columns = tuple(
                name
                for name in wanted.names
                if _differ(
                    source.columns[name][at_source : at_source + 1],
                    lake.columns[name][index : index + 1],
                    is_available=name not in unavailable,
                )
            )
            if columns:
                differing[key] = Sighting(Where.BOTH, source_state, states[index], columns, _position(lake, index))
    return differing


def _differ(source: pa.Array, lake: pa.Array, *, is_available: bool) -> bool:
    """Return whether two cells differ, for certain if the last event of a history omits the cell.

    The lake then has the last known value, or null if there is none. A null of the source may be what the event omits.
    """
    if not is_available and (source.null_count or lake.null_count):
        return False
    return bool(cell_digests(source) != cell_digests(lake))


def _index_by_key(rows: Rows) -> dict[int, int]:
    return {key: index for index, key in enumerate(rows.key.tolist())}


def _position(lake: Rows, index: int) -> bytes:
    text = lake.version[POSITION][index].as_py() if POSITION in lake.version else None
    return (text or "").encode()


# -- temporary or real ------------------------------------------------------------------------------------------------


class Verdict(StrEnum):
    """The result of comparing a row that differs."""

    OPEN = "compare again"
    DIFFERENT = "different"
    EXPLAINED = "changed since by a change of a higher position"
    UNPROVEN = "different, but the lake did not pass the source's position"
    UNSETTLED = "changed at every comparison"


def judge(before: Sighting | None, now: Sighting, passed: bool, again: int | None) -> Verdict:
    """Return whether a row that differs ``now`` differs permanently.

    ``before`` is the row at the last comparison, None if it was equal or not compared. ``passed`` is whether the lake,
    between the reads of source and lake for ``now``, contained everything that the source's read returned. ``again`` is
    the state of the source after that read of the lake.

    For a row that the lake has, its last change was in the lake before the source was read. So the source's read
    includes that change, and no later one, and both must be equal. A row that the lake does not have may have been
    deleted after the source was read: then the source does not have it any more.
    """
    if not passed or before is None or before.lake != now.lake:
        return Verdict.OPEN
    if now.lake is None and again != now.source:
        return Verdict.OPEN
    return Verdict.DIFFERENT


def judge_at_the_end(before: Sighting | None, now: Sighting, end: bytes) -> Verdict:
    """Return the verdict on an open row at the deadline; ``end`` is where the source was read, b"" if unknown."""
    if end and now.position > end:
        return Verdict.EXPLAINED
    if before is not None and (before.lake, before.source) == (now.lake, now.source):
        return Verdict.UNPROVEN
    return Verdict.UNSETTLED
