"""The pipeline of one history (``insert.mode=insert``): skip events that the table contains, reselect, append.

A row of a history has no position for a merge to compare. Offsets make its writes exactly-once: every commit records,
for all partitions, the offset up to which the table contains their events, and after a restart no event below it is
written again (``merge.md`` section 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.core.batch.event_pairs import divisible
from headrace.core.merge.fold import fold
from headrace.core.merge.history import (
    History,
    changes_to_append,
    history,
    history_schema,
    next_offsets,
    truncate_row,
    with_nulls_for_doubted_cells,
    without_last_resorts,
)
from headrace.core.model.actions import lake_columns
from headrace.core.model.events import Changes, Truncate
from headrace.core.model.inferred_types import resolve_untyped_nulls
from headrace.ports import Commit, LakeTable, TopicPartition
from headrace.runtime import failpoints
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions, Stages, evolve
from headrace.runtime.pipeline.reselect import Reselect


class HistoryPipeline:
    """Writes the batches of one table, one at a time; the counterpart of ``TablePipeline``."""

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
        self._offsets: dict[TopicPartition, int] | None = None

    def prepare(self) -> bool:
        """Return False: nothing is to be read, because the append skips what another worker has appended."""
        return False

    def write(self, content: Changes | Truncate, commit: Commit) -> tuple[()]:
        """Make a batch durable, without the events that the table already contains.

        Raises Retriable (call again with the same arguments), TooLarge (with parts of the batch) or Fatal.
        """
        try:
            if self._offsets is None or not commit.group:  # without a group, the coordinates of rows alone decide
                self._offsets = dict(self._table.offsets(commit.group)) if commit.group else {}
            offsets = self._offsets
            if isinstance(content, Truncate):
                self._reselect.cache.truncate(content.table)
                rows = truncate_row(content, offsets)
            else:
                rows = self._rows(content, offsets)
            if len(rows):
                offsets = {**offsets, **next_offsets(rows.version)}
                with self._stages("merge"):
                    evolve(self._name, self._table, history_schema(rows), (), new_columns=self._options.evolve)
                    self._table.append(rows, replace(commit, offsets=offsets))
                failpoints.reach(failpoints.AFTER_TABLE_COMMIT)
                self._offsets = offsets
        except BaseException:
            self._reselect.cache.discard(content.table)
            self._offsets = None  # read them again: the commit may have succeeded
            raise
        self._reselect.cache.commit(content.table)
        return ()

    def begin_assignment(self) -> None:
        """Begin an assignment: another worker may have written."""
        self._offsets = None

    def maintenance_due(self) -> bool:
        return self._table.maintenance_due(self._now())

    def maintain(self) -> None:
        with self._stages("maintain"):
            self._table.maintain(self._now(), self._options.tombstone_retention)

    def _rows(self, changes: Changes, offsets: Mapping[TopicPartition, int]) -> History:
        with self._stages("fold"):
            changes = resolve_untyped_nulls(changes_to_append(changes, offsets), self._table.schema())
            if self._options.unknown_null_mode == "null":
                changes = with_nulls_for_doubted_cells(changes)
        if not changes.key_fields or all(column.states is None for column in changes.columns):
            return history(changes, stored=self._table.schema())
        # Reselect reads the rows as they are after the batch: the values of the last event of each row.
        with self._stages("reselect"):
            rows = lake_columns(without_last_resorts(fold(changes)), self._table.schema())
            last = self._reselect.resolve(rows, divisible=divisible(changes)).actions
        return history(changes, last, self._table.schema())
