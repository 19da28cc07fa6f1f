"""The SQL of a MERGE: the gates of ``Actions``, and which columns of the target a statement refers to. Pure.

A statement refers to a target's column only if some row of the batch keeps its cell: reading the columns of a wide
table costs three times as much (``spark.md`` section 3). One text serves all rows of the batch; boolean columns of the
staged rows contain, row by row, which cells are kept or carried.

Tests: ``tests/contracts/lake_rows_suite.py``, ``tests/contracts/lake_cells_suite.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headrace.core.model.events import OWN_PREFIX, RowVersion
from headrace_connectors.lakehouse.schema import DELETED, VERSION_COLUMNS, quoted, sql_type

POSITION, TOPIC, PARTITION, OFFSET, SOURCE_TIME = (quoted(name) for name in VERSION_COLUMNS.names)

_DELETED = quoted(DELETED)
_BELOW_EVERY_OFFSET = -9


def staged_name(name: str) -> str:
    """Return the name of a column that only the staged rows have."""
    return f"{OWN_PREFIX}{name}"


def _s(name: str) -> str:
    """Return a staged column under the alias ``s``."""
    return "s." + quoted(staged_name(name))


@dataclass(frozen=True, slots=True)
class MergeColumns:
    """The parameters of a statement's text; the staged rows contain the values.

    ``columns`` are the data columns of the batch, key columns included; ``absent`` are columns that only the table has.
    ``kept`` and ``carried`` are the indexes (in ``columns``) of the columns in which some row keeps or carries a cell.
    ``key_range`` is a condition on ``t`` that every key of the batch fulfils, or "". ``positioned`` is whether every
    row has a position, so that the stored one is never the higher. ``soft`` is whether deleted rows stay and are
    marked; a MERGE handles such a row as absent, so that no cell is kept or carried from it.
    """

    topic: str
    key_fields: tuple[str, ...]
    columns: tuple[str, ...]
    absent: tuple[str, ...] = ()
    kept: frozenset[int] = frozenset()
    carried: frozenset[int] = frozenset()
    key_range: str = ""
    positioned: bool = True
    by_arrival: bool = False
    deletes: bool = True
    upserts: bool = True
    soft: bool = False


def text_literal(text: str) -> str:
    """Return a Spark SQL string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def merge_sql(table: str, view: str, shape: MergeColumns) -> str:
    """Return the MERGE that applies the staged rows of ``view`` to ``table`` (both quoted)."""
    clauses = [f"MERGE INTO {table} AS t USING {_source(table, view, shape)} AS s ON {on_key(shape)}"]
    gate = _gate(shape)
    if shape.deletes:
        action = "DELETE"
        if shape.soft:
            marks = [*zip(VERSION_COLUMNS.names, _versions(shape, stored=True), strict=True), (DELETED, "true")]
            action = "UPDATE SET " + ", ".join(f"t.{quoted(name)} = {value}" for name, value in marks)
        clauses.append(f"WHEN MATCHED AND {_all(_s('delete'), _not_deleted(shape, 't'), gate)} THEN {action}")
    if shape.upserts:
        # An upsert that carries cells of an absent row does not apply.
        upsert = _all(
            f"NOT {_s('delete')}" if shape.deletes else "true",
            f"(NOT {_s('carries')} OR {_s('found')})" if shape.carried else "",
        )
        complete = f"NOT {_s('keeps')}" if shape.kept else ""  # a row that keeps cells cannot be inserted
        # Where deleted rows are marked, the gate of a marked row is open: it has no cells to keep.
        onto = f"IF(t.{_DELETED} <=> true, {_all('true', complete)}, {gate})" if shape.soft else gate
        clauses.append(f"WHEN MATCHED AND {_all(upsert, onto)} THEN UPDATE SET {_assignments(shape)}")

        names = (*shape.columns, *shape.absent, *_own_names(shape))
        values = [*(f"s.{quoted(name)}" for name in shape.columns), *["NULL"] * len(shape.absent), *_own_values(shape)]
        insert = f"({', '.join(map(quoted, names))}) VALUES ({', '.join(values)})"
        clauses.append(f"WHEN NOT MATCHED AND {_all(upsert, complete)} THEN INSERT {insert}")
    return "\n".join(clauses)


def append_sql(table: str, view: str, shape: MergeColumns) -> str:
    """Return the INSERT of a batch's upserts, in which no row keeps a cell, into a table without rows."""
    names = [*map(quoted, shape.columns), *map(quoted, _own_names(shape))]
    values = [*(f"s.{quoted(name)}" for name in shape.columns), *_own_values(shape)]
    condition = f" WHERE NOT {_s('delete')}" if shape.deletes else ""
    return f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(values)} FROM {view} AS s{condition}"


def stored_sql(table: str, view: str, shape: MergeColumns) -> str:
    """Return the SELECT of the versions of the stored rows with the staged keys, with the keys' canonical text."""
    versions = ", ".join(f"t.{column}" for column in (POSITION, TOPIC, PARTITION, OFFSET, SOURCE_TIME))
    return (
        f"SELECT /*+ BROADCAST(s) */ {_s('key')} AS key, {versions} "
        f"FROM {view} AS s JOIN {table} AS t ON {_all(on_key(shape), _not_deleted(shape, 't'))}"
    )


def truncate_sql(table: str, floor: RowVersion, *, soft: bool = False) -> str:
    """Return the DELETE (or UPDATE of the mark) of the rows that ``floor`` outranks (``merge.md`` section 2)."""
    if soft:
        return f"UPDATE {table} SET {_DELETED} = true WHERE NOT {_DELETED} <=> true AND ({_below(floor)})"
    return f"DELETE FROM {table} WHERE {_below(floor)}"


def fill_sql(table: str, column: pa.Field, value: pa.Scalar, before: RowVersion, *, soft: bool = False) -> str:
    """Return the UPDATE that writes ``value`` into rows from before a version where they have a null."""
    name, type_name = quoted(column.name), sql_type(column.type)
    conditions = [
        f"{name} IS NULL",
        f"CASE WHEN {POSITION} IS NOT NULL THEN {POSITION} < {text_literal(before.position.decode())} "
        f"ELSE {SOURCE_TIME} < timestamp_micros({before.source_time}L) END",
        f"NOT {_DELETED} <=> true" if soft else "",
    ]
    return (
        f"UPDATE {table} SET {name} = CAST({text_literal(str(value.as_py()))} AS {type_name}) WHERE {_all(*conditions)}"
    )


def live_sql(table: str) -> str:
    """Return a table expression with the rows of ``table`` (quoted) that are not marked as deleted."""
    return f"(SELECT * FROM {table} WHERE NOT {_DELETED} <=> true)"


def _below(floor: RowVersion) -> str:
    if floor.position:
        return f"{POSITION} IS NULL OR {POSITION} < {text_literal(floor.position.decode())}"
    return (
        f"{OFFSET} IS NULL OR "
        f"CASE WHEN {TOPIC} <=> {text_literal(floor.topic)} AND {PARTITION} <=> {floor.partition} "
        f"THEN {OFFSET} < {floor.offset}L ELSE {SOURCE_TIME} < timestamp_micros({floor.source_time}L) END"
    )


def on_key(shape: MergeColumns) -> str:
    """The condition that the key columns of ``t`` and ``s`` are equal, within the batch's range."""
    return _all(*(f"t.{quoted(name)} = s.{quoted(name)}" for name in shape.key_fields), shape.key_range)


def _all(*conditions: str) -> str:
    return " AND ".join(condition for condition in conditions if condition)


# -- which rows -------------------------------------------------------------------------------------------------------


def _gate(shape: MergeColumns) -> str:
    """The condition of ``Actions``: above the stored position, and later if arrival counts. Null versions are below."""
    higher = f"t.{POSITION} IS NULL OR {_s('first_position')} > t.{POSITION}"
    if not shape.positioned:
        higher = f"{_s('first_position')} IS NULL OR {higher}"
    if not shape.by_arrival:
        return f"({higher})"
    same_partition = f"t.{TOPIC} <=> {text_literal(shape.topic)} AND t.{PARTITION} <=> {_s('first_partition')}"
    return (
        f"({higher}) AND (NOT {_s('by_arrival')} OR t.{OFFSET} IS NULL OR CASE WHEN {same_partition} "
        f"THEN {_s('first_offset')} > t.{OFFSET} "
        f"ELSE t.{SOURCE_TIME} IS NULL OR {_s('first_source_time')} > t.{SOURCE_TIME} END)"
    )


def _not_deleted(shape: MergeColumns, alias: str) -> str:
    """The condition that a stored row is not marked as deleted; empty for a table that removes rows."""
    return f"NOT {alias}.{_DELETED} <=> true" if shape.soft else ""


# -- which cells ------------------------------------------------------------------------------------------------------


def _assignments(shape: MergeColumns) -> str:
    cells = []
    for number, column in enumerate(shape.columns):
        name = quoted(column)
        new_or_kept = f"IF({_s(f'keep_{number}')}, t.{name}, s.{name})" if number in shape.kept else f"s.{name}"
        cells.append((column, new_or_kept))
    # A new incarnation keeps no cell of the old row, also in columns that its event lacks.
    is_new = f"{_s('fresh')} OR t.{_DELETED} <=> true" if shape.soft else _s("fresh")
    cells += [(name, f"IF({is_new}, NULL, t.{quoted(name)})") for name in shape.absent]
    cells += zip(_own_names(shape), _own_values(shape, stored=True), strict=True)
    return ", ".join(f"t.{quoted(name)} = {value}" for name, value in cells)


def _own_names(shape: MergeColumns) -> list[str]:
    return [*VERSION_COLUMNS.names, *([DELETED] if shape.soft else [])]


def _own_values(shape: MergeColumns, stored: bool = False) -> list[str]:
    return [*_versions(shape, stored), *(["false"] if shape.soft else [])]


def _versions(shape: MergeColumns, stored: bool) -> list[str]:
    """The version columns of a written row. A stored position is never lowered; ``greatest`` skips nulls."""
    position = f"s.{POSITION}"
    if stored and not shape.positioned:
        before = f"IF(t.{_DELETED} <=> true, NULL, t.{POSITION})" if shape.soft else f"t.{POSITION}"
        position = f"greatest({position}, {before})"
    return [position, text_literal(shape.topic), *(f"s.{column}" for column in (PARTITION, OFFSET, SOURCE_TIME))]


# -- where the rows come from -----------------------------------------------------------------------------------------


def _source(table: str, view: str, shape: MergeColumns) -> str:
    """The staged rows, joined with the carried cells of other rows, as stored before this statement.

    The condition is true for every row. It makes Spark pass a Bloom filter of the keys to the target's scan, so that
    rows without a change are neither shuffled nor sorted: a fifth less CPU with 100,000 keys in 1,000,000 rows.
    """
    if not shape.carried:
        return f"(SELECT * FROM {view} AS s WHERE s.{OFFSET} > {_BELOW_EVERY_OFFSET})"
    carried = [shape.columns[number] for number in sorted(shape.carried)]
    replaced = [
        f"IF({_s(f'carry_{number}')}, o.{quoted(name)}, s.{quoted(name)}) AS {quoted(name)}"
        for number, name in enumerate(shape.columns)
        if number in shape.carried
    ]
    untouched = [name for number, name in enumerate(shape.columns) if number not in shape.carried]
    untouched += [name for name in staged_names(shape) if name != staged_name("row")]
    columns = ", ".join([*replaced, *(f"s.{quoted(name)}" for name in untouched)])

    # Another row supplies its cells only under the old key, and in the version that the fold has seen.
    fields = enumerate(shape.key_fields)
    old_keys = (f"o.{quoted(name)} = c.{quoted(staged_name(f'old_key_{index}'))}" for index, name in fields)
    expected = f"c.{quoted(staged_name('old_version'))}"
    stored = f"concat_ws('/', coalesce(o.{POSITION}, ''), coalesce(o.{PARTITION}, -1), coalesce(o.{OFFSET}, -1))"
    on_old_key = _all(*old_keys, f"({expected} IS NULL OR {expected} = {stored})", _not_deleted(shape, "o"))
    return (
        f"(SELECT {columns}, o.row IS NOT NULL AS {quoted(staged_name('found'))} FROM {view} AS s "
        f"LEFT JOIN (SELECT /*+ BROADCAST(c) */ c.{quoted(staged_name('row'))} AS row, "
        f"{', '.join(f'o.{quoted(name)}' for name in carried)} "
        f"FROM {view} AS c JOIN {table} AS o ON {on_old_key} WHERE c.{quoted(staged_name('carries'))}) AS o "
        f"ON o.row = {_s('row')})"
    )


def staged_names(shape: MergeColumns) -> list[str]:
    """The staged columns beside the data columns, in order: versions first, then the columns of the gates and masks."""
    names = ["delete", "first_position"]
    if shape.by_arrival:
        names += ["by_arrival", "first_partition", "first_offset", "first_source_time"]
    if shape.absent:
        names.append("fresh")
    if shape.kept:
        names += ["keeps", *(f"keep_{number}" for number in sorted(shape.kept))]
    if shape.carried:
        names += ["row", "carries", *(f"carry_{number}" for number in sorted(shape.carried))]
        names += [f"old_key_{index}" for index in range(len(shape.key_fields))]
        names.append("old_version")
    position, _, *others = VERSION_COLUMNS.names  # all rows have the topic of the batch
    return [position, *others, *map(staged_name, names)]
