"""Writes rows of the source into their lake table again, through the normal path of changes.

The connector's task may write the same table at the same time, and the second of two commits has to begin again. If the
task always commits first, its connector is paused (``connector_rest.py``). Every attempt begins with a new read of the
source; the gates of the merge prefer every event after that read. They cannot detect a row that was deleted since: an
upsert would create it again. The ledger gets its tombstone before the table gets the delete. So the repair reads the
ledger after the write, and reads the rows again if the ledger contains such a tombstone.

If transforms change columns of the table, a repair writes the others of stored rows. It does not write a row that the
lake lacks: only an event of it, as a new snapshot sends it, has what the transforms make of it.

Tests: ``tests/unit/runtime/verify/test_table_verifier.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, wait_random

from headrace.core.model.actions import Actions
from headrace.core.model.errors import Fatal, Retriable
from headrace.core.model.events import RowVersion
from headrace.core.model.keys import canonical_keys
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.unresolved import NO_DATABASE, Resolved
from headrace.core.verify.repair import Repair, find_overtaken, repair_changes
from headrace.core.verify.verification import VERSION, Comparison, Verdict, Where
from headrace.ports import Commit
from headrace.runtime.pipeline.pipeline_parts import PipelineOptions
from headrace.runtime.pipeline.reconciliation import UnexplainedCounts
from headrace.runtime.pipeline.reselect import Reselect
from headrace.runtime.pipeline.table_pipeline import TablePipeline
from headrace.runtime.verify.table_verifier import (
    Clock,
    Difference,
    Offsets,
    TableVerifier,
    key_digests,
    under,
)
from headrace.runtime.verify.verified_table import VerifiedTable


class _Overtaken(Retriable):
    """The connector's task committed first; read the rows again."""


@dataclass(frozen=True, slots=True)
class Sink:
    """The connector of the table, the options of its tasks, and the seconds that a repair may take (``timeout``)."""

    connector: str
    topic: str
    table_name: str
    options: PipelineOptions
    timeout: float = 0.0


class TableRepair:
    """Repairs one table. The connector may run at the same time: the changes that it applies later win, as always."""

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
        """``now`` returns microseconds. ``paused`` pauses the connector during its block, if that is possible."""
        self._table = table
        self._verifier = verifier
        self._sink = sink
        self._offsets = offsets
        self._clock = clock
        self._now = now
        self._paused = paused
        self._busy = False
        # No record exists for a dead letter. A row that would lack cells which transforms make is omitted.
        options = replace(sink.options, unresolved_insert_mode="dlq" if table.wanted.changed else "fail")
        self._pipeline = TablePipeline(
            sink.table_name, table.lake, _CompleteRows(), options, now, lambda stage: nullcontext()
        )

    def repair(self, differences: Sequence[Difference]) -> int:
        """Read the rows that differ again and write them; returns the number of chosen rows.

        Chooses no row of a history, which contains events and nothing else. Does not choose a row that is stored twice
        (a merge by key cannot select one of them), one that may still wait for its delete (changes before that delete
        would not find it), or one that ``is_left_out``. Raises Fatal if the topic does not exist, Retriable after the
        timeout, and the errors of reads and writes.
        """
        wanted = self._table.wanted
        chosen = [row for row in differences if _is_repairable(row) and not is_left_out(row, wanted)]
        if not chosen or self._table.history:
            return 0
        surplus = {key for row in chosen if row.where is Where.LAKE for key in key_digests(row.key)}
        keys = pa.concat_tables([row.key for row in chosen]).combine_chunks()
        if not self._busy:
            try:
                self._write_once(keys, surplus)  # beside the connector's task
                return len(chosen)
            except _Overtaken:
                self._busy = True
        with self._paused():
            # The connector may run on another worker, and not be paused. So attempts are repeated, and their waits are
            # random in order not to follow the rhythm of the task's commits.
            deadline = self._clock.now() + self._sink.timeout
            retrying = Retrying(
                retry=retry_if_exception_type(_Overtaken),
                stop=lambda _: self._clock.now() >= deadline,
                wait=wait_random(0, 1),
                sleep=self._clock.sleep,
                reraise=True,
            )
            try:
                retrying(self._write_once, keys, surplus)
            except _Overtaken as error:
                raise Retriable(
                    f"{error}; if the connector's task commits all the time, pause it "
                    f"(PUT /connectors/{self._sink.connector}/pause), repeat with --repair, then resume it"
                ) from error
        return len(chosen)

    def _write_once(self, keys: pa.Table, surplus: set[int]) -> None:
        """Try to write the rows once.

        Read the topic's end before the source: the source then contains the events below that end. Of the rows that
        the source lacks, only those in ``surplus`` are deleted, because the deletes of others are still to be applied.
        Rows that were deleted during the write are added to ``surplus``.
        """
        ends = {partition.partition: end for partition, end in self._offsets.ends(self._sink.topic).items()}
        if not ends:
            raise Fatal(f"topic {self._sink.topic}: does not exist any more: repaired rows need an offset in it")
        read_at = self._now()
        source = self._verifier.fetch(keys)
        deleted = under(keys, (set(key_digests(keys)) - set(source.key.tolist())) & surplus)
        if not len(source) + len(deleted):
            return
        repair = Repair(self._table.id, self._sink.topic, ends, read_at, self._versions_to_succeed(keys))
        changes = repair_changes(self._table.wanted, source, deleted, repair)
        try:
            self._pipeline.write(changes, Commit(0, self._sink.connector))  # 0: of no batch of the connector
        except (Retriable, UnexplainedCounts) as error:
            raise _Overtaken(str(error)) from error
        if dead := find_overtaken(changes, self._table.lake.ledger().of(changes.key)):
            surplus.update(source.key[dead].tolist())
            raise _Overtaken(f"{self._sink.table_name}: {len(dead)} row(s) were deleted while they were written")

    def _versions_to_succeed(self, keys: pa.Table) -> dict[str, RowVersion]:
        """The versions that a repaired row must succeed: tombstones, and the stored rows under the keys."""
        key_texts = canonical_keys([keys[name].combine_chunks() for name in self._table.wanted.key_fields])
        versions = dict(self._table.lake.ledger().of(key_texts))
        rows = self._table.lake.read(keys)
        if not len(rows):
            return versions
        *names, time = VERSION
        times = rows[time].combine_chunks().view(pa.int64()).to_pylist()
        columns = zip(*(rows[name].to_pylist() for name in names), times, strict=True)
        row_keys = canonical_keys([rows[name].combine_chunks() for name in self._table.wanted.key_fields]).to_pylist()
        for key, (position, topic, partition, offset, at) in zip(row_keys, columns, strict=True):
            if topic is not None:  # a row of another writer has no version
                versions[key] = RowVersion((position or "").encode(), topic, partition, offset, at)
        return versions


def is_left_out(difference: Difference, wanted: Comparison) -> bool:
    """Whether a row is not repaired because the lake lacks it, and transforms make some of its cells."""
    return difference.where is Where.SOURCE and bool(wanted.changed)


def _is_repairable(difference: Difference) -> bool:
    if difference.where is Where.TWICE:
        return False
    return difference.verdict is Verdict.DIFFERENT or (
        difference.verdict is Verdict.UNPROVEN and difference.where is not Where.LAKE
    )


class _CompleteRows(Reselect):
    """The reselect of rows that were read from the source: no cell is open, and no value is a placeholder."""

    def __init__(self) -> None:
        super().__init__(ReselectOptions())

    def resolve(
        self, actions: Actions, stored: npt.NDArray[np.bool_] | None = None, *, divisible: bool = False
    ) -> Resolved:
        return Resolved(actions, lambda row, column: NO_DATABASE)
