"""Writes rows of the source into their lake table again, through the path that every change takes.

The connector's task writes the same table meanwhile, and of two commits the second has to begin again; a task that is
first every time is asked to rest (``connector_rest.py``). Every attempt begins with a fresh look: what it writes gives
way to every event that came after that look, by the gates of the merge. What gates cannot see is a row that was deleted
in between: an upsert would make it anew. Its tombstone is in the ledger before it goes, so the ledger is read after the
write, and where it tells of such a row the rows are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, wait_random

from headrace.core.model.errors import Fatal, Retriable
from headrace.core.model.events import Actions, Changes, RowVersion
from headrace.core.model.keys import canonical_keys
from headrace.core.reselect.causes import NO_DATABASE, Resolved
from headrace.core.reselect.options import ReselectOptions
from headrace.core.verify.repair import Repair, overtaken, repair_changes
from headrace.core.verify.verification import VERSION, Verdict, Where
from headrace.ports import Commit
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reconciliation import UnexplainedCounts
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.verify.lake_progress import Offsets
from headrace.runtime.verify.table_verifier import Clock, Difference, TableVerifier, VerifiedTable, key_digests, under

_NO_BATCH = 0


class _Beaten(Retriable):
    """The connector's task was faster, and the rows have to be looked at again."""


@dataclass(frozen=True, slots=True)
class Sink:
    """Whose table it is: what a task of the connector would write with, and how many seconds writing may take."""

    connector: str
    topic: str
    table_name: str
    options: PipelineOptions
    patience: float = 0.0


class TableRepair:
    """Mends one table. The connector may run meanwhile: what it applies later wins, as always."""

    def __init__(
        self,
        table: VerifiedTable,
        verifier: TableVerifier,
        sink: Sink,
        offsets: Offsets,
        clock: Clock,
        now: Callable[[], int],
        paused: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """``now`` in microseconds. ``paused`` keeps the connector's tasks from writing for a time, if that can be."""
        self._table = table
        self._verifier = verifier
        self._sink = sink
        self._offsets = offsets
        self._clock = clock
        self._now = now
        self._paused = paused
        self._busy = False
        options = replace(sink.options, unresolved_insert_mode="fail")  # there is no record behind a repaired row
        self._pipeline = TablePipeline(
            sink.table_name, table.lake, _CompleteRows(), options, now, lambda stage: nullcontext()
        )

    def mend(self, differences: Sequence[Difference]) -> int:
        """Read the rows again and write them; returns how many were chosen for that.

        Left are a row that stands twice (which of the two to remove, a merge by key cannot say) and one that may only
        be waiting for its delete: changes that come before that delete would not find it. Raises Fatal where the topic
        is gone, Retriable when patience has ended, and whatever reading and writing raise.
        """
        chosen = [each for each in differences if _to_be_mended(each)]
        if chosen:
            surplus = {key for each in chosen if each.where is Where.LAKE for key in key_digests(each.key)}
            self._mend(pa.concat_tables([each.key for each in chosen]).combine_chunks(), surplus)
        return len(chosen)

    def _mend(self, keys: pa.Table, surplus: set[int]) -> None:
        """Beside the connector's task if it lets us in; where it always commits first, it is asked to rest."""
        if not self._busy:
            try:
                self._write_as_they_are(keys, surplus)
                return
            except _Beaten:
                self._busy = True
        with self._paused():
            self._insist(keys, surplus)

    def _insist(self, keys: pa.Table, surplus: set[int]) -> None:
        """Again and again: nobody may have been there to be asked."""
        deadline = self._clock.now() + self._sink.patience
        retrying = Retrying(
            retry=retry_if_exception_type(_Beaten),
            stop=lambda _: self._clock.now() >= deadline,
            wait=wait_random(0, 1),  # the task commits in a rhythm of its own, which is to be missed
            sleep=self._clock.sleep,
            reraise=True,
        )
        try:
            retrying(self._write_as_they_are, keys, surplus)
        except _Beaten as error:
            raise Retriable(
                f"{error}; if the connector's task commits all the time, pause it "
                f"(PUT /connectors/{self._sink.connector}/pause), repeat with --repair, then resume it"
            ) from error

    def _write_as_they_are(self, keys: pa.Table, surplus: set[int]) -> None:
        """One attempt. First the offsets, then the rows: what stands below those offsets is included in what is read
        after them. Of rows that the source does not have, only the ``surplus`` is removed; others have a delete on its
        way. Rows that turn out to have been deleted during the write join the surplus."""
        ends = self._ends()
        read_at = self._now()
        source = self._verifier.fetch(keys)
        gone = under(keys, (set(key_digests(keys)) - set(source.key.tolist())) & surplus)
        if not len(source) + len(gone):
            return
        repair = Repair(self._table.id, self._sink.topic, ends, read_at, self._known(keys))
        changes = repair_changes(self._table.wanted, source, gone, repair)
        self._write(changes)
        if dead := overtaken(changes, self._table.lake.ledger()):
            surplus.update(source.key[dead].tolist())
            raise _Beaten(f"{self._sink.table_name}: {len(dead)} row(s) were deleted while they were being written")

    def _write(self, changes: Changes) -> None:
        try:
            self._pipeline.write(changes, Commit(_NO_BATCH, self._sink.connector))
        except (Retriable, UnexplainedCounts) as error:
            raise _Beaten(str(error)) from error

    def _ends(self) -> dict[int, int]:
        ends = {place.partition: end for place, end in self._offsets.ends(self._sink.topic).items()}
        if not ends:
            raise Fatal(f"topic {self._sink.topic} does not exist any more: there is no offset to repair rows at")
        return ends

    def _known(self, keys: pa.Table) -> dict[str, RowVersion]:
        """The versions that a repaired row has to succeed: tombstones, and what stands under the keys."""
        known = dict(self._table.lake.ledger())
        rows = self._table.lake.read(keys)
        if len(rows):
            columns = [rows[name].combine_chunks() for name in self._table.wanted.key_fields]
            stored = dict(zip(canonical_keys(columns).to_pylist(), _versions(rows), strict=True))
            known |= {key: version for key, version in stored.items() if version is not None}
        return known


def _to_be_mended(difference: Difference) -> bool:
    if difference.where is Where.TWICE:
        return False
    return difference.verdict is Verdict.DIFFERENT or (
        difference.verdict is Verdict.UNPROVEN and difference.where is not Where.LAKE
    )


def _versions(rows: pa.Table) -> list[RowVersion | None]:
    *names, time = VERSION
    times = rows[time].combine_chunks().view(pa.int64()).to_pylist()
    columns = [rows[name].to_pylist() for name in names]
    return [
        None if topic is None else RowVersion((position or "").encode(), topic, partition, offset, at)
        for position, topic, partition, offset, at in zip(*columns, times, strict=True)
    ]


class _CompleteRows(Reselect):
    """The reselect of rows that were read from the source: no cell is open, and no value is a placeholder."""

    def __init__(self) -> None:
        super().__init__(ReselectOptions())

    def resolve(
        self, actions: Actions, stored: npt.NDArray[np.bool_] | None = None, *, divisible: bool = False
    ) -> Resolved:
        """Return the actions as they are."""
        return Resolved(actions, lambda row, column: NO_DATABASE)
