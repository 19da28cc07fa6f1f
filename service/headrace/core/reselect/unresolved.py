"""Cells that are open after reselect: the causes with their remedies, and the changes for the dead letter queue.

The writer queries the causes for rows that have no stored row to keep cells from (``reselect.unresolved.insert.mode``).

A cell is open at the end of the fold only if every change since its row began omits it, or does not have the column.
So all changes that omit it are removed for the dead letter queue (``reselect.md`` sections 3.4 and 4.4), and the batch
is folded again without them: the row stays as it was before the first of them, and none is applied partially.

Tests: ``tests/reselect_cases``, ``tests/contracts/pipeline_suite.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.merge.fold import events_of_rows
from headrace.core.model.actions import OPEN, Actions
from headrace.core.model.errors import BadRecord, HeadraceError
from headrace.core.model.events import CellState, Changes, Column, RowVersion, TableId
from headrace.core.reselect.completion import Completed
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.plan import ReselectPlan
from headrace.core.reselect.rows import ReadRows

Ints = npt.NDArray[np.int64]


class UnresolvedRows(BadRecord):
    """Rows of a batch with unresolved cells; ``columns`` are the columns by the index of the row's action."""

    def __init__(self, message: str, columns: Mapping[int, tuple[str, ...]]) -> None:
        super().__init__(message)
        self.columns = columns


@dataclass(frozen=True, slots=True)
class OmittedChange:
    """A change that was not applied: the coordinate of its record, and the cause."""

    version: RowVersion
    error: BadRecord


def unanswered(plan: ReselectPlan, completed: Completed) -> Mapping[int, tuple[str, ...]]:
    """Return the cells that were requested from the source without an answer, as column names by action.

    A cell is not open if the batch has a last resort for it, if it is a null that was only read again, or if the row
    under the old key supplies it.
    """
    names: dict[int, tuple[str, ...]] = {}
    for request_column, index in enumerate(plan.requested):
        column = plan.actions.columns[index]
        if column.states is None or plan.request is None:
            continue
        asked = plan.rows[plan.request.needs[:, request_column]]
        for row in asked[_open(column, asked) & ~np.isin(asked, completed.read.get(index, ()))].tolist():
            names[row] = (*names.get(row, ()), column.name)
    return names


def omitted_changes(
    changes: Changes,
    columns: Mapping[str, tuple[str, ...]],
    ledger: Mapping[str, RowVersion],
    stored: Mapping[str, RowVersion],
    why: str,
) -> Mapping[int, OmittedChange]:
    """Return the changes that omit ``columns`` (by row key), by their index. ``stored`` as in the fold."""
    by_name = {column.name: column for column in changes.columns}
    omitted = {}
    for key, events in events_of_rows(changes, columns.keys(), ledger, stored).items():
        wanted = [by_name[name] for name in columns[key]]
        lacking = np.logical_or.reduce([_open(column, events) for column in wanted])
        for index in (events[lacking] if lacking.any() else events).tolist():
            error = BadRecord(f"column(s) {', '.join(columns[key])} were omitted, and {why}")
            omitted[index] = OmittedChange(changes.version.row(index), error)
    return omitted


def _open(column: Column, rows: Ints) -> npt.NDArray[np.bool_]:
    if column.states is None:
        return np.zeros(len(rows), np.bool_)
    return np.isin(column.states[rows], OPEN)


_FLATTENED = "(docs/guarantees.md, 'What a transform at the source removes')"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why there is no value, and what supplies one; no remedy where only another mode helps."""

    text: str
    remedy: str = ""

    def __str__(self) -> str:
        mode = "set reselect.unresolved.insert.mode to null or dlq"
        return f"{self.text}; {self.remedy}, or {mode}" if self.remedy else f"{self.text}; {mode}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """Completed actions; ``why_open`` gives the cause for an open cell of them, by row and column name."""

    actions: Actions
    why_open: Callable[[int, str], Cause]


NO_DATABASE = Cause("no database is configured", "configure reselect.database.*")
"""No database is configured."""

UPDATE_WITHOUT_DATABASE = Cause(
    "no database is configured. The event is an update: the topic does not contain the row's insert, or the row's key "
    "has changed in a table of PostgreSQL with REPLICA IDENTITY USING INDEX, whose events do not contain the old key",
    "configure reselect.database.*, and set such a table's REPLICA IDENTITY to DEFAULT or FULL",
)
"""The same for an update: its row is not in the table, so the events lack how it came about."""


def no_table(table: TableId) -> Cause:
    """No configured database has the table of the events."""
    name = f"{table.schema or table.database}.{table.table}"
    return Cause(
        f"the configured database has no table {name}, or its user may not see it",
        "correct reselect.database.* or the user's privileges",
    )


def untraceable(topic: str) -> Cause:
    """A topic's records do not identify their events and rows at the source."""
    return Cause(
        f"the records of topic {topic} do not contain what a read from the database needs {_FLATTENED}",
        "correct the transforms",
    )


@dataclass(frozen=True, slots=True)
class Causes:
    """The plan and answer of a resolved batch; ``no_source`` is the cause if its table cannot be read at all."""

    options: ReselectOptions
    plan: ReselectPlan
    answer: ReadRows | None
    failure: HeadraceError | None
    no_source: Cause | None

    def of(self, row: int, name: str) -> Cause:
        """Return the cause for one open cell."""
        index = next(n for n, column in enumerate(self.plan.actions.columns) if column.name == name)
        plan, request_row = self.plan, None
        if plan.request is not None and index in plan.requested and row in plan.rows:
            place = int(np.searchsorted(plan.rows, row))
            request_row = place if plan.request.needs[place, plan.requested.index(index)] else None
        if request_row is None and self.no_source is NO_DATABASE and not plan.actions.fresh[row]:
            return UPDATE_WITHOUT_DATABASE
        if request_row is None:
            return self.no_source or self._not_read(row, index)
        if self.answer is None:
            return Cause(f"the read from the database failed: {self.failure}", "correct that")
        if self.answer.found[request_row]:
            return Cause("the value in the database does not fit the type of the column in the events")
        return self._not_found(name)

    def _not_read(self, row: int, index: int) -> Cause:
        column, rules = self.plan.actions.columns[index], self.plan.rules
        unchanged = column.states is not None and column.states[row] in (CellState.UNCHANGED, CellState.CARRIED)
        if column.name not in rules.columns:
            return Cause("reselect.columns.include.list or .exclude.list excludes the column", "include it")
        if column.schema.parameter("masked") == "true":
            return Cause("the source connector masks the column, so that its values cannot be read")
        if not rules.column(column.name).readable:
            return Cause("the table in the database has no such column")
        if rules.source_reads == "none":
            return Cause("reselect.source.reads=none forbids reads", "set it to all or missing-rows")
        if unchanged and not rules.unavailable_values:
            return Cause("reselect.unavailable.values=false forbids the read", "set it to true")
        return Cause("the event does not contain every column of the row's identity", "set reselect.key.columns")

    def _not_found(self, name: str) -> Cause:
        if not self.options.visibility_check:
            return Cause(
                "the row is not in the database, which proves nothing with reselect.visibility.check=off",
                "set it to on where the database is the one of the events",
            )
        if self.answer is not None and not self.answer.proven:
            return Cause(
                "the row is not in the database, which proves nothing because an event has no transaction id",
                f"have the source connector add it {_FLATTENED}",
            )
        if not self.plan.rules.column(name).nullable:
            return Cause("the row is not in the database any more, and the column does not accept NULL")
        return Cause("the row is not in the database any more", "set reselect.unresolved.insert.mode to auto")
