"""The second half of reselect: decide the open cells of a plan by the answers of cache and source.

The source's values fill their cells. Other cells are kept from the stored row, or carried from a row of another key,
and a policy decides the rest (``reselect.md`` sections 3.4 and 4).

Tests: ``tests/reselect_cases``, ``tests/properties/test_reselect_laws.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.actions import Actions
from headrace.core.model.errors import Fatal, HeadraceError, Retriable
from headrace.core.model.events import CellState, Column
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.cached_cells import drop_rows, from_cache, put_answers
from headrace.core.reselect.plan import OpenCells, ReselectPlan
from headrace.core.reselect.rows import ReadRows

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Completed:
    """Actions without open cells, and the rows that were read from the source by column index."""

    actions: Actions
    read: Mapping[int, Rows] = field(default_factory=dict)


def complete(plan: ReselectPlan, answer: ReadRows | None, failure: HeadraceError | None = None) -> Completed:
    """Decide every cell for which cache, source and rules suffice: VALUE, NULL, CARRIED or UNCHANGED.

    UNCHANGED means "keep the stored cell". An unstored row has none: the cell is still open, and the writer applies the
    policy. ``failure`` is the cause of a missing answer. It is raised if it is Retriable and cells remain for which
    keeping is not known to be right.
    """
    if not plan.open:
        return Completed(plan.actions)
    columns, read = list(plan.actions.columns), {}
    for cells in plan.open:
        column = columns[cells.column]
        filling, rows = _Filling(column), np.empty(0, np.int64)
        if len(cells.hit_rows):  # proven: S34
            filling.fill(cells.hit_rows, from_cache(column.values.type, cells.hit_values))
        if answer is not None and cells.column in plan.requested:
            cells_read = answer.columns[plan.requested.index(cells.column)]
            rows, values = plan.rows[cells_read.places], cells_read.values
            if not answer.proven and cells.nulls.any():  # it may be older than the events, and replaces none of them
                kept = ~cells.nulls[rows]
                rows, values = rows[kept], values.filter(pa.array(kept))
            plan.counts["resolved", "source", column.name] += len(rows)
            plan.counts["resolved", "unreadable", column.name] += cells_read.unreadable
            filling.fill(rows, values)
            if plan.batch is not None and answer.proven and plan.rules.column(column.name).cacheable:
                put_answers(plan.actions, column.name, rows, values, plan.batch)
        _resolve_rest(plan, cells, filling, answer, failure)
        columns[cells.column], read[cells.column] = filling.column(), rows
    if plan.batch is not None and answer is not None and answer.proven:
        drop_rows(plan.actions, plan.rows[~answer.found], plan.batch)
    return Completed(replace(plan.actions, columns=tuple(columns)), read)


class _Filling:
    """A column during the completion of its open cells."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._values = column.values
        nulls = np.asarray(column.values.is_null())
        self.states = nulls.astype(np.uint8) if column.states is None else column.states.copy()

    def fill(self, rows: Rows, values: pa.Array) -> None:
        """Set the cells of ``rows``, which ascend, to real values and nulls."""
        if len(rows) == 0:
            return
        if len(rows) == len(self._values):
            self._values = values
        else:
            old = self._values if self._values.type == values.type else self._values.cast(values.type)
            index = np.arange(len(old), dtype=np.int64)
            index[rows] = len(old) + np.arange(len(rows))
            self._values = pa.concat_arrays([old, values]).take(pa.array(index))
        self.states[rows] = np.where(np.asarray(values.is_null()), CellState.NULL, CellState.VALUE)

    def set(self, cells: Mask, state: CellState) -> None:
        self.states[cells] = state

    def last_resort(self, cells: Mask) -> None:
        nulls = np.asarray(self._values.is_null())
        self.states[cells] = np.where(nulls, CellState.NULL, CellState.VALUE)[cells]

    def column(self) -> Column:
        plain = (self.states == CellState.VALUE) | (self.states == CellState.NULL)
        return replace(self._column, values=self._values, states=None if plain.all() else self.states)


def check_no_placeholder(completed: Completed, placeholder: Placeholder) -> int:
    """Refuse an event's placeholder, which must never reach a table (section 2.4 rule 6).

    Returns how many cells from the source equal the placeholder: those are real values. Raises Fatal for others.
    """
    real = 0
    for index, column in enumerate(completed.actions.columns):
        mask = placeholder.mask(column.schema, column.values)
        if mask is None:
            continue
        if column.states is not None:
            mask &= column.states == CellState.VALUE
        read = completed.read.get(index, np.empty(0, np.int64))
        real += int(mask[read].sum())
        mask[read] = False  # proven: N14
        if mask.any():
            raise Fatal(
                f"{completed.actions.table.table}: {int(mask.sum())} cell(s) of column {column.name} contain the "
                "unavailable value placeholder; this is a defect of Headrace: report it with the column's type"
            )
    return real


def _resolve_rest(
    plan: ReselectPlan, cells: OpenCells, filling: _Filling, answer: ReadRows | None, failure: HeadraceError | None
) -> None:
    """Decide the cells without an answer of cache and source: fallback, keep, carry, or the policy.

    The policy is ``reselect.unresolved.insert.mode`` (section 3.4). ``auto`` decides null if the source proved that the
    row is gone: a delete or key change must follow. All other cells stay open, because the policy applies only to
    actions that the merge applies, which the writer knows.
    """
    actions = plan.actions
    doubtful = filling.states == CellState.DOUBTFUL
    unknown = (filling.states == CellState.UNKNOWN) & cells.unknown
    carried = (filling.states == CellState.CARRIED) & cells.unchanged
    name = actions.columns[cells.column].name
    rule = plan.rules.column(name)
    unread = cells.nulls if rule.generated else unknown
    if (unknown.any() or doubtful.any() or carried.any() or unread.any()) and isinstance(failure, Retriable):
        raise failure
    filling.last_resort(doubtful)
    if plan.rules.unknown_null_mode == "null" and not plan.rules.has_source:
        filling.set(unknown, CellState.NULL)
        unknown = np.zeros_like(unknown)
    bare = unknown | ((filling.states == CellState.UNCHANGED) & cells.unchanged)
    kept = bare & ~plan.unstored  # proven: N6
    carried = unknown & actions.fresh & actions.carries()
    filling.set(kept, CellState.UNCHANGED)
    filling.set(carried, CellState.CARRIED)
    plan.counts["resolved", "target", name] += int(kept.sum())
    plan.counts["resolved", "carry", name] += int((filling.states == CellState.CARRIED).sum())

    bare &= ~(kept | carried)
    if not bare.any():
        return
    if isinstance(failure, Retriable):
        raise failure
    plan.counts["resolved", "unresolved", name] += int(bare.sum())
    filling.set(bare, CellState.UNCHANGED)
    if answer is not None and answer.proven and rule.nullable and plan.rules.unresolved_insert_mode == "auto":
        gone = np.zeros(len(bare), np.bool_)
        gone[plan.rows] = ~answer.found
        filling.set(bare & gone, CellState.NULL)
