"""Compares one table of a connector with its source, repairs what differs, and compares the repaired rows again.

For ``headrace verify``, and for the end of a resnapshot by command or worker.

Tests: ``tests/integration/test_verify.py``, ``tests/integration/test_resnapshot.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.core.model.events import TableId
from headrace.core.verify.verification import Verdict
from headrace.ports import TableSource
from headrace.runtime.clock import now as micros
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.paced_source import Pace, PacedSource
from headrace.runtime.verify.table_repair import Sink, TableRepair, is_left_out
from headrace.runtime.verify.table_verifier import (
    KEYS_AT_ONCE,
    Clock,
    Difference,
    LakeProgress,
    Offsets,
    TableVerifier,
    VerifyOptions,
    key_digests,
)
from headrace.runtime.verify.verified_table import VerifiedTable


class ComparisonReport(Protocol):
    """Receives what a comparison finds, in its order."""

    def progress(self, side: str, rows: int) -> None:
        """Rows of a side have been read."""

    def on_difference(self, difference: Difference) -> None:
        """A row differs, or has only been changed since it was read (``Verdict.EXPLAINED``)."""

    def on_repair(self, difference: Difference) -> None:
        """A row that differed is equal after its repair."""


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of the source, and the columns that only the lake table has.

    ``changed`` are columns that are not compared, because the connector's transforms make their cells. ``left_out`` is
    the number of rows that were not repaired, because the lake lacks them and the source lacks these cells.
    """

    rows: int
    only_in_lake: Sequence[str]
    changed: Sequence[str] = ()
    left_out: int = 0


class TableComparison:
    """Compares tables of a connector, one after the other.

    ``folder`` is for digests. With ``repairs`` rows that differ are written again, and ``paused`` pauses the connector
    if its task always commits first. ``pace`` limits the reads, and ends them (``paced_source.Stopped``).
    """

    def __init__(
        self,
        tables: ConnectorTables,
        offsets: Offsets,
        clock: Clock,
        folder: Path,
        report: ComparisonReport,
        *,
        timeout: float,
        keep_values: bool = False,
        repairs: bool = False,
        paused: Callable[[], AbstractContextManager[None]] = nullcontext,
        pace: Pace | None = None,
    ) -> None:
        self._tables, self._offsets = tables, offsets
        self._clock, self._folder, self._report = clock, folder, report
        self._options = VerifyOptions(timeout, tables.task.envelope.position_epoch, keep_values)
        self._repairs, self._paused, self._pace = repairs, paused, pace

    def run(self, topic: str, id: TableId, source: TableSource) -> Compared:
        """Compare a table. Raises HeadraceError if that is not possible."""
        table, name = self._tables.open(topic, id, source)
        verifier = self._verifier(table, topic)
        sink = Sink(self._tables.task.connector, topic, name, self._tables.task.pipeline, self._options.timeout)
        repair = TableRepair(table, verifier, sink, self._offsets, self._clock, micros, self._paused)
        differences = self._report_each(verifier.differences())
        left_out = 0
        while group := list(islice(differences, KEYS_AT_ONCE)):  # as many as are repaired together
            if self._repairs:
                left_out += sum(is_left_out(difference, table.wanted) for difference in group)
                if repair.repair(group):
                    self._compare_again(topic, table, group)
        return Compared(verifier.rows, table.wanted.kept, table.wanted.changed, left_out)

    def _report_each(self, differences: Iterator[Difference]) -> Iterator[Difference]:
        """Report the differences, and yield those that no later change explains."""
        for difference in differences:
            self._report.on_difference(difference)
            if difference.verdict is not Verdict.EXPLAINED:
                yield difference

    def _verifier(self, table: VerifiedTable, topic: str) -> TableVerifier:
        progress = LakeProgress(table.source, self._offsets, topic, self._clock.now, self._clock.sleep)
        report: Callable[[str, int], None] = self._report.progress
        if self._pace is not None:
            table = replace(table, source=PacedSource(table.source, self._pace))
            report = self._paced_progress(self._pace)
        return TableVerifier(table, progress, self._options, self._clock, self._folder, report)

    def _paced_progress(self, pace: Pace) -> Callable[[str, int], None]:
        read = 0

        def report(side: str, rows: int) -> None:
            nonlocal read
            self._report.progress(side, rows)
            if side == "lake":  # the source has its own pace
                pace.rows(rows - read)
                read = rows

        return report

    def _compare_again(self, topic: str, before: VerifiedTable, differences: Sequence[Difference]) -> None:
        """Compare repaired rows. The table is opened again, because the repair may have added columns."""
        table, _ = self._tables.open(topic, before.id, before.source)
        keys = pa.concat_tables([row.key for row in differences]).combine_chunks()
        compared = self._verifier(table, topic).compare(keys)
        left = {key for row in compared if row.verdict is not Verdict.EXPLAINED for key in key_digests(row.key)}
        for difference in differences:
            if left.isdisjoint(key_digests(difference.key)):
                self._report.on_repair(difference)
