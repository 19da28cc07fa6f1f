"""Refresh the column cache from a batch of actions, read cells from it, and store answers of the source.

The rules per event kind are ``reselect.md`` section 5.2, per action after the fold: deletes and new incarnations drop
the row, values and nulls are put, doubts invalidate, omitted values are read. The loops are in Python, so only cells
of cached columns get here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.actions import Actions
from headrace.core.model.events import CellState, Column
from headrace.core.reselect.cache.column_cache import CacheBatch
from headrace.core.reselect.cache.rows import CellValue, Origin, Partition, Stamp
from headrace.core.reselect.rules import TableRules

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def refresh(actions: Actions, rules: TableRules, batch: CacheBatch) -> None:
    """Section 5.2: deletes and new incarnations drop the row, values and nulls are put, doubts invalidate."""
    stamps = _Stamps(actions)
    for row in np.flatnonzero(actions.delete | actions.fresh).tolist():  # proven: S4
        batch.for_row(stamps.key(row), stamps[row]).drop()
    for column in actions.columns:
        if not rules.column(column.name).cacheable:
            continue
        doubtful = has_state(column, CellState.UNKNOWN) | has_state(column, CellState.DOUBTFUL)
        for row in np.flatnonzero(doubtful & ~actions.delete).tolist():
            batch.for_row(stamps.key(row), stamps[row]).invalidate(column.name)
        has_content = has_state(column, CellState.VALUE) | has_state(column, CellState.NULL)
        rows = np.flatnonzero((has_content if column.states is not None else True) & ~actions.delete)
        for row, value in zip(rows.tolist(), _cell_values(column.values, rows), strict=True):
            batch.for_row(stamps.key(row), stamps[row]).put(column.name, value)  # proven: S12


def cached_cells(
    actions: Actions, column: str, requested: Rows, rules: TableRules, batch: CacheBatch
) -> tuple[Rows, list[CellValue | None]]:
    """Return the cells of the ``requested`` rows that the cache contains: their rows and values."""
    stamps = _Stamps(actions)
    rows, values = [], []
    for row in requested.tolist():
        hit = batch.for_row(stamps.key(row), stamps[row]).get(column)
        if hit is not None and (hit.value is not None or rules.serves_nulls):  # proven: N8
            rows.append(row)
            values.append(hit.value)
        elif hit is not None:
            batch.cache.counts["contradictions", "null_then_placeholder"] += 1
    return np.array(rows, np.int64), values


def put_answers(actions: Actions, column: str, rows: Rows, values: pa.Array, batch: CacheBatch) -> None:
    """Cache the source's values of a column of ``rows``; ``values`` has one per row."""
    stamps = _Stamps(actions)
    everything = np.arange(len(rows), dtype=np.int64)
    for row, value in zip(rows.tolist(), _cell_values(values, everything), strict=True):
        batch.for_row(stamps.key(row), stamps[row]).put(column, value, Origin.DB)


def drop_rows(actions: Actions, rows: Rows, batch: CacheBatch) -> None:
    """Drop rows that the source does not contain any more (section 4.4)."""
    stamps = _Stamps(actions)
    for row in rows.tolist():
        batch.for_row(stamps.key(row), stamps[row]).drop()


def has_state(column: Column, state: CellState) -> Mask:
    """Return which cells of a column have ``state``; without states none has."""
    if column.states is None:
        return np.zeros(len(column.values), np.bool_)
    return np.asarray(column.states == state, np.bool_)


def from_cache(data_type: pa.DataType, values: Sequence[CellValue | None]) -> pa.Array:
    if _is_flat(data_type):
        return pa.array(values, data_type)
    return pa.concat_arrays([pa.nulls(1, data_type) if value is None else value for value in values])


class _Stamps:
    """The stamps and keys of a batch's actions, created on demand."""

    def __init__(self, actions: Actions) -> None:
        self._version = actions.version
        self._keys = actions.key
        self._partitions = {
            number: Partition(self._version.topic, number) for number in set(self._version.partition.tolist())
        }

    def __getitem__(self, row: int) -> Stamp:
        version = self._version
        return Stamp(
            self._partitions[int(version.partition[row])], int(version.offset[row]), bytes(version.position[row])
        )

    def key(self, row: int) -> str:
        return str(self._keys[row].as_py())


def _cell_values(values: pa.Array, rows: Rows) -> Iterator[CellValue | None]:
    """Copy cells for the cache, so that they share no buffer with the batch."""
    cells = values.take(pa.array(rows))
    if _is_flat(values.type):
        yield from cells.to_pylist()
        return
    valid = np.asarray(cells.is_valid())
    for index in range(len(cells)):
        yield cells.take(pa.array([index])) if valid[index] else None  # proven: S28


def _is_flat(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_binary(data_type))
