"""The pipeline of one table's batches: fold -> reselect -> ledger -> merge -> verify.

The fast path does not read the table: the counts of the merge prove whether everything applied. If they do not (records
that are read again after a crash, a late event), the pipeline reads the stored versions of the batch's keys and
reconciles: it folds these rows again, event by event, so that the result is exact (``merge.md`` section 5). If the
second merge does not apply either, a defect or another writer is the cause, and the table fails.

Tests: ``tests/contracts/pipeline_suite.py``, ``tests/unit/runtime/pipeline/``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from headrace.core.batch.event_pairs import divisible
from headrace.core.merge.fold import fold
from headrace.core.merge.key_changes import taken_keys, with_displaced
from headrace.core.merge.tombstones import deletes_of_overtaken
from headrace.core.model.absent_columns import (
    OTHER_TYPE,
    UNREAD,
    ColumnDefaults,
    fits,
    origins_of,
    untyped_fields,
    with_defaults,
    with_generated_cells,
)
from headrace.core.model.actions import (
    Actions,
    lake_columns,
    open_rows,
    table_schema,
    with_absent_cells_kept,
    with_decided_gates,
)
from headrace.core.model.events import Changes, RowVersion, Truncate, succeed
from headrace.core.model.inferred_types import resolve_untyped_nulls
from headrace.core.model.keys import FLOOR_KEY, in_key_order
from headrace.core.model.notes import Note
from headrace.core.reselect.unresolved import OmittedChange, Resolved, UnresolvedRows
from headrace.core.tables.table_sources import refuse_truncate_of_others
from headrace.ports import Commit, LakeTable, MergeCounts
from headrace.runtime import failpoints
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions, Stages, evolve
from headrace.runtime.pipeline.position_restarts import LogEpochs, PositionRegression
from headrace.runtime.pipeline.reconciliation import Reconciler, UnexplainedCounts
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_ledger import TableLedger

log = logging.getLogger(__name__)

_RECONCILIATIONS = 3
"""A worker that was overtaken may still write for a short time, between the read and the merge of a reconciliation."""


class TablePipeline:
    """Writes the batches of one table, one at a time. ``notes`` are for the operator, with their topics."""

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
        self._ledger = TableLedger(table, now, options.tombstone_retention, reads_on=options.reads_on)
        self._epochs = LogEpochs(name, table, self._ledger)
        self._reconciler = Reconciler(name, self._ledger, reselect, self._resolve, options, stages)
        self._regression = PositionRegression(name, options.position_regression)
        self._omitted: Sequence[OmittedChange] = ()
        self._divisible = False
        self._noted: set[tuple[str, Note]] = set()
        self.notes: list[tuple[str, Note]] = []

    def prepare(self) -> bool:
        """Read the ledger if necessary, and return whether it was read.

        Trust this read only if the group still assigns the partitions to this worker afterwards: the pipeline expects
        to read the deletes of tombstones that lie ahead of its offsets itself.
        """
        self._ledger.reset_expired()
        return self._ledger.prepare()

    def write(self, content: Changes | Truncate | ColumnDefaults, commit: Commit) -> Sequence[OmittedChange]:
        """Make a batch durable: afterwards the table contains it, and the table's history contains ``commit``.

        Returns the changes that were omitted because their rows cannot be completed, if the options allow it. Raises
        Retriable (call again with the same arguments), TooLarge (call with parts of the batch) or Fatal. What was
        written before an error is not applied a second time.
        """
        self.prepare()
        self._omitted = ()
        try:
            if not isinstance(content, ColumnDefaults):
                content, commit = self._epochs.place(content, commit)
            if isinstance(content, Truncate):
                self._truncate(content, commit)
            elif isinstance(content, ColumnDefaults):
                self._ledger.record_defaults(content.defaults, content.version)
                failpoints.reach(failpoints.AFTER_LEDGER)
            else:
                self._write_changes(content, commit)
            self._fill(commit)
        except BaseException:
            self._reselect.cache.discard(content.table)
            self._ledger.reset()  # proven: ledger-after-failure
            self._epochs.reset()
            raise
        self._reselect.cache.commit(content.table)
        return sorted(
            self._omitted, key=lambda change: (change.version.topic, change.version.partition, change.version.offset)
        )

    def begin_assignment(self) -> None:
        """Begin an assignment: another worker may have written, and partitions begin at other offsets."""
        self._ledger.begin_assignment()
        self._epochs.reset()

    def maintenance_due(self) -> bool:
        return self._table.maintenance_due(self._now())

    def maintain(self) -> None:
        with self._stages("maintain"):
            self._table.maintain(self._now(), self._options.tombstone_retention)

    # -- the fast path ------------------------------------------------------------------------------------------------

    def _write_changes(self, changes: Changes, commit: Commit) -> None:
        self._divisible = divisible(changes)
        with self._stages("fold"):
            if len(changes.key_fields) > 1:
                changes = in_key_order(changes, self._table.key_fields())
            changes = resolve_untyped_nulls(changes, self._table.schema())
            self._ledger.refresh()
            changes = with_defaults(changes, self._ledger.defaults, self._table.schema())
            changes, origins = self._with_generated_cells(changes)
            self._ledger.begin_batch(changes)
            changes, actions = self._fold(changes)
            self._regression.refuse_blocked(changes, actions.superseded.stale_keys, self._ledger.entries)
        self._reselect.count_folded(changes, actions)
        complete = False
        if changes.key_changes.old_keys:  # their cells may come from stored rows, which are read before the merge
            actions = lake_columns(actions, self._table.schema())
        else:
            try:
                actions, complete = self._resolve(actions).actions, True
            except UnresolvedRows:  # the reconciliation omits them
                self._reselect.cache.discard(actions.table)
                actions = lake_columns(actions, self._table.schema())
        self._record_tombstones(actions, origins)
        failpoints.reach(failpoints.AFTER_LEDGER)
        mergeable = complete and not open_rows(actions).any()
        if not (mergeable and _all_applied(actions, self._merge(actions, commit))):
            again = Retrying(
                retry=retry_if_exception_type(UnexplainedCounts),
                stop=stop_after_attempt(_RECONCILIATIONS),
                reraise=True,
            )
            again(self._reconcile, changes, actions, commit)
        self._ledger.end_batch(changes)

    def _with_generated_cells(self, changes: Changes) -> tuple[Changes, Mapping[str, RowVersion]]:
        """Return the changes with NULL in generated columns that streamed events lack, and new entries for the ledger.

        The catalog names these columns. Without one, the origins of columns do (``reselect.md`` section 2.6).
        """
        if not changes.omits_generated:
            return changes, {}
        stored, origins = self._table.schema(), origins_of(changes)
        generated = self._reselect.generated_columns(changes.table)
        if generated is None:
            fields = untyped_fields((self._ledger.origins | origins).only_read)
            self._note(changes, [member.name for member in fields if origins.streamed], UNREAD)
        else:
            unfit = [member.name for member in generated if not fits(member, stored)]
            fields = [*(member for member in generated if member.name not in unfit), *untyped_fields(unfit)]
            self._note(changes, unfit, OTHER_TYPE)
            names = {member.name for member in generated}  # the ledger needs only these, for when there is no catalog
            origins = replace(origins, read=origins.read & names)
        present = {column.name for column in changes.columns} | set(() if stored is None else stored.names)
        new = self._ledger.origins.without_recorded(origins)
        return (
            with_generated_cells(changes, [member for member in fields if member.name in present]),
            dict.fromkeys(new.ledger_keys(), changes.version.row(0)),
        )

    def _note(self, changes: Changes, columns: Sequence[str], note: Note) -> None:
        for column in columns:
            entry = changes.version.topic, replace(note, column=column)
            if entry not in self._noted:
                self._noted.add(entry)
                self.notes.append(entry)

    def _fold(self, changes: Changes) -> tuple[Changes, Actions]:
        """Fold the changes, and mark those that delete a row which had lost its key before."""
        actions = fold(changes, self._ledger.entries)
        keys = taken_keys(changes)  # proven: keys-taken
        if keys:
            index = np.flatnonzero(np.asarray(pc.is_in(actions.key, pa.array(keys, pa.string()))))
            has_rows = len(index) and self._table.schema() is not None
            stored = self._table.stored(actions.take(index)) if has_rows else {}
            # Rows that a successor has written since do not show whose key they took. Its ledger does, which it writes
            # before them; so read it after them.
            self._ledger.refresh()
            changes, new_entries = with_displaced(changes, self._ledger.entries, stored)
            if new_entries:
                self._evolve(lake_columns(actions, self._table.schema()))
                self._ledger.record(new_entries)
            actions = fold(changes, self._ledger.entries) if changes.key_changes.displaced else actions
        return changes, actions

    def _resolve(self, actions: Actions, stored: npt.NDArray[np.bool_] | None = None) -> Resolved:
        with self._stages("reselect"):
            rows = lake_columns(actions, self._table.schema())
            return self._reselect.resolve(rows, stored, divisible=self._divisible)

    def _merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        with self._stages("merge"):
            self._evolve(actions)
            counts = self._table.merge(with_absent_cells_kept(actions), commit)
            self._delete_overtaken(actions, commit)
        failpoints.reach(failpoints.AFTER_TABLE_COMMIT)
        return counts

    def _evolve(self, actions: Actions) -> None:
        wanted = table_schema(actions)
        evolve(self._name, self._table, wanted, actions.key_fields, new_columns=self._options.evolve)

    # -- tombstones ---------------------------------------------------------------------------------------------------

    def _delete_overtaken(self, actions: Actions, commit: Commit) -> None:
        """Delete the rows just written that another worker had deleted before (``merge.md`` section 11).

        Each worker writes its ledger before the table, and this one reads the ledger after the table commit. So either
        it reads the other's tombstone here, or the other's delete finds the rows written here.
        """
        if actions.delete.all():
            return
        self._ledger.refresh()
        if rows := deletes_of_overtaken(actions, self._ledger.tombstones.learned):
            log.warning(
                "%s: %d row(s) of a batch were deleted by another worker before this worker wrote them, and are "
                "deleted again: this worker was suspended, or has lost its partitions",
                self._name,
                len(rows),
            )
            self._table.merge(rows, replace(commit, group="", offsets={}))

    def _record_tombstones(self, actions: Actions, others: Mapping[str, RowVersion] = MappingProxyType({})) -> None:
        """Write the batch's deletes and ``others`` to the ledger, before the table (``merge.md`` section 3)."""
        ledger = self._ledger.entries
        deleted = np.flatnonzero(actions.delete)
        keys = actions.key.take(pa.array(deleted)).to_pylist()
        deletes = {key: actions.version.row(int(index)) for key, index in zip(keys, deleted, strict=True)}
        ranked = {
            key: succeed(version, ledger.get(key))
            for key, version in (*deletes.items(), *actions.superseded.tombstones.items())
        }
        new = {key: version for key, version in ranked.items() if version != ledger.get(key)}
        new |= dict(others)
        if new:
            with self._stages("ledger"):
                self._evolve(actions)
                self._ledger.record(new)

    # -- truncates ----------------------------------------------------------------------------------------------------

    def _truncate(self, truncate: Truncate, commit: Commit) -> None:
        if self._options.shared:
            refuse_truncate_of_others(self._name, truncate, self._table.topics())
        self._reselect.cache.truncate(truncate.table)
        last_floor = self._ledger.entries.get(FLOOR_KEY)
        floor = succeed(truncate.version, last_floor)
        if floor == last_floor:
            self._regression.refuse_truncate(truncate, floor)
        with self._stages("merge"):
            if floor != last_floor:  # proven: floor-recorded
                self._ledger.record({FLOOR_KEY: floor})
            failpoints.reach(failpoints.AFTER_LEDGER)
            if self._table.schema() is None:
                return  # no rows to remove; the floor in the ledger blocks late events of other partitions
            self._table.truncate(truncate.version, commit)
        failpoints.reach(failpoints.AFTER_TABLE_COMMIT)

    # -- columns that are added --------------------------------------------------------------------------------------

    def _fill(self, commit: Commit) -> None:
        """Write the defaults of added columns into stored rows, as soon as the table has these columns."""
        if not self._ledger.to_fill:
            return
        stored = {column.name: column for column in self._table.schema() or ()}
        for default in [default for default in self._ledger.to_fill if default.column in stored]:
            value = default.value(stored[default.column].type)
            if value is None:
                log.warning("%s: column %s: the default does not fit the column's type", self._name, default.column)
            else:
                with self._stages("merge"):
                    self._table.fill(default.column, value, self._ledger.defaults[default], commit)
                failpoints.reach(failpoints.AFTER_TABLE_COMMIT)
            self._ledger.to_fill.discard(default)

    # -- reconciliation -----------------------------------------------------------------------------------------------

    def _reconcile(self, changes: Changes, actions: Actions, commit: Commit) -> None:
        """Fold the batch again against the stored versions, and write the remaining actions in a second commit.

        Raises UnexplainedCounts if another worker has written in between.
        """
        with self._stages("reconcile"):
            stored = {} if self._table.schema() is None else self._table.stored(actions)
            # A row that another worker has removed since is missing in this read, with cells that a change of this
            # batch may need. That worker's ledger, written before, shows that the change need not apply any more.
            self._ledger.refresh()  # proven: removed-by-others
            self._regression.refuse(changes, stored)
        rest, self._omitted, complete = self._reconciler.reconcile(changes, stored)
        if not complete:
            self._record_tombstones(rest)  # of deletes that a later, now omitted change had replaced
        if len(rest) == 0:
            return
        rest = with_decided_gates(rest, stored)
        counts = self._merge(rest, commit)
        self._reconciler.refuse_unexplained(rest, counts, stored)


def _all_applied(actions: Actions, counts: MergeCounts) -> bool:
    """Whether the counts prove that the gate blocked no action.

    A delete may find no row if the batch itself has created that row, so as many may be missing. A delete that the gate
    blocks is stale, because its gate is its own position. So are the events that it replaces, unless these include
    reads without a position.
    """
    reads = actions.superseded.reads
    if reads is not None and reads.any():
        return False
    upserts = int((~actions.delete).sum())
    missing = int(actions.delete.sum()) - counts.deleted
    # proven: merge-applied
    return counts.upserted == upserts and missing <= int((actions.delete & actions.fresh).sum())
