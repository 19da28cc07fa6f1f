"""Select the changes of incomplete rows for the dead letter queue (``reselect.md`` sections 3.4 and 4.4).

A cell is open at the end of the fold only if every change since its row began omits it, or does not have the column.
So all changes that omit it are removed, and the batch is folded again without them: the row stays as it was
before the first of them, and none of them is applied partially.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.merge.fold import events_of_rows
from headrace.core.model.actions import OPEN
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import Changes, Column, RowVersion
from headrace.core.reselect.completion import Completed
from headrace.core.reselect.plan import ReselectPlan

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
    found: dict[int, tuple[str, ...]] = {}
    for request_column, index in enumerate(plan.requested):
        column = plan.actions.columns[index]
        if column.states is None or plan.request is None:
            continue
        asked = plan.rows[plan.request.needs[:, request_column]]
        for row in asked[_open(column, asked) & ~np.isin(asked, completed.read.get(index, ()))].tolist():
            found[row] = (*found.get(row, ()), column.name)
    return found


def omitted_changes(
    changes: Changes,
    columns: Mapping[str, tuple[str, ...]],
    ledger: Mapping[str, RowVersion],
    stored: Mapping[str, RowVersion],
    why: str,
) -> Mapping[int, OmittedChange]:
    """Return the changes that omit ``columns`` (by row key), by their index. ``stored`` as in the fold."""
    by_name = {column.name: column for column in changes.columns}
    found = {}
    for key, events in events_of_rows(changes, columns.keys(), ledger, stored).items():
        wanted = [by_name[name] for name in columns[key]]
        lacking = np.logical_or.reduce([_open(column, events) for column in wanted])
        for index in (events[lacking] if lacking.any() else events).tolist():
            error = BadRecord(f"column(s) {', '.join(columns[key])} were omitted, and {why}")
            found[index] = OmittedChange(changes.version.row(index), error)
    return found


def _open(column: Column, rows: Ints) -> npt.NDArray[np.bool_]:
    if column.states is None:
        return np.zeros(len(rows), np.bool_)
    return np.isin(column.states[rows], OPEN)
