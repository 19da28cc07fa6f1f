"""Columns that the events of a row lack: added ones with a default, and generated ones.

``ALTER TABLE … ADD COLUMN … DEFAULT`` gives the default to every existing row, without an event (``merge.md`` section
13). So each row that is older than the statement and has a null in the column gets the default: rows of the lake table
by an update, and late rows in the batch that contains them. The ledger stores the default as long as the tombstones.

PostgreSQL computes a column ``GENERATED ALWAYS AS`` when a row is written. Snapshot reads contain it, streamed events
do not (``reselect.md`` section 2.6), so the stored value may be stale after any update. The database's catalog names
these columns. Without a database, a column that reads of the table contained and no streamed event did counts as one:
the ledger stores both, because the reads come long before the updates.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.arrow_columns import DECIMAL, arrow_type
from headrace.core.model.events import NO_POSITION, Barrier, CellState, Changes, Column, Operation, RowVersion
from headrace.core.model.inferred_types import INFERRED
from headrace.core.model.keys import DEFAULT_PREFIX, ORIGINS_PREFIX
from headrace.core.model.notes import Note
from headrace.core.model.schema import Field, Schema

NUMBER, TEXT = "number", "text"


@dataclass(frozen=True, slots=True)
class ColumnDefault:
    """The default of a column, as the text of its literal; ``kind`` is NUMBER or TEXT."""

    column: str
    kind: str
    literal: str

    def value(self, arrow_type: pa.DataType) -> pa.Scalar | None:
        """Convert the default to a lake column's type; None if that is not exact."""
        try:
            if pa.types.is_string(arrow_type):
                return pa.scalar(self.literal, arrow_type)
            if self.kind == TEXT:
                return None
            if pa.types.is_boolean(arrow_type):
                return pa.scalar({"0": False, "1": True}[self.literal], arrow_type)
            if pa.types.is_integer(arrow_type):
                return pa.scalar(int(self.literal), arrow_type)
            if pa.types.is_decimal(arrow_type):
                return pa.scalar(Decimal(self.literal), arrow_type)
            return pa.scalar(float(self.literal), arrow_type) if pa.types.is_floating(arrow_type) else None
        except (pa.ArrowInvalid, ValueError, KeyError, OverflowError):
            return None

    @property
    def ledger_key(self) -> str:
        return DEFAULT_PREFIX + json.dumps([self.column, self.kind, self.literal], ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ColumnDefaults(Barrier):
    """Columns with defaults that were added to a table at ``version``."""

    defaults: tuple[ColumnDefault, ...] = ()


Defaults = Mapping[ColumnDefault, RowVersion]


def recorded_defaults(ledger: Mapping[str, RowVersion]) -> dict[ColumnDefault, RowVersion]:
    """Return the defaults in a ledger; for a column that was added more than once, the newest."""
    newest: dict[str, tuple[ColumnDefault, RowVersion]] = {}
    for key, version in ledger.items():
        if key.startswith(DEFAULT_PREFIX):
            default = ColumnDefault(*json.loads(key.removeprefix(DEFAULT_PREFIX)))
            other = newest.get(default.column)
            if other is None or version.position > other[1].position:
                newest[default.column] = default, version
    return dict(newest.values())


def with_defaults(changes: Changes, defaults: Defaults, stored: pa.Schema | None) -> Changes:
    """Fill in the defaults of columns that were added after a row's change. ``stored`` has the lake's columns."""
    stored_types = {} if stored is None else {column.name: column.type for column in stored}
    columns = {column.name: column for column in changes.columns}
    for default, version in defaults.items():
        column = columns.get(default.column)
        if column is None and (stored_type := stored_types.get(default.column)) is not None:
            # The events were sent before the column was added, but the table has it.
            is_decimal = pa.types.is_decimal(stored_type)
            type_name, logical_name = ("bytes", DECIMAL) if is_decimal else (str(stored_type), None)
            schema = Schema(type_name, optional=True, name=logical_name)
            absent = np.full(len(changes), CellState.ABSENT, np.uint8)
            column = Column(default.column, schema, pa.nulls(len(changes), stored_type), absent)
        if column is not None and column.states is not None:
            rows = _below(changes, version) & (column.states == CellState.ABSENT)
            value = default.value(column.values.type)
            if rows.any() and value is not None:
                states = np.where(rows, CellState.VALUE, column.states).astype(np.uint8)
                values = pc.if_else(pa.array(rows), value, column.values)
                columns[default.column] = replace(column, values=values, states=states)
    return replace(changes, columns=tuple(columns.values()))


def _below(changes: Changes, version: RowVersion) -> npt.NDArray[np.bool_]:
    """Return which changes are upserts older than ``version``: by position, or by time without a position."""
    versions, operation = changes.version, changes.operation
    older: npt.NDArray[np.bool_] = np.where(
        versions.position == NO_POSITION,
        versions.source_time < version.source_time,
        versions.position < version.position,
    )
    older &= (operation != Operation.DELETE) & (operation != Operation.TOMBSTONE)
    return older


# -- generated columns -------------------------------------------------------------------------------------------------

_READ, _STREAMED = "read", "streamed"
_STREAMED_OPERATIONS = (Operation.CREATE, Operation.UPDATE)

UNREAD = Note(
    "snapshot reads contain the column and streamed events do not: PostgreSQL generates it, or it was dropped or "
    "excluded before a change of the table was streamed. A change of a row sets it to NULL, because the stored value "
    "may be stale; configure reselect.database.* to read generated columns with the row"
)
OTHER_TYPE = Note(
    "the column is generated, and its type in the database is not that of the lake's column, so a change of a row sets "
    "it to NULL; set the handling modes (decimal.handling.mode, time.precision.mode…) to those of the source connector"
)


@dataclass(frozen=True, slots=True)
class ColumnOrigins:
    """The columns that snapshot reads of a table contained, and those that its streamed events contained."""

    read: frozenset[str] = frozenset()
    streamed: frozenset[str] = frozenset()

    @property
    def only_read(self) -> frozenset[str]:
        return self.read - self.streamed

    def __or__(self, other: ColumnOrigins) -> ColumnOrigins:
        return ColumnOrigins(self.read | other.read, self.streamed | other.streamed)

    def without_recorded(self, new: ColumnOrigins) -> ColumnOrigins:
        """Return what ``new`` adds. Streamed columns matter only if they were read: others are not generated."""
        read = self.read | new.read
        return ColumnOrigins(new.read - self.read, (new.streamed & read) - self.streamed)

    def ledger_keys(self) -> list[str]:
        """Return the keys of ledger entries that record these columns."""
        parts = ((_READ, self.read), (_STREAMED, self.streamed))
        return [
            ORIGINS_PREFIX + json.dumps([kind, sorted(names)], ensure_ascii=False) for kind, names in parts if names
        ]


def recorded_origins(ledger: Mapping[str, RowVersion]) -> ColumnOrigins:
    """Return the origins of columns that a ledger contains."""
    names: dict[str, set[str]] = {_READ: set(), _STREAMED: set()}
    for key in ledger:
        if key.startswith(ORIGINS_PREFIX):
            origin, columns = json.loads(key.removeprefix(ORIGINS_PREFIX))
            names.setdefault(origin, set()).update(columns)
    return ColumnOrigins(frozenset(names[_READ]), frozenset(names[_STREAMED]))


def origins_of(changes: Changes) -> ColumnOrigins:
    """Return the origins of the columns in a batch, without key columns, which every event contains."""
    reads = changes.operation == Operation.READ
    streamed = np.isin(changes.operation, _STREAMED_OPERATIONS)
    names_read, names_streamed = set(), set()
    for column in changes.columns:
        if column.name not in changes.key_fields:
            present = np.ones(len(changes), np.bool_) if column.states is None else column.states != CellState.ABSENT
            if (reads & present).any():
                names_read.add(column.name)
            if (streamed & present).any():
                names_streamed.add(column.name)
    return ColumnOrigins(frozenset(names_read), frozenset(names_streamed))


def untyped_fields(names: Iterable[str]) -> list[Field]:
    """Return fields without a type, for cells that are all NULL."""
    return [Field(name, Schema("null", optional=True, parameters=INFERRED)) for name in sorted(names)]


def fits(generated: Field, stored: pa.Schema | None) -> bool:
    """Return whether values of a generated column have the type of the lake's column, if there is one."""
    if stored is None or generated.name not in stored.names:
        return True
    return bool(_in_lake(arrow_type(generated.schema)) == _in_lake(stored.field(generated.name).type))


def _in_lake(data_type: pa.DataType) -> pa.DataType:
    """Return a type without the differences that lake tables do not have: small integers, large texts."""
    if pa.types.is_int8(data_type) or pa.types.is_int16(data_type):
        return pa.int32()
    if pa.types.is_list(data_type):
        return pa.list_(_in_lake(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([(member.name, _in_lake(member.type)) for member in data_type])
    return data_type


def with_generated_cells(changes: Changes, generated: Collection[Field]) -> Changes:
    """Return the changes with NULL in the generated columns of streamed events that lack them.

    Such a NULL ends the stored value. Where the database is configured, the rule of a generated column has it read
    again (``core/reselect/rules.py``).
    """
    streamed = np.isin(changes.operation, _STREAMED_OPERATIONS)
    columns = {column.name: column for column in changes.columns}
    for member in generated:
        column = columns.get(member.name)
        if column is None:
            values = pa.nulls(len(changes), arrow_type(member.schema))
            states = np.where(streamed, CellState.NULL, CellState.ABSENT).astype(np.uint8)
            columns[member.name] = Column(member.name, member.schema, values, states)
        elif column.states is not None:
            lacking = streamed & (column.states == CellState.ABSENT)
            states = np.where(lacking, CellState.NULL, column.states).astype(np.uint8)
            columns[member.name] = replace(column, states=states)
    return replace(changes, columns=tuple(columns.values()))
