"""Reselect: restore column values that the source omitted.

    plan(actions, rules, batch)      which cells are open; the hits of the cache; one request for the others
    complete(plan, answer)           the actions with these cells decided (``completion.py``)

Order of resolution (``reselect.md`` section 4): fold (before this) -> cache -> one SELECT -> keep the cell of the
stored row -> the policy for cells without a value. ``answer`` is None if the source was not queried, or failed in a way
that the error mode tolerates. Each action also refreshes the cache's overlay.

Nothing here runs per row unless a cell is open or its column is cached.

Tests: ``tests/reselect_cases``, ``tests/properties/test_reselect_laws.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.actions import Actions
from headrace.core.model.events import NO_POSITION, CellState, Changes, Column, Operation
from headrace.core.reselect.cache.column_cache import CacheBatch
from headrace.core.reselect.cache.rows import CellValue
from headrace.core.reselect.cached_cells import cached_cells, has_state, refresh
from headrace.core.reselect.rows import RowRequest
from headrace.core.reselect.rules import TableRules

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class OpenCells:
    """The open cells of one column, by action: their states, and the hits of the cache."""

    column: int
    unchanged: Mask
    unknown: Mask
    nulls: Mask
    hit_rows: Rows
    hit_values: Sequence[CellValue | None]


@dataclass(frozen=True, slots=True)
class ReselectPlan:
    """The open cells of a batch of actions. ``rows`` are the actions of ``request``; ``counts`` are for metrics.

    ``unstored`` are the actions that are known to have no stored row whose cells they could keep.
    """

    actions: Actions
    rules: TableRules
    batch: CacheBatch | None
    open: tuple[OpenCells, ...]
    rows: Rows
    requested: tuple[int, ...]
    request: RowRequest | None
    unstored: Mask
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)


# -- before the plan --------------------------------------------------------------------------------------------------


def decided_by_fold(changes: Changes, actions: Actions) -> Mapping[str, int]:
    """Return the number of cells by column that an event omits and another event of the batch decides (section 4)."""
    streamed = (changes.operation != Operation.DELETE) & (changes.operation != Operation.TOMBSTONE)
    left = {column.name: _open_cells(column, ~actions.delete) for column in actions.columns}
    decided = {column.name: _open_cells(column, streamed) - left.get(column.name, 0) for column in changes.columns}
    return {name: cells for name, cells in decided.items() if cells > 0}


def _open_cells(column: Column, rows: Mask) -> int:
    if column.states is None:
        return 0
    return int((np.isin(column.states, _OPEN_STATES) & rows).sum())


_OPEN_STATES = [CellState.UNCHANGED, CellState.UNKNOWN, CellState.DOUBTFUL, CellState.CARRIED]


# -- plan -------------------------------------------------------------------------------------------------------------


def plan(actions: Actions, rules: TableRules, batch: CacheBatch | None, stored: Mask | None = None) -> ReselectPlan:
    """Find the open cells, refresh the cache's overlay from the others, and make the request for the source.

    ``stored`` marks the actions that have a stored row. Without it each may have one that is not a new incarnation.
    """
    unstored = actions.fresh if stored is None else actions.fresh | ~stored
    counts: Counter[tuple[str, ...]] = Counter()
    if batch is not None:
        refresh(actions, rules, batch)
    opened = [
        cells
        for index in range(len(actions.columns))
        if (cells := _open_cells_of(actions, index, rules, batch, counts))
    ]

    # Without a complete identity a row cannot be read: a null or an omitted column identifies no row.
    by_name = {column.name: column for column in actions.columns}
    identity = [by_name[name] for name in rules.identity]
    identified = np.full(len(actions), bool(identity))
    for column in identity:
        has_value = column.values.is_valid() if column.states is None else column.states == CellState.VALUE
        identified &= np.asarray(has_value, np.bool_)

    needs: dict[int, Mask] = {}
    for cells in opened:
        if not rules.column(actions.columns[cells.column].name).readable or rules.source_reads == "none":
            continue
        needed = cells.unknown | cells.nulls
        if rules.unavailable_values:
            missed = cells.unchanged.copy()
            missed[cells.hit_rows] = False
            needed |= missed
        needed &= identified & unstored if rules.source_reads == "missing-rows" else identified
        if needed.any():
            needs[cells.column] = needed

    rows, request = np.empty(0, np.int64), None
    if needs:
        rows = np.flatnonzero(np.logical_or.reduce(list(needs.values())))
        index = pa.array(rows)
        key = tuple(replace(column, values=column.values.take(index), states=None) for column in identity)
        columns = tuple(replace(actions.columns[n], values=actions.columns[n].values[:0], states=None) for n in needs)
        # A snapshot's transaction writes nothing and is rolled back: its status is irrelevant for the row.
        transaction = np.where(_read(actions), -1, actions.transaction)
        needed_rows = np.stack([mask[rows] for mask in needs.values()], axis=1)
        request = RowRequest(actions.table, key, columns, needed_rows, transaction[rows])
    return ReselectPlan(actions, rules, batch, tuple(opened), rows, tuple(needs), request, unstored, counts)


def _open_cells_of(
    actions: Actions, index: int, rules: TableRules, batch: CacheBatch | None, counts: Counter[tuple[str, ...]]
) -> OpenCells | None:
    column = actions.columns[index]
    rule = rules.column(column.name)
    if column.states is None and not (rule.nulls and column.values.null_count):
        return None
    live = ~actions.delete
    # The stored row that cells are carried from may contain values that were read after its events.
    unchanged = (has_state(column, CellState.UNCHANGED) | has_state(column, CellState.CARRIED)) & live  # proven: S21
    unknown = (has_state(column, CellState.UNKNOWN) | has_state(column, CellState.DOUBTFUL)) & live
    nulls = np.zeros(len(actions), np.bool_)
    if rule.nulls:
        # Nulls of snapshot reads are values (section 4.2: never for ``r``), as are those of rows without a position.
        streamed = np.asarray(actions.version.position != NO_POSITION, np.bool_) & ~_read(actions)
        is_null = np.asarray(column.values.is_null()) if column.states is None else has_state(column, CellState.NULL)
        nulls = is_null & live & streamed
    if not (unchanged.any() or unknown.any() or nulls.any()):
        return None
    for state, mask in (("unchanged", unchanged), ("unknown", unknown), ("null", nulls)):
        counts["cells", state, column.name] += int(mask.sum())

    # The cache has no cells of new incarnations of rows, and none of columns that are not cached.
    looked_up = unchanged & ~actions.fresh
    if batch is None or not rule.cacheable:
        looked_up = np.zeros_like(looked_up)
    counts["requests", "bypassed"] += int(unchanged.sum() - looked_up.sum())
    hit_rows: Rows = np.empty(0, np.int64)
    hit_values: Sequence[CellValue | None] = ()
    if batch is not None and looked_up.any():
        hit_rows, hit_values = cached_cells(actions, column.name, np.flatnonzero(looked_up), rules, batch)
    counts["resolved", "cache", column.name] += len(hit_rows)
    return OpenCells(index, unchanged, unknown, nulls, hit_rows, hit_values)


def _read(actions: Actions) -> Mask:
    return np.zeros(len(actions), np.bool_) if actions.read is None else actions.read
