"""Reconciliation: a batch is folded again against the stored versions of its rows (``merge.md`` section 5).

``table_pipeline.py`` calls it if the counts of its merge do not prove that all events were applied.

Tests: ``tests/unit/runtime/pipeline/test_reconciliation.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headrace.core.batch.combine import without_events
from headrace.core.merge.fold import fold
from headrace.core.model.actions import (
    OPEN,
    Actions,
    open_rows,
    with_nulls_for_absent_cells,
    with_nulls_for_open_cells,
    without_hollow_carries,
)
from headrace.core.model.errors import Fatal
from headrace.core.model.events import Bools, Changes, RowVersion
from headrace.core.reselect.unresolved import OmittedChange, Resolved, UnresolvedRows, omitted_changes
from headrace.ports import MergeCounts
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions, Stages
from headrace.runtime.pipeline.position_restarts import record_name
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_ledger import TableLedger


class UnexplainedCounts(Fatal):
    """A merge did not apply what the stored versions require: another worker wrote between the read and the merge."""


class Reconciled(NamedTuple):
    """The actions of a batch that are still to be written, and the changes for the dead letter queue instead.

    ``complete`` is False if changes were omitted from the actions, with or without a dead letter.
    """

    actions: Actions
    omitted: Sequence[OmittedChange]
    complete: bool


class Reconciler:
    """Determines which actions of a batch are still to be written to one table.

    ``resolve`` completes actions, given which of them have a stored row.
    """

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

    def reconcile(self, changes: Changes, stored: Mapping[str, RowVersion]) -> Reconciled:
        """Return the actions that are still to be written, with every cell decided.

        Omits rows that cannot be completed if the options allow it, or if a delete that is read again removes them.
        """
        dead_letters: list[OmittedChange] = []
        complete = True
        while True:
            with self._stages("reconcile"):
                rest = fold(changes, self._ledger.entries, stored)
            if rest.carried is None:  # carried cells refer to actions by index
                rest = rest.take(np.flatnonzero(~rest.delete | _has_stored(rest, stored)))
            has_stored = _has_stored(rest, stored)
            rest = without_hollow_carries(rest, has_stored)
            try:
                resolved = self._resolve(rest, has_stored)
                return Reconciled(self._decide_open_cells(resolved, has_stored), dead_letters, complete)
            except UnresolvedRows as error:
                self._reselect.cache.discard(changes.table)
                columns = {rest.key[index].as_py(): names for index, names in error.columns.items()}
                deleted = {rest.key[index].as_py() for index in error.columns if self._is_deleted_later(rest, index)}
                unresolved = omitted_changes(changes, columns, self._ledger.entries, stored, str(error))
                dead_letters += [
                    change for index, change in unresolved.items() if changes.key[index].as_py() not in deleted
                ]
                changes, complete = without_events(changes, unresolved), False

    def _decide_open_cells(self, resolved: Resolved, has_stored: Bools) -> Actions:
        """Apply ``reselect.unresolved.insert.mode`` to cells without a value and without a stored row."""
        rest = with_nulls_for_absent_cells(resolved.actions, has_stored)
        hollow = open_rows(rest, has_stored)
        if not hollow.any():
            return rest
        columns = {
            row: tuple(cells.name for cells in rest.columns if cells.states is not None and cells.states[row] in OPEN)
            for row in np.flatnonzero(hollow).tolist()
        }
        deleted = {index: names for index, names in columns.items() if self._is_deleted_later(rest, index)}
        if deleted and self._options.unresolved_insert_mode != "null":
            raise UnresolvedRows("the row has been deleted since", deleted)
        updates = int((hollow & ~rest.fresh).sum())
        self._reselect.count_contradictions(rest, "update_without_create", updates)
        if self._options.unresolved_insert_mode == "null":
            return with_nulls_for_open_cells(rest, hollow)
        causes = {  # by row: one text for all of its cells, or one for each
            index: "; ".join(dict.fromkeys(str(resolved.why_open(index, name)) for name in names))
            for index, names in columns.items()
        }
        index, cause = next(iter(causes.items()))
        if self._options.unresolved_insert_mode == "dlq":
            alike = {row: names for row, names in columns.items() if causes[row] == cause}
            raise UnresolvedRows(f"the row is not in {self._name}, and {cause}", alike)
        raise Fatal(
            f"{self._name}: {record_name(rest.version.row(index))} omits column(s) {', '.join(columns[index])} of a "
            f"row that is not in the table, and {cause}"
        )

    def _is_deleted_later(self, rest: Actions, index: int) -> bool:
        return self._ledger.tombstones.ends(rest.key[index].as_py(), rest.version.row(index))

    def refuse_unexplained(self, rest: Actions, counts: MergeCounts, stored: Mapping[str, RowVersion]) -> None:
        """Raise UnexplainedCounts if a merge of ``rest`` did not apply all of it. It counts as a contradiction."""
        upserts = int((~rest.delete).sum())
        deletes = int((rest.delete & _has_stored(rest, stored)).sum())
        if (counts.upserted, counts.deleted) != (upserts, deletes):
            unexplained = abs(upserts - counts.upserted) + abs(deletes - counts.deleted)
            self._reselect.count_contradictions(rest, "unexplained_counts", unexplained)
            raise UnexplainedCounts(
                f"{self._name}: {upserts} upserts and {deletes} deletes were due, but {counts.upserted} and "
                f"{counts.deleted} applied, and no rule explains the difference: another writer may write to this "
                "table; stop it, then restart the task"
            )


def _has_stored(actions: Actions, stored: Mapping[str, RowVersion]) -> Bools:
    return np.fromiter((key in stored for key in actions.key.to_pylist()), np.bool_, len(actions))
