"""A batch folded once more, against the stored versions of its rows, event by event (``merge.md`` section 5).

The fast path (``table_pipeline.py``) asks for it where the counts of its merge leave anything open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.core.batch.combine import remaining
from headrace.core.merge.actions import (
    open_rows,
    take_actions,
    with_nulls_for_absent_cells,
    with_nulls_for_open_cells,
    without_hollow_carries,
)
from headrace.core.merge.fold import OPEN, fold
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Actions, Changes, RowVersion
from headrace.core.reselect.causes import Resolved
from headrace.core.reselect.unresolved import LeftOut, UnresolvedRows, left_out
from headrace.ports import MergeCounts
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions, Stages
from headrace.runtime.pipeline.position_regression import place
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_ledger import TableLedger

Bools = npt.NDArray[np.bool_]


class Unexplained(Fatal):
    """The merge did not do what the stored versions said it would: somebody else wrote in between."""


class Settled(NamedTuple):
    """What is left of a batch to be written, and the changes that go to the dead letter queue instead.

    ``whole`` is False where changes were left out, for the queue or for good.
    """

    actions: Actions
    left_out: Sequence[LeftOut]
    whole: bool


class ExactPath:
    """Says what of a batch is left to be written to one table; ``resolve`` completes rows, given which are stored."""

    def __init__(
        self,
        name: str,
        ledger: TableLedger,
        reselect: Reselect,
        resolve: Callable[[Actions, Bools], Resolved],
        options: PipelineOptions,
        stages: Stages,
    ) -> None:
        self._name = name
        self._ledger = ledger
        self._reselect = reselect
        self._resolve = resolve
        self._options = options
        self._stages = stages

    def settled(self, changes: Changes, stored: Mapping[str, RowVersion]) -> Settled:
        """What is left to be written, complete.

        Rows that cannot be completed are left out if the options say so, or if a delete that is read again ends them.
        """
        gone: list[LeftOut] = []
        whole = True
        while True:
            with self._stages("settle"):
                rest = fold(changes, self._ledger.known, stored)
            standing = _standing(rest, stored)
            rest = take_actions(rest, np.flatnonzero(~rest.delete | standing)) if _droppable(rest) else rest
            rest = without_hollow_carries(rest, _standing(rest, stored))
            try:
                standing = _standing(rest, stored)
                return Settled(self._decide_open_cells(self._resolve(rest, standing), standing), gone, whole)
            except UnresolvedRows as error:
                self._reselect.cache.discard(changes.table)
                columns = {rest.key[index].as_py(): names for index, names in error.columns.items()}
                ended = {rest.key[index].as_py() for index in error.columns if self._is_ended(rest, index)}
                unresolved = left_out(changes, columns, self._ledger.known, stored, str(error))
                gone += [each for index, each in unresolved.items() if changes.key[index].as_py() not in ended]
                changes, whole = remaining(changes, unresolved), False

    def _decide_open_cells(self, resolved: Resolved, standing: Bools) -> Actions:
        """``reselect.unresolved.insert.mode``: cells without a value and without a stored row to keep them from."""
        rest = with_nulls_for_absent_cells(resolved.actions, standing)
        hollow = open_rows(rest, standing)
        if not hollow.any():
            return rest
        if self._options.unresolved_insert_mode == "null":
            self._contradicted(rest, hollow)
            return with_nulls_for_open_cells(rest, hollow)
        columns = {index: _open_columns(rest, index) for index in np.flatnonzero(hollow).tolist()}
        ended = {index: names for index, names in columns.items() if self._is_ended(rest, index)}
        if ended:
            raise UnresolvedRows("the row has been deleted since", ended)
        self._contradicted(rest, hollow)
        causes = {index: _cause(resolved, index, names) for index, names in columns.items()}
        index, cause = next(iter(causes.items()))
        if self._options.unresolved_insert_mode == "dlq":
            alike = {row: names for row, names in columns.items() if causes[row] == cause}
            raise UnresolvedRows(f"the row is not in {self._name}, and {cause}", alike)
        raise Fatal(
            f"{self._name}: {place(rest.version.row(index))} leaves out column(s) {', '.join(columns[index])} of a row "
            f"that is not in the table, and {cause}"
        )

    def _is_ended(self, rest: Actions, index: int) -> bool:
        return self._ledger.tombstones.ends(rest.key[index].as_py(), rest.version.row(index))

    def _contradicted(self, rest: Actions, hollow: Bools) -> None:
        self._reselect.count_contradictions(rest.table, "update_without_create", int((hollow & ~rest.fresh).sum()))

    def refuse_unexplained(self, rest: Actions, counts: MergeCounts, stored: Mapping[str, RowVersion]) -> None:
        """Raise Unexplained where a merge of ``rest`` did not apply all of it."""
        upserts = int((~rest.delete).sum())
        deletes = int((rest.delete & _standing(rest, stored)).sum())
        if (counts.upserted, counts.deleted) != (upserts, deletes):
            raise Unexplained(
                f"{self._name}: {upserts} upserts and {deletes} deletes were due, {counts.upserted} and "
                f"{counts.deleted} applied, and no rule explains the difference: another writer may work on this "
                "table; make sure that nobody else writes it, then restart the task"
            )


def _standing(actions: Actions, stored: Mapping[str, RowVersion]) -> Bools:
    """Which actions have a stored row."""
    return np.fromiter((key in stored for key in actions.key.to_pylist()), np.bool_, len(actions))


def _droppable(rest: Actions) -> bool:
    """Deletes of absent rows can be left out, unless a row carries cells: then indexes must stay as they are."""
    return bool((rest.carry_from < 0).all())


def _open_columns(actions: Actions, index: int) -> tuple[str, ...]:
    return tuple(
        column.name for column in actions.columns if column.states is not None and column.states[index] in OPEN
    )


def _cause(resolved: Resolved, index: int, columns: Sequence[str]) -> str:
    """Why nothing supplies these cells of a row: one text for all, or one for each."""
    return "; ".join(dict.fromkeys(str(resolved.why_open(index, column)) for column in columns))
