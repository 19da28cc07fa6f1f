"""Rows of a memory table, and the application of actions to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.actions import Actions
from headrace.core.model.events import UNVERSIONED, CellState, Column, RowVersion, arrived_later

_KNOWN = (int(CellState.VALUE), int(CellState.NULL))
_LEFT = (int(CellState.UNCHANGED), int(CellState.CARRIED))

Cells = dict[str, pa.Scalar]


@dataclass(slots=True)
class Row:
    """The cells of a row, and the version that it reflects."""

    cells: Cells
    version: RowVersion | None
    deleted: bool = False


class Batch:
    """Actions with their cells as scalars of the table's types."""

    def __init__(self, actions: Actions, schema: pa.Schema) -> None:
        self.actions = actions
        self.keys: list[str] = actions.key.to_pylist()
        self._columns = {column.name: column.values.cast(schema.field(column.name).type) for column in actions.columns}
        self._states = {column.name: _states(column) for column in actions.columns}
        self._absent = {name: pa.scalar(None, schema.field(name).type) for name in schema.names}

    def applies(self, index: int, stored: RowVersion | None) -> bool:
        """Return whether the action applies to a stored row, by the gate of ``Actions``."""
        if stored is None:
            return True
        first = bytes(self.actions.gates.position[index])
        if first and not first > stored.position:
            return False
        return not self.actions.gates.by_arrival[index] or arrived_later(self.actions.gates.first.row(index), stored)

    def version(self, index: int, row: Row | None) -> RowVersion:
        """Return the row's version after the action: the last event's, but never with a lower position."""
        version = self.actions.version.row(index)
        if row is None or row.version is None or row.version.position <= version.position:
            return version
        return RowVersion(row.version.position, version.topic, version.partition, version.offset, version.source_time)

    def cells(self, index: int, row: Row | None, before: Mapping[str, Row]) -> Cells | None:
        """Return all cells of the row, or None if a cell must be kept from a row that does not exist."""
        cells = dict(self._absent if row is None or self.actions.fresh[index] else row.cells)
        for name, values in self._columns.items():
            cell = self._cell(name, values, index, row, before)
            if cell is None:
                return None
            cells[name] = cell
        return cells

    def _cell(
        self, name: str, values: pa.Array, index: int, row: Row | None, before: Mapping[str, Row]
    ) -> pa.Scalar | None:
        states = self._states[name]
        if states is None or states[index] in _KNOWN:  # proven: S33
            return values[index]
        assert states[index] in _LEFT, f"{name!r} is {CellState(states[index]).name}"
        if states[index] == CellState.CARRIED:
            carried = self.actions.carried
            assert carried is not None, f"{name!r} is CARRIED from no row"
            key = self.keys[int(carried.origin[index])]
            row = before.get(key)
            version = UNVERSIONED if row is None or row.version is None else row.version
            if version != carried.versions.get(key, version):
                return None
        return None if row is None else row.cells[name]


def _states(column: Column) -> npt.NDArray[np.uint8] | None:
    return None if column.states is None or np.isin(column.states, _KNOWN).all() else column.states
