"""One table's batches on their way into a history (``insert.mode=insert``): skip what is in, reselect, append.

A row has no position that a merge could compare, so what makes the effect exactly-once are offsets: every commit says,
for all partitions, up to which offset their events are in, and after a restart nothing below is written again
(``merge.md`` section 9).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from headrace.core.batch.event_pairs import divisible
from headrace.core.merge.actions import lake_columns
from headrace.core.merge.fold import fold
from headrace.core.merge.history import (
    History,
    history,
    history_schema,
    next_offsets,
    truncated,
    unread,
    with_nulls_for_doubted_cells,
    without_last_resorts,
)
from headrace.core.model.conform import resolve_untyped_nulls
from headrace.core.model.events import Actions, Changes, Truncate
from headrace.ports import Commit, LakeTable, TopicPartition
from headrace.runtime import failpoints
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions, Stages
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.schema_evolution import evolve


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
        self._offsets: dict[tuple[str, int], int] | None = None

    def prepare(self) -> bool:
        """Nothing to read: what another worker has appended is left out by the append itself."""
        return False

    def write(self, content: Changes | Truncate, commit: Commit) -> tuple[()]:
        """Make a batch durable; its events that are in the table already are left out.

        Raises Retriable (call again with the same arguments), TooLarge (with parts of the batch) or Fatal.
        """
        try:
            rows = self._rows(content, self._known_offsets(commit.group))
            if len(rows):
                self._append(rows, commit)
        except BaseException:
            self._reselect.cache.discard(content.table)
            self._offsets = None  # ask the table again: the commit may have gone in
            raise
        self._reselect.cache.commit(content.table)
        return ()

    def assigned(self) -> None:
        """Another assignment begins: somebody else may have written."""
        self._offsets = None

    def maintain(self) -> None:
        """Compaction and clean-up, if due."""
        with self._stages("maintain"):
            self._table.maintain(self._now(), self._options.tombstone_retention)

    def _rows(self, content: Changes | Truncate, offsets: Mapping[tuple[str, int], int]) -> History:
        if isinstance(content, Truncate):
            self._reselect.cache.truncate(content.table)
            return truncated(content, offsets)
        with self._stages("fold"):
            changes = resolve_untyped_nulls(unread(content, offsets), self._table.schema())
            if self._options.unknown_null_mode == "null":
                changes = with_nulls_for_doubted_cells(changes)
        return history(changes, self._resolved(changes), self._table.schema())

    def _resolved(self, changes: Changes) -> Actions | None:
        """The row after the batch, as reselect completes it; None where no cell is open."""
        if not changes.key_fields or all(column.states is None for column in changes.columns):
            return None
        with self._stages("reselect"):
            last = without_last_resorts(fold(changes))
            rows = lake_columns(last, self._table.schema())
            return self._reselect.resolve(rows, divisible=divisible(changes)).actions

    def _append(self, rows: History, commit: Commit) -> None:
        offsets = {**self._known_offsets(commit.group), **next_offsets(rows.version)}
        places = {TopicPartition(topic, partition): offset for (topic, partition), offset in offsets.items()}
        with self._stages("merge"):
            evolve(self._name, self._table, history_schema(rows), (), new_columns=self._options.evolve)
            self._table.append(rows, replace(commit, offsets=places))
        failpoints.reach("after-table-commit")
        self._offsets = offsets

    def _known_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """What is in below which offset. Without a group nothing is said of offsets: coordinates alone decide."""
        if not group:
            return {}
        if self._offsets is None:
            stored = self._table.offsets(group)
            self._offsets = {(place.topic, place.partition): offset for place, offset in stored.items()}
        return self._offsets
