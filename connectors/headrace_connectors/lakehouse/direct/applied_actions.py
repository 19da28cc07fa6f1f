"""What a batch does to stored rows: which actions apply, and the rows that they write. Pure.

The rules are those of the MERGE (``merge.py``).

Tests: ``tests/unit/lakehouse/direct/test_direct_writer.py``, ``tests/contracts/lake_cells_suite.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.actions import Actions, CarriedCells, outranking
from headrace.core.model.events import Bools, CellState, RowVersion, Versions
from headrace_connectors.lakehouse.direct.key_index import ABSENT
from headrace_connectors.lakehouse.ledger import row_versions
from headrace_connectors.lakehouse.schema import DELETED, VERSION_COLUMNS
from headrace_connectors.lakehouse.staging import has_state, in_lake_type, version_array

Ints = npt.NDArray[np.int64]

_, _TOPIC, *_ = VERSION_COLUMNS.names


class StoredRows(Protocol):
    """The rows of a table by their location."""

    def read(self, locations: Ints, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows at ``locations``, which are not ABSENT, in that order."""


def read_versions(stored: StoredRows, actions: Actions, locations: Ints, index: Ints) -> Mapping[str, RowVersion]:
    """Return the versions of the rows of the actions at ``index``, by key. Each has a location."""
    if not len(index):
        return {}
    rows = stored.read(locations[index], VERSION_COLUMNS.names)
    return dict(zip(actions.key.take(pa.array(index)).to_pylist(), row_versions(rows), strict=True))


class AppliedActions:
    """The actions of a batch that apply to the rows at ``locations``, their rows' locations or ABSENT.

    ``may_be_outranked`` marks actions whose row's version has to be compared. ``marked`` marks those whose row is
    marked as deleted; None if the table removes deleted rows. ``applies`` marks the actions that do something: a delete
    has a row, an upsert that keeps cells has one, and no row outranks them. ``written`` are the indexes of the actions
    that write a row.
    """

    def __init__(
        self,
        actions: Actions,
        locations: Ints,
        may_be_outranked: Bools,
        stored: StoredRows,
        marked: Bools | None = None,
    ) -> None:
        self._actions = actions
        self._locations = locations
        self._stored = stored
        self._soft = marked is not None
        has_row = locations != ABSENT
        if marked is not None:  # proven: marked-rows
            # Such a row has no cells to keep, and every upsert outranks it.
            has_row, may_be_outranked = has_row & ~marked, may_be_outranked & ~marked
        self._is_new = actions.fresh | ~has_row
        # proven: kept-cells
        applies = np.where(actions.delete, has_row, has_row | ~has_state(actions, CellState.UNCHANGED))
        index = np.flatnonzero(may_be_outranked)
        self._versions = read_versions(stored, actions, locations, index)
        applies[index] &= outranking(actions.take(index), self._versions)  # proven: outranked-change
        self._origins = np.full(len(actions), ABSENT, np.int64)  # of the rows from which cells are carried
        if actions.carried is not None:
            origin = actions.carried.origin
            self._origins = np.where((origin >= 0) & has_row[origin], locations[origin], ABSENT)
            applies &= self._carries_as_expected(actions.carried)  # proven: carried-as-expected
        self.applies: Bools = applies
        self.written = np.flatnonzero(applies if self._soft else applies & ~actions.delete)

    @cached_property
    def version(self) -> Versions:
        """The versions of the written rows. A stored position is never lowered."""
        version = self._actions.version.take(self.written)
        if not self._versions:  # proven: lower-position
            return version
        keys = self._actions.key.take(pa.array(self.written)).to_pylist()
        before = np.array([row.position if (row := self._versions.get(key)) else b"" for key in keys], np.bytes_)
        return replace(version, position=np.where(version.position < before, before, version.position))

    def rows(self, schema: pa.Schema, own_columns: Mapping[str, pa.Array]) -> pa.Table:
        """Return the written rows in all columns of the table, and ``own_columns``. ``schema`` has the data columns."""
        columns = {column.name: column for column in self._actions.columns}
        chosen, locations = pa.array(self.written), self._locations[self.written]
        is_deleted = self._actions.delete[self.written]
        arrays, sources = {}, {}
        for name, data_type in zip(schema.names, schema.types, strict=True):
            column = columns.get(name)
            if column is None:  # it keeps the cell of the stored row, unless it is of a new incarnation
                arrays[name] = pa.nulls(len(self.written), data_type)
                source = np.where(self._is_new[self.written], ABSENT, locations)  # proven: absent-cells
            else:
                arrays[name] = in_lake_type(column.values, name, schema).take(chosen)
                source = np.full(len(chosen), ABSENT, np.int64)
                if column.states is not None:
                    states = column.states[self.written]
                    source[states == CellState.UNCHANGED] = locations[states == CellState.UNCHANGED]
                    source = np.where(states == CellState.CARRIED, self._origins[self.written], source)
            # A row that is marked stays as it was.
            source = np.where(is_deleted, locations, source)  # proven: marked-row-stays
            if (source != ABSENT).any():
                sources[name] = source
        arrays.update(self._with_stored_cells(arrays, sources))
        index = np.arange(len(self.written))
        for name in VERSION_COLUMNS.names:
            is_topic = name == _TOPIC
            arrays[name] = (
                pa.repeat(self.version.topic, len(index)) if is_topic else version_array(self.version, index, name)
            )
        if self._soft:
            arrays[DELETED] = pa.array(is_deleted)
        return pa.table({**arrays, **own_columns})

    def _with_stored_cells(self, arrays: Mapping[str, pa.Array], sources: Mapping[str, Ints]) -> dict[str, pa.Array]:
        """Return the columns of ``sources`` with the cells at these locations in place of their own."""
        if not sources:
            return {}
        locations = np.unique(np.concatenate(list(sources.values())))
        locations = locations[locations != ABSENT]
        stored = self._stored.read(locations, list(sources))
        columns = {}
        for name, source in sources.items():
            own = np.arange(len(source))
            index = np.where(source == ABSENT, own, len(source) + np.searchsorted(locations, source))
            cells = stored[name].combine_chunks()
            columns[name] = pa.concat_arrays([arrays[name], cells]).take(pa.array(index))
        return columns

    def _carries_as_expected(self, carried: CarriedCells) -> Bools:
        """Return the actions that carry no cell, or carry from a row in the version that the fold has seen."""
        carries = has_state(self._actions, CellState.CARRIED)
        expected: Bools = ~carries | (self._origins != ABSENT)
        index = np.flatnonzero(carries & expected)
        origin = carried.origin[index]
        stored = read_versions(self._stored, self._actions, self._locations, np.unique(origin))
        for action, key in zip(index.tolist(), self._actions.key.take(pa.array(origin)).to_pylist(), strict=True):
            version = carried.versions.get(key)
            expected[action] = version is None or _identity(version) == _identity(stored[key])
        return expected


def _identity(version: RowVersion) -> tuple[bytes, int, int]:
    return version.position, version.partition, version.offset
