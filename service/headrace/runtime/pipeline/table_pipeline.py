"""One table's batches on their way into the lake: fold -> reselect -> ledger -> merge -> verify.

The fast path needs no read of the table: the merge itself tells by its counts whether everything applied. Where it did
not (a replay after a crash, a late event), the stored positions of the batch's keys are read and the core folds those
rows again, event by event, so that the result is exact (``merge.md`` section 5). Whatever then still did not apply is a
defect or a second writer, and stops the task.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from headrace.core.batch.event_pairs import divisible
from headrace.core.merge.actions import (
    lake_columns,
    open_rows,
    table_schema,
    take_actions,
    with_absent_cells_kept,
    with_decided_gates,
)
from headrace.core.merge.displaced import taken_keys, with_displaced
from headrace.core.merge.fold import fold
from headrace.core.merge.tombstones import taken_back
from headrace.core.model.column_defaults import ColumnDefaults, with_defaults
from headrace.core.model.conform import resolve_untyped_nulls
from headrace.core.model.events import Actions, Changes, Truncate
from headrace.core.model.keys import FLOOR_KEY, in_key_order
from headrace.core.model.ranking import succeed
from headrace.core.reselect.causes import Resolved
from headrace.core.reselect.unresolved import LeftOut, UnresolvedRows
from headrace.core.tables.table_sources import refuse_truncate_of_others
from headrace.ports import Commit, LakeTable, MergeCounts
from headrace.runtime import failpoints
from headrace.runtime.pipeline.exact_path import ExactPath, Unexplained
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions, Stages
from headrace.runtime.pipeline.position_regression import PositionRegression
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.schema_evolution import evolve
from headrace.runtime.pipeline.table_ledger import TableLedger

log = logging.getLogger(__name__)

_SETTLEMENTS = 3


class TablePipeline:
    """Writes the batches of one table, one at a time."""

    def __init__(
        self,
        name: str,
        table: LakeTable,
        reselect: Reselect,
        options: PipelineOptions,
        now: Callable[[], int],
        stages: Stages,
    ) -> None:
        self._name = name
        self._table = table
        self._reselect = reselect
        self._options = options
        self._now = now
        self._stages = stages
        self._ledger = TableLedger(table, now, options.tombstone_retention)
        self._exact = ExactPath(name, self._ledger, reselect, self._resolve, options, stages)
        self._regression = PositionRegression(name, options.position_regression)
        self._left_out: Sequence[LeftOut] = ()
        self._divisible = False

    def prepare(self) -> bool:
        """Read the ledger where it is not known; whether that was so.

        What was read counts only for who was still the partitions' owner afterwards: it takes a tombstone that lies
        ahead for one whose delete it will read itself.
        """
        return self._ledger.prepare()

    def write(self, content: Changes | Truncate | ColumnDefaults, commit: Commit) -> Sequence[LeftOut]:
        """Make a batch durable: once this returns, the table reflects it and ``commit`` stands in its history.

        Returns the changes that were left out, because the options say so of rows that cannot be completed. Raises
        Retriable (call again with the same arguments), TooLarge (call with parts of the batch) or Fatal. Nothing is
        half done: whatever was written before an error does not apply a second time.
        """
        self.prepare()
        self._left_out = ()
        try:
            if isinstance(content, Truncate):
                self._truncate(content, commit)
            elif isinstance(content, ColumnDefaults):
                self._ledger.remember_defaults(content.defaults, content.version)
                failpoints.reach("after-ledger")
            else:
                self._write_changes(content, commit)
            self._fill(commit)
        except BaseException:
            self._reselect.cache.discard(content.table)
            self._ledger.forget()
            raise
        self._reselect.cache.commit(content.table)
        return sorted(
            self._left_out, key=lambda each: (each.version.topic, each.version.partition, each.version.offset)
        )

    def assigned(self) -> None:
        """Another assignment begins: somebody else may have written, and partitions begin at other offsets."""
        self._ledger.assigned()

    def maintain(self) -> None:
        """Compaction, snapshot expiry and ledger retention, if due."""
        with self._stages("maintain"):
            self._table.maintain(self._now(), self._options.tombstone_retention)
        self._ledger.forget_expired()

    # -- the fast path ------------------------------------------------------------------------------------------------

    def _write_changes(self, changes: Changes, commit: Commit) -> None:
        self._divisible = divisible(changes)
        with self._stages("fold"):
            changes = resolve_untyped_nulls(self._with_keys_of_table(changes), self._table.schema())
            self._ledger.heed_others()
            changes = with_defaults(changes, self._ledger.defaults, self._table.schema())
            self._ledger.tombstones.begin(changes.version)
            changes, actions = self._folded(changes)
            self._regression.refuse_blocked(changes, actions.stale, self._ledger.known)
        self._reselect.count_folded(changes, actions)
        whole = False
        if changes.old_key:  # its cells may come from a stored row: which row that is has to be known before the merge
            actions = lake_columns(actions, self._table.schema())
        else:
            actions, whole = self._resolve_if_possible(actions)
        self._record_tombstones(actions)
        failpoints.reach("after-ledger")
        guess = not whole or bool(open_rows(actions).any())
        if guess or not _all_applied(actions, self._merge(actions, commit)):
            self._settle(changes, actions, commit)
        self._ledger.tombstones.end(changes.version)

    def _folded(self, changes: Changes) -> tuple[Changes, Actions]:
        """The changes folded, and marked where one deletes a row that has lost its key before."""
        actions = fold(changes, self._ledger.known)
        keys = taken_keys(changes)
        if keys:
            index = np.flatnonzero(np.asarray(pc.is_in(actions.key, pa.array(keys, pa.string()))))
            known = len(index) and self._table.schema() is not None
            stored = self._table.stored(take_actions(actions, index)) if known else {}
            # Rows that a successor has written meanwhile do not show whose key they took: its ledger does, which is
            # written before them and so has to be read after them.
            self._ledger.heed_others()
            changes, remembered = with_displaced(changes, self._ledger.known, stored)
            if remembered:
                self._evolve(lake_columns(actions, self._table.schema()))
                self._ledger.record(remembered)
            actions = fold(changes, self._ledger.known) if changes.displaced else actions
        return changes, actions

    def _with_keys_of_table(self, changes: Changes) -> Changes:
        return in_key_order(changes, self._table.key_fields()) if len(changes.key_fields) > 1 else changes

    def _resolve(self, actions: Actions, stored: npt.NDArray[np.bool_] | None = None) -> Resolved:
        with self._stages("reselect"):
            rows = lake_columns(actions, self._table.schema())
            return self._reselect.resolve(rows, stored, divisible=self._divisible)

    def _resolve_if_possible(self, actions: Actions) -> tuple[Actions, bool]:
        """Return the resolved actions and True, or the actions as they are and False if rows must be omitted.

        The exact path omits these rows.
        """
        try:
            return self._resolve(actions).actions, True
        except UnresolvedRows:
            self._reselect.cache.discard(actions.table)
            return lake_columns(actions, self._table.schema()), False

    def _merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        with self._stages("merge"):
            self._evolve(actions)
            counts = self._table.merge(with_absent_cells_kept(actions), commit)
            self._take_back(actions, commit)
        failpoints.reach("after-table-commit")
        return counts

    def _evolve(self, actions: Actions) -> None:
        wanted = table_schema(actions)
        evolve(self._name, self._table, wanted, actions.key_fields, new_columns=self._options.evolve)

    # -- tombstones ---------------------------------------------------------------------------------------------------

    def _take_back(self, actions: Actions, commit: Commit) -> None:
        """Remove the rows just written that somebody else had deleted before (``merge.md`` section 11).

        The ledger is looked at after the table commit, and everybody writes to it before the table: a tombstone is
        either seen here, or its delete finds our rows.
        """
        if actions.delete.all():
            return
        self._ledger.heed_others()
        if rows := taken_back(actions, self._ledger.tombstones.learned):
            log.warning(
                "%s: %d row(s) of a batch were deleted by another worker before they were written, and are removed "
                "again: this worker stood still, or has lost its partitions",
                self._name,
                len(rows),
            )
            self._table.merge(rows, replace(commit, group="", offsets={}))

    def _record_tombstones(self, actions: Actions) -> None:
        """Write the batch's deletes into the ledger, before the table (``merge.md`` section 3)."""
        known = self._ledger.known
        deleted = np.flatnonzero(actions.delete)
        keys = actions.key.take(pa.array(deleted)).to_pylist()
        deletes = {key: actions.version.row(int(index)) for key, index in zip(keys, deleted, strict=True)}
        ranked = {key: succeed(version, known.get(key)) for key, version in (*deletes.items(), *actions.buried.items())}
        new = {key: version for key, version in ranked.items() if version != known.get(key)}
        if new:
            with self._stages("ledger"):
                self._evolve(actions)
                self._ledger.record(new)

    # -- truncates ----------------------------------------------------------------------------------------------------

    def _truncate(self, truncate: Truncate, commit: Commit) -> None:
        if self._options.shared:
            refuse_truncate_of_others(self._name, truncate, self._table.topics())
        self._reselect.cache.truncate(truncate.table)
        known = self._ledger.known.get(FLOOR_KEY)
        floor = succeed(truncate.version, known)
        if floor == known:
            self._regression.refuse_truncate(truncate, known)
        with self._stages("merge"):
            if floor != known:
                self._ledger.record({FLOOR_KEY: floor})
            failpoints.reach("after-ledger")
            if self._table.schema() is None:
                return  # nothing to remove; what another partition brings late is below the floor in the ledger
            self._table.truncate(truncate.version, commit)
        failpoints.reach("after-table-commit")

    # -- columns that are added --------------------------------------------------------------------------------------

    def _fill(self, commit: Commit) -> None:
        """Give the rows that stand the defaults of columns that the table has by now."""
        if not self._ledger.to_fill:
            return
        stored = {column.name: column for column in self._table.schema() or ()}
        for default in [default for default in self._ledger.to_fill if default.column in stored]:
            value = default.value(stored[default.column].type)
            if value is None:
                log.warning("%s: the default of column %s does not fit its type", self._name, default.column)
            else:
                with self._stages("merge"):
                    self._table.fill(default.column, value, self._ledger.defaults[default], commit)
                failpoints.reach("after-table-commit")
            self._ledger.to_fill.discard(default)

    # -- the exact path -----------------------------------------------------------------------------------------------

    def _settle(self, changes: Changes, actions: Actions, commit: Commit) -> None:
        """Fold the batch again against what is stored, and write what is left in a second commit.

        Once more where somebody has written in between: a worker that was overtaken may do so, though not for long.
        """
        again = Retrying(
            retry=retry_if_exception_type(Unexplained), stop=stop_after_attempt(_SETTLEMENTS), reraise=True
        )
        again(self._settle_once, changes, actions, commit)

    def _settle_once(self, changes: Changes, actions: Actions, commit: Commit) -> None:
        with self._stages("settle"):
            stored = {} if self._table.schema() is None else self._table.stored(actions)
            # A row that another worker has removed meanwhile is missing in what was just read, with cells that a change
            # of this batch may need. Its ledger, written before, tells that the change need not apply any more.
            self._ledger.heed_others()
            self._regression.refuse(changes, stored)
        rest, self._left_out, whole = self._exact.settled(changes, stored)
        if not whole:
            self._record_tombstones(rest)  # of deletes that a change which was left out stood on
        if len(rest) == 0:
            return
        rest = with_decided_gates(rest, stored)
        counts = self._merge(rest, commit)
        self._exact.refuse_unexplained(rest, counts, stored)


def _all_applied(actions: Actions, counts: MergeCounts) -> bool:
    """Whether the counts prove that nothing was held back by the gate.

    A delete that finds no row is the rule where the row was made within the same batch, so as many may be missing; one
    that is held back is stale by definition, as its gate is its own position, and so is all that it stands for, unless
    that includes reads without a position.
    """
    if actions.hiding is not None and actions.hiding.any():
        return False
    upserts = int((~actions.delete).sum())
    missing = int(actions.delete.sum()) - counts.deleted
    return counts.upserted == upserts and missing <= int((actions.delete & actions.fresh).sum())
