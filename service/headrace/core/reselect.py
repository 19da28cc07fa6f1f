"""Reselect: give back the column values that the source left out.

    plan(actions, rules, batch)      which cells are open; what the cache has; one request for the rest
    complete(plan, answer)           the actions with these cells decided

Order of resolution (``reselect.md`` section 4): fold (before this) -> cache -> one SELECT -> keep what the target row
has -> the policy for cells that have nothing. ``answer`` is what the edge read, or None when it was not asked or failed
in a way that the error mode tolerates. The cache's overlay is refreshed by every action on the way.

Nothing here runs per row unless a cell is open or its column is cached.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.arrays import build_array
from headrace.core.cache_batch import CacheBatch
from headrace.core.cache_rows import CellValue
from headrace.core.errors import BadRecord, Fatal, HeadraceError, Retriable
from headrace.core.events import Actions, CellState, Changes, Column, Operation, TableId
from headrace.core.reselect_cache import cached_cells, drop_rows, from_cache, has_state, put_answers, refresh
from headrace.core.reselect_options import ColumnFilter, DatabaseOptions, ReselectOptions
from headrace.core.reselect_rules import ColumnRule, TableRules, table_rules
from headrace.core.unavailable import Placeholder

__all__ = [
    "UNREADABLE",
    "ColumnFilter",
    "ColumnRule",
    "Completed",
    "DatabaseOptions",
    "ReselectOptions",
    "ReselectPlan",
    "RowAnswer",
    "RowRequest",
    "TableRules",
    "check_no_placeholder",
    "complete",
    "decided_by_fold",
    "plan",
    "table_rules",
]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class _Unreadable:
    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = _Unreadable()
"""Stands in an answer for a value that the target type cannot hold: the cell stays open and is never cached."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Cells to read again: rows by the values of their key columns, and for each row the columns that it needs.

    ``key`` and ``columns`` say names and schemas; ``key`` also holds the values, one per row. ``needs`` has a row per
    requested row and a column per column. ``transactions`` are those of the rows' last events (PostgreSQL's
    id, Oracle's commit SCN), -1 if unknown.
    """

    table: TableId
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    needs: npt.NDArray[np.bool_]
    transactions: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.needs)

    def slice(self, begin: int, end: int) -> RowRequest:
        """Some consecutive rows of the request."""
        key = tuple(replace(column, values=column.values[begin:end]) for column in self.key)
        return replace(self, key=key, needs=self.needs[begin:end], transactions=self.transactions[begin:end])


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """What the source has: ``found`` per requested row, and per column a Connect value (or UNREADABLE) per row.

    Values of rows that were not found, or that were not needed, mean nothing. ``proven`` tells that the events'
    transactions were visible to the reading snapshot; what is not proven is not cached. ``flashback_fallbacks`` counts,
    by error code, the reads that could not be made as of the events' SCN and took the current state (Oracle).
    ``waited`` are the seconds in which an event's transaction was not visible yet.
    """

    found: npt.NDArray[np.bool_]
    values: tuple[Sequence[Any], ...]
    proven: bool = True
    flashback_fallbacks: Mapping[str, int] = field(default_factory=dict)
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class _Open:
    """The open cells of one column, by action: what they are, and what the cache gave."""

    column: int
    unchanged: Mask
    unknown: Mask
    nulls: Mask
    hit_rows: Rows
    hit_values: Sequence[CellValue | None]


@dataclass(frozen=True, slots=True)
class ReselectPlan:
    """What is open in a batch of actions. ``rows`` are the actions of ``request``; ``counts`` are for metrics."""

    actions: Actions
    rules: TableRules
    batch: CacheBatch | None
    open: tuple[_Open, ...]
    rows: Rows
    requested: tuple[int, ...]
    request: RowRequest | None
    counts: Counter[tuple[str, ...]] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Completed:
    """Actions without open cells, and which of their cells were read from the source: column number to rows."""

    actions: Actions
    read: Mapping[int, Rows] = field(default_factory=dict)


# -- before the plan --------------------------------------------------------------------------------------------------


def decided_by_fold(changes: Changes, actions: Actions) -> Mapping[str, int]:
    """By column, how many cells that events left open other events of the batch have decided: step 1 of section 4."""
    streamed = (changes.operation != Operation.DELETE) & (changes.operation != Operation.TOMBSTONE)
    left = {column.name: _open_cells(column, ~actions.delete) for column in actions.columns}
    decided = {column.name: _open_cells(column, streamed) - left.get(column.name, 0) for column in changes.columns}
    return {name: number for name, number in decided.items() if number > 0}


def _open_cells(column: Column, rows: Mask) -> int:
    if column.states is None:
        return 0
    return int((np.isin(column.states, _OPEN_STATES) & rows).sum())


_OPEN_STATES = [CellState.UNCHANGED, CellState.UNKNOWN, CellState.DOUBTFUL, CellState.CARRIED]


# -- plan -------------------------------------------------------------------------------------------------------------


def plan(actions: Actions, rules: TableRules, batch: CacheBatch | None) -> ReselectPlan:
    """Find the open cells, refresh the cache's overlay from the others, and say what must be read from the source."""
    counts: Counter[tuple[str, ...]] = Counter()
    if batch is not None:
        refresh(actions, rules, batch)
    opened = [
        found for number in range(len(actions.columns)) if (found := _open(actions, number, rules, batch, counts))
    ]
    askable = _askable(actions, rules)
    wanted = {cells.column: _wanted(actions, cells, rules) & askable for cells in opened}
    wanted = {number: mask for number, mask in wanted.items() if mask.any()}
    rows = np.flatnonzero(np.logical_or.reduce(list(wanted.values()))) if wanted else np.empty(0, np.int64)
    request = _request(actions, rules, rows, wanted) if wanted else None
    return ReselectPlan(actions, rules, batch, tuple(opened), rows, tuple(wanted), request, counts)


def _open(
    actions: Actions, number: int, rules: TableRules, batch: CacheBatch | None, counts: Counter[tuple[str, ...]]
) -> _Open | None:
    column = actions.columns[number]
    rule = rules.column(column.name)
    if column.states is None and not (rule.nulls and column.values.null_count):
        return None
    live = ~actions.delete
    # A stored row that cells are carried from may itself hold values that were read later than its events.
    unchanged = (has_state(column, CellState.UNCHANGED) | has_state(column, CellState.CARRIED)) & live
    unknown = (has_state(column, CellState.UNKNOWN) | has_state(column, CellState.DOUBTFUL)) & live
    nulls = _null_cells(column) & live & _streamed(actions) if rule.nulls else np.zeros(len(actions), np.bool_)
    if not (unchanged.any() or unknown.any() or nulls.any()):
        return None
    for state, mask in (("unchanged", unchanged), ("unknown", unknown), ("null", nulls)):
        counts["cells", state, column.name] += int(mask.sum())
    hit_rows, hit_values = _hits(actions, column, unchanged, rules, batch, counts)
    counts["resolved", "cache", column.name] += len(hit_rows)
    return _Open(number, unchanged, unknown, nulls, hit_rows, hit_values)


def _wanted(actions: Actions, cells: _Open, rules: TableRules) -> Mask:
    """The cells of a column that go to the source."""
    rule = rules.column(actions.columns[cells.column].name)
    if not rule.readable or rules.source_reads == "none":
        return np.zeros(len(actions), np.bool_)
    wanted = cells.unknown | cells.nulls
    if rules.unavailable_values:
        missed = cells.unchanged.copy()
        missed[cells.hit_rows] = False
        wanted = wanted | missed
    return wanted & actions.fresh if rules.source_reads == "missing-rows" else wanted


def _askable(actions: Actions, rules: TableRules) -> Mask:
    """The rows whose identity is known in full: a null, or a column that was left out, names no row."""
    askable = np.full(len(actions), bool(rules.identity))
    for column in _identity_columns(actions, rules):
        known = column.values.is_valid() if column.states is None else column.states == CellState.VALUE
        askable &= np.asarray(known, np.bool_)
    return askable


def _identity_columns(actions: Actions, rules: TableRules) -> list[Column]:
    by_name = {column.name: column for column in actions.columns}
    return [by_name[name] for name in rules.identity]


def _request(actions: Actions, rules: TableRules, rows: Rows, wanted: Mapping[int, Mask]) -> RowRequest:
    index = pa.array(rows)
    identity = _identity_columns(actions, rules)
    key = tuple(replace(column, values=column.values.take(index), states=None) for column in identity)
    columns = tuple(replace(actions.columns[n], values=actions.columns[n].values[:0], states=None) for n in wanted)
    needs = np.stack([mask[rows] for mask in wanted.values()], axis=1)
    return RowRequest(actions.table, key, columns, needs, actions.transaction[rows])


def _hits(
    actions: Actions,
    column: Column,
    unchanged: Mask,
    rules: TableRules,
    batch: CacheBatch | None,
    counts: Counter[tuple[str, ...]],
) -> tuple[Rows, Sequence[CellValue | None]]:
    """What the cache has. A new incarnation of a row does not ask it, nor does a column that is not cached."""
    asked = unchanged & ~actions.fresh
    if batch is None or not rules.column(column.name).cacheable:
        asked = np.zeros_like(asked)
    counts["requests", "bypassed"] += int(unchanged.sum() - asked.sum())
    if batch is None or not asked.any():
        return np.empty(0, np.int64), ()
    return cached_cells(actions, column.name, np.flatnonzero(asked), rules, batch)


def _null_cells(column: Column) -> Mask:
    if column.states is None:
        return np.asarray(column.values.is_null())
    return has_state(column, CellState.NULL)


def _streamed(actions: Actions) -> Mask:
    """Snapshot reads have no position; their nulls are true (section 4.2: never for ``r``)."""
    return np.asarray(actions.version.position != b"", np.bool_)


# -- complete ---------------------------------------------------------------------------------------------------------


def complete(plan: ReselectPlan, answer: RowAnswer | None, failure: HeadraceError | None = None) -> Completed:
    """The actions with every cell decided that cache, source and rules can decide: VALUE, NULL, CARRIED or UNCHANGED.

    UNCHANGED means "keep the stored cell"; on a ``fresh`` row, which has none, it is still open, and the writer asks
    the policy. ``failure`` is why there is no answer although the source was asked; it is raised when it is Retriable
    and leaves cells open for which keeping is not known to be right.
    """
    if not plan.open:
        return Completed(plan.actions)
    columns, read = list(plan.actions.columns), {}
    for cells in plan.open:
        columns[cells.column], read[cells.column] = _complete_column(plan, cells, answer, failure)
    if plan.batch is not None and answer is not None and answer.proven:
        drop_rows(plan.actions, plan.rows[~answer.found], plan.batch)
    return Completed(replace(plan.actions, columns=tuple(columns)), read)


def _complete_column(
    plan: ReselectPlan, cells: _Open, answer: RowAnswer | None, failure: HeadraceError | None
) -> tuple[Column, Rows]:
    column = plan.actions.columns[cells.column]
    filling, rows = _Filling(column), np.empty(0, np.int64)
    if len(cells.hit_rows):
        filling.fill(cells.hit_rows, from_cache(column.values.type, cells.hit_values))
    if answer is not None and cells.column in plan.requested:
        rows, values = _answered(plan, cells, answer)
        plan.counts["resolved", "source", column.name] += len(rows)
        filling.fill(rows, values)
        if plan.batch is not None and answer.proven and plan.rules.column(column.name).cacheable:
            put_answers(plan.actions, column.name, rows, values, plan.batch)
    _settle(plan, cells, filling, answer, failure)
    return filling.column(), rows


def _answered(plan: ReselectPlan, cells: _Open, answer: RowAnswer) -> tuple[Rows, pa.Array]:
    """The actions for which the source had a usable value, and the values as the event would have carried them."""
    assert plan.request is not None  # noqa: S101 - an answer has a request
    number = plan.requested.index(cells.column)
    given = answer.values[number]
    usable = [
        place
        for place in np.flatnonzero(answer.found & plan.request.needs[:, number]).tolist()
        if given[place] is not UNREADABLE
    ]
    column = plan.actions.columns[cells.column]
    while True:
        try:
            return plan.rows[usable], build_array(column.schema, [given[place] for place in usable])
        except BadRecord as error:
            plan.counts["resolved", "unreadable", column.name] += 1
            del usable[error.index or 0]


class _Filling:
    """A column while its open cells are being filled."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._values = column.values
        nulls = np.asarray(column.values.is_null())
        self.states = nulls.astype(np.uint8) if column.states is None else column.states.copy()

    def fill(self, rows: Rows, values: pa.Array) -> None:
        """Set cells to real values and nulls."""
        if len(rows) == 0:
            return
        old = self._values if self._values.type == values.type else self._values.cast(values.type)
        place = np.arange(len(old), dtype=np.int64)
        place[rows] = len(old) + np.arange(len(rows))
        self._values = pa.concat_arrays([old, values]).take(pa.array(place))
        self.states[rows] = np.where(np.asarray(values.is_null()), CellState.NULL, CellState.VALUE)

    def set(self, cells: Mask, state: CellState) -> None:
        """Decide cells without a value."""
        self.states[cells] = state

    def last_resort(self, cells: Mask) -> None:
        """Let the values that came with doubtful cells stand."""
        nulls = np.asarray(self._values.is_null())
        self.states[cells] = np.where(nulls, CellState.NULL, CellState.VALUE)[cells]

    def column(self) -> Column:
        plain = (self.states == CellState.VALUE) | (self.states == CellState.NULL)
        return replace(self._column, values=self._values, states=None if plain.all() else self.states)


def check_no_placeholder(completed: Completed, placeholder: Placeholder) -> int:
    """The last guard: an event's placeholder must never reach a table (section 2.4 rule 6).

    Returns how many cells read from the source equal the placeholder: those are real values. Raises Fatal for others.
    """
    real = 0
    for number, column in enumerate(completed.actions.columns):
        mask = placeholder.mask(column.schema, column.values)
        if mask is None:
            continue
        if column.states is not None:
            mask &= column.states == CellState.VALUE
        read = completed.read.get(number, np.empty(0, np.int64))
        real += int(mask[read].sum())
        mask[read] = False
        if mask.any():
            raise Fatal(
                f"{int(mask.sum())} cell(s) of column {column.name} of {completed.actions.table.table} hold the "
                "unavailable value placeholder; this is a defect of Headrace: report it with the column's type"
            )
    return real


def _settle(
    plan: ReselectPlan, cells: _Open, filling: _Filling, answer: RowAnswer | None, failure: HeadraceError | None
) -> None:
    """Decide the cells that neither cache nor source had: last resort, keep, carry, or the policy."""
    actions = plan.actions
    doubtful = filling.states == CellState.DOUBTFUL
    unknown = (filling.states == CellState.UNKNOWN) & cells.unknown
    carried = (filling.states == CellState.CARRIED) & cells.unchanged
    if (unknown.any() or doubtful.any() or carried.any()) and isinstance(failure, Retriable):
        raise failure
    filling.last_resort(doubtful)
    if plan.rules.unknown_null_mode == "null" and not plan.rules.has_source:
        filling.set(unknown, CellState.NULL)
        unknown = np.zeros_like(unknown)
    bare = unknown | ((filling.states == CellState.UNCHANGED) & cells.unchanged)
    kept = bare & ~actions.fresh
    carried = unknown & actions.fresh & (actions.carry_from >= 0)
    filling.set(kept, CellState.UNCHANGED)
    filling.set(carried, CellState.CARRIED)
    name = actions.columns[cells.column].name
    plan.counts["resolved", "target", name] += int(kept.sum())
    plan.counts["resolved", "carry", name] += int((filling.states == CellState.CARRIED).sum())
    _settle_inserts(plan, cells, filling, bare & ~kept & ~carried, answer, failure)


def _settle_inserts(
    plan: ReselectPlan,
    cells: _Open,
    filling: _Filling,
    bare: Mask,
    answer: RowAnswer | None,
    failure: HeadraceError | None,
) -> None:
    """Cells of new rows that have no value and nothing to keep (section 3.4, ``reselect.unresolved.insert.mode``).

    ``auto`` lets a null stand where the source proved the row gone: a delete or key change must follow. All others stay
    open, because the policy is asked only for actions that do apply, which the writer knows.
    """
    if not bare.any():
        return
    if isinstance(failure, Retriable):
        raise failure
    name = plan.actions.columns[cells.column].name
    plan.counts["resolved", "unresolved", name] += int(bare.sum())
    filling.set(bare, CellState.UNCHANGED)
    rule = plan.rules.column(name)
    if answer is not None and rule.nullable and plan.rules.unresolved_insert_mode == "auto":
        gone = np.zeros(len(bare), np.bool_)
        gone[plan.rows] = ~answer.found
        filling.set(bare & gone, CellState.NULL)
