"""Defaults of columns that were added to a table (``merge.md`` section 13).

``ALTER TABLE … ADD COLUMN … DEFAULT`` gives the default to every existing row, without an event. So each row that is
older than the statement and has a null in the column gets the default: rows of the lake table by an update, and late
rows in the batch that contains them. The ledger stores the default as long as the tombstones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.events import NO_POSITION, Barrier, CellState, Changes, Column, Operation, RowVersion
from headrace.core.model.schema import Schema

NUMBER, TEXT = "number", "text"
_PREFIX = "+"
"""The prefix of a default's key in the ledger; no row's canonical key begins with it (``core/model/keys.py``)."""


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
        """The key of the default in the ledger."""
        return _PREFIX + json.dumps([self.column, self.kind, self.literal], ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ColumnDefaults(Barrier):
    """Columns with defaults that were added to a table at ``version``."""

    defaults: tuple[ColumnDefault, ...] = ()


Defaults = Mapping[ColumnDefault, RowVersion]


def remembered(ledger: Mapping[str, RowVersion]) -> dict[ColumnDefault, RowVersion]:
    """Return the defaults in a ledger; for a column that was added more than once, the newest."""
    newest: dict[str, tuple[ColumnDefault, RowVersion]] = {}
    for key, version in ledger.items():
        if key.startswith(_PREFIX):
            default = ColumnDefault(*json.loads(key.removeprefix(_PREFIX)))
            known = newest.get(default.column)
            if known is None or version.position > known[1].position:
                newest[default.column] = default, version
    return dict(newest.values())


def with_defaults(changes: Changes, defaults: Defaults, stored: pa.Schema | None) -> Changes:
    """Fill in the defaults of columns that were added after a row's change. ``stored`` has the lake's columns."""
    known = {} if stored is None else {column.name: column.type for column in stored}
    columns = {column.name: column for column in changes.columns}
    for default, version in defaults.items():
        column = columns.get(default.column) or _absent(default, known.get(default.column), len(changes))
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


def _absent(default: ColumnDefault, arrow_type: pa.DataType | None, count: int) -> Column | None:
    """Return a column for a batch without it; None if the table does not have the column either."""
    if arrow_type is None:
        return None
    decimal = pa.types.is_decimal(arrow_type)
    schema = Schema("bytes" if decimal else str(arrow_type), optional=True, name=DECIMAL if decimal else None)
    return Column(default.column, schema, pa.nulls(count, arrow_type), np.full(count, CellState.ABSENT, np.uint8))
