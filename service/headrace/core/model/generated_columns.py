"""Generated columns, which snapshot reads contain and streamed events do not (``reselect.md`` section 2.6).

PostgreSQL computes a column ``GENERATED ALWAYS AS`` when a row is written, and does not publish it. So a streamed event
says nothing about it, and the stored value may be stale after any update. The database's catalog names these columns.
Without a database, a column that reads of the table contained and no streamed event did counts as one: the ledger
remembers both, because the reads come long before the updates.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.core.model.arrow_columns import arrow_type
from headrace.core.model.events import CellState, Changes, Column, Operation, RowVersion
from headrace.core.model.inference import INFERRED
from headrace.core.model.keys import ORIGINS_PREFIX
from headrace.core.model.notes import Note
from headrace.core.model.schema import Field, Schema

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
        """The columns that no streamed event contained."""
        return self.read - self.streamed

    def __or__(self, other: ColumnOrigins) -> ColumnOrigins:
        return ColumnOrigins(self.read | other.read, self.streamed | other.streamed)

    def unrecorded(self, found: ColumnOrigins) -> ColumnOrigins:
        """Return what ``found`` adds. Streamed columns matter only if they were read: others are not generated."""
        read = self.read | found.read
        return ColumnOrigins(found.read - self.read, (found.streamed & read) - self.streamed)

    def ledger_keys(self) -> list[str]:
        """Return the keys of ledger entries that record these columns."""
        parts = ((_READ, self.read), (_STREAMED, self.streamed))
        return [
            ORIGINS_PREFIX + json.dumps([kind, sorted(names)], ensure_ascii=False) for kind, names in parts if names
        ]


def recorded_origins(ledger: Mapping[str, RowVersion]) -> ColumnOrigins:
    """Return the origins of columns that a ledger contains."""
    found: dict[str, set[str]] = {_READ: set(), _STREAMED: set()}
    for key in ledger:
        if key.startswith(ORIGINS_PREFIX):
            kind, names = json.loads(key.removeprefix(ORIGINS_PREFIX))
            found.setdefault(kind, set()).update(names)
    return ColumnOrigins(frozenset(found[_READ]), frozenset(found[_STREAMED]))


def origins_of(changes: Changes) -> ColumnOrigins:
    """Return the origins of the columns in a batch, without key columns, which every event contains."""
    reads = changes.operation == Operation.READ
    streamed = np.isin(changes.operation, _STREAMED_OPERATIONS)
    found: dict[str, set[str]] = {_READ: set(), _STREAMED: set()}
    for column in changes.columns:
        if column.name not in changes.key_fields:
            present = np.ones(len(changes), np.bool_) if column.states is None else column.states != CellState.ABSENT
            found[_READ] |= {column.name} if (reads & present).any() else set()
            found[_STREAMED] |= {column.name} if (streamed & present).any() else set()
    return ColumnOrigins(frozenset(found[_READ]), frozenset(found[_STREAMED]))


def untyped(names: Iterable[str]) -> list[Field]:
    """Return fields whose type is not known: cells of the table's column, all NULL."""
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
    for each in generated:
        column = columns.get(each.name)
        if column is None:
            values = pa.nulls(len(changes), arrow_type(each.schema))
            states = np.where(streamed, CellState.NULL, CellState.ABSENT).astype(np.uint8)
            columns[each.name] = Column(each.name, each.schema, values, states)
        elif column.states is not None:
            lacking = streamed & (column.states == CellState.ABSENT)
            states = np.where(lacking, CellState.NULL, column.states).astype(np.uint8)
            columns[each.name] = replace(column, states=states)
    return replace(changes, columns=tuple(columns.values()))
