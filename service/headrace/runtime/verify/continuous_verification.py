"""The verifications that a task runs beside its writes (``verify.interval.ms``): one table at a time, at a pace.

Each compares a table as ``headrace verify`` does, in a thread of its own with handles of its own, so that the lanes do
not wait for it. A verification that is interrupted (the task stops, the worker is killed) is repeated from its begin;
the last proof of a table is in the table's properties, where the next task of any worker finds it.

A contradiction in the changes of a table (``reselect_contradictions_total``) makes the table the next one, without
waiting for the interval. Contradictions that arrive all the time do not keep the other tables waiting: a table is put
before the others once in an interval, and otherwise takes its turn.

Tests: ``tests/unit/runtime/verify/test_continuous_verification.py``,
``tests/integration/test_continuous_verification.py``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import tempfile
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pyarrow as pa

from headrace.config.verify_options import VerifySettings
from headrace.core.model.errors import HeadraceError, remedy
from headrace.core.model.events import TableId
from headrace.core.model.proof import Contradiction, DifferingRow, Proof, VerificationReport
from headrace.core.verify.verification import Verdict
from headrace.ports import LogPosition, TableSource
from headrace.runtime.clock import now as micros
from headrace.runtime.threads import run_in
from headrace.runtime.trace import summary
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.paced_source import Pace, PacedSource, Stopped
from headrace.runtime.verify.table_repair import Sink, TableRepair, is_left_out
from headrace.runtime.verify.table_verifier import (
    KEYS_AT_ONCE,
    Clock,
    Difference,
    LakeProgress,
    Offsets,
    TableVerifier,
    VerifyOptions,
    cell_text,
)
from headrace.runtime.verify.verified_table import VerifiedTable

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
_RETRY_SECONDS = 30.0
"""After an error that passes; the interval if that is shorter."""
_HOUR = 3600.0
_ROWS_SHOWN = 20
MOST_DIFFERENCES = 10_000
"""A verification ends with as many rows that differ: the cause has to be found, whatever their number."""


class ContinuousVerification:
    """The verifications of one task. ``run`` belongs to the event loop, ``reports`` may be called in any thread.

    ``timeout`` is as of ``VerifyOptions``, in seconds.
    """

    def __init__(
        self,
        settings: VerifySettings,
        tables: ConnectorTables,
        offsets: Offsets,
        pace: Pace | None = None,
        timeout: float = VerifyOptions().timeout,
    ) -> None:
        self._settings = settings
        self._tables = tables
        self._offsets = offsets
        self._pace = pace or Pace(settings.rows_per_second, settings.source_ms_per_minute, time.monotonic)
        self._timeout = timeout
        self._clock = Clock(time.monotonic, self._pace.sleep)
        self._thread = ThreadPoolExecutor(1, "verify")
        self._due_topics: dict[str, float] = {}  # monotonic, as of tables
        self._due_tables: dict[str, float] = {}
        self._contradictions: dict[tuple[str, str, str], Contradiction] = {}  # by topic, schema and table
        self._urgent_topics: dict[str, float] = {}  # of contradictions, and when they are due
        self._last_urgent: dict[str, float] = {}
        self._causes: dict[str, Contradiction] = {}  # of tables whose verification has not ended since
        self._reports: dict[str, VerificationReport] = {}
        self._repairs: dict[str, deque[tuple[float, int]]] = {}
        self._is_closed = False

    async def run(self, ready: Callable[[], Collection[str]], repaired: Callable[[TableId, str, int], None]) -> None:
        """Verify the tables of the topics that are ``ready``, each again after the interval, until it is cancelled.

        ``repaired`` is called in the thread, with source table, lake table and number of rows that were repaired.
        """
        self._on_repair = repaired
        try:
            while True:
                now = time.monotonic()
                due = {topic: at for topic in ready() if (at := self._due(topic)) <= now}
                if due:  # others may not be ready any more after the first
                    topic = min(due, key=due.__getitem__)
                    self._urgent_topics.pop(topic, None)
                    self._due_topics[topic] = await run_in(self._thread, self._verify_topic, topic)
                else:
                    await asyncio.sleep(min(_LOOK_SECONDS, self._settings.interval))
        finally:
            self._pace.stop()

    def _due(self, topic: str) -> float:
        return min(self._due_topics.get(topic, 0.0), self._urgent_topics.get(topic, math.inf))

    def begin_with(self, topic: str, table: TableId, contradiction: str) -> None:
        """Verify a source table next, and before the interval has passed. Called in any thread.

        The verification that runs ends first, and this one has to wait until its topic is ready.
        """
        now = time.monotonic()
        self._contradictions.setdefault((topic, table.schema, table.table), Contradiction(contradiction, time.time()))
        if topic not in self._urgent_topics:
            last = self._last_urgent.get(topic, -math.inf)
            is_first = now - last >= self._settings.interval
            self._urgent_topics[topic] = -math.inf if is_first else now
            self._last_urgent[topic] = now if is_first else last

    def close(self) -> None:
        """Interrupt what runs, and close the connections to the databases. Idempotent. A repair in progress ends."""
        if not self._is_closed:
            self._is_closed = True
            self._pace.stop()
            self._thread.submit(self._tables.close)
            self._thread.shutdown(wait=False)

    def reports(self, topics: Collection[str]) -> Mapping[str, VerificationReport]:
        """Return the report of each table of ``topics`` that was opened for a verification, by the table's name."""
        return {name: report for name, report in list(self._reports.items()) if report.topic in topics}

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _verify_topic(self, topic: str) -> float:
        """Verify the tables of a topic that are due. Return when the next one of them is due."""
        try:
            found = self._tables.of(topic)
            due = [self._verify_if_due(topic, id, source) for id, source in found]
        except Stopped:
            due = []
        except Exception as error:  # of no table
            log.warning("%s: the tables of %s are not known: %s", self._connector, topic, summary(error))
            due = [time.monotonic() + min(self._settings.interval, _RETRY_SECONDS)]
        return min(due, default=time.monotonic() + self._settings.interval)

    @property
    def _connector(self) -> str:
        return self._tables.task.connector

    def _verify_if_due(self, topic: str, id: TableId, source: TableSource) -> float:
        """Verify a table, unless it is not due. Return when it is due again. Raises Stopped."""
        name = self._tables.transformed.name(topic, id)
        if (contradiction := self._contradictions.pop((topic, id.schema, id.table), None)) is not None:
            self._causes[name] = contradiction
            self._due_tables[name] = 0.0
        if self._due_tables.get(name, 0.0) <= time.monotonic():
            try:
                seconds = self._verify_table(name, topic, id, source)
            except Exception as error:
                seconds = self._settings.interval
                if remedy(error).retry:
                    seconds = min(seconds, _RETRY_SECONDS)
                self._show_error(name, str(error) if isinstance(error, HeadraceError) else summary(error))
            self._due_tables[name] = time.monotonic() + seconds
        return self._due_tables[name]

    def _verify_table(self, name: str, topic: str, id: TableId, source: TableSource) -> float:
        """Verify a table, unless it was proven equal within the interval. Return the seconds until it is due again."""
        interval = self._settings.interval
        report, cause = (
            self._reports.get(name) or VerificationReport(interval, topic, time.time()),
            self._causes.get(name),
        )
        report = self._reports[name] = replace(report, contradiction=cause)
        table, full_name = self._tables.open(topic, id, source)
        proof = table.lake.proof()
        if proof is not None and report.ended is None:
            self._reports[name] = replace(report, proof=proof, not_compared=proof.not_compared)
            age = time.time() - proof.at
            if 0 <= age < interval and cause is None:  # an earlier run of the task, or another worker, has verified it
                return interval - age
        if table.lake.schema() is None:  # no batch has been written yet
            return min(interval, _RETRY_SECONDS)
        if cause is not None:
            log.warning(
                "%s: table %s is verified now, because its changes contain a contradiction (%s)",
                *(self._connector, name, cause.kind),
            )
        self._verify(topic, name, full_name, table)
        self._causes.pop(name, None)
        return interval

    def _verify(self, topic: str, name: str, full_name: str, table: VerifiedTable) -> None:
        """Compare a table once, repair what may be repaired, and store a proof if all rows are equal."""
        began, position = time.time(), table.source.log_position()
        left: list[Difference] = []
        unproven: list[Difference] = []
        undecided = repaired = 0
        with tempfile.TemporaryDirectory(prefix="headrace-verify-") as folder:
            verifier = self._verifier(topic, name, table, Path(folder))
            found = (row for row in verifier.differences() if row.verdict is not Verdict.EXPLAINED)
            while (group := list(islice(found, KEYS_AT_ONCE))) and len(left) < MOST_DIFFERENCES:
                different = [row for row in group if row.verdict is Verdict.DIFFERENT]
                undecided += len(group) - len(different)
                unproven += [row for row in group if row.verdict is Verdict.UNPROVEN][: _ROWS_SHOWN - len(unproven)]
                repairable = [row for row in different if not is_left_out(row, table.wanted)]
                if repairable and self._may_repair(name, len(repairable)):
                    sink = Sink(self._connector, topic, full_name, self._tables.task.pipeline, self._timeout)
                    repair = TableRepair(table, verifier, sink, self._offsets, self._clock, micros)
                    written = repair.repair(repairable)
                    self._on_repair(table.id, name, written)
                    self._repairs[name].append((time.monotonic(), written))
                    repaired += written
                    reopened, _ = self._tables.open(topic, table.id, table.source)  # a repair may have added columns
                    keys = pa.concat_tables([row.key for row in different]).combine_chunks()
                    again = self._verifier(topic, name, reopened, Path(folder)).compare(keys)
                    different = [row for row in again if row.verdict is not Verdict.EXPLAINED]
                left += different
        proof = self._reports[name].proof
        if left or undecided:
            self._warn(name, left, undecided, any(is_left_out(row, table.wanted) for row in left))
        else:
            proof = Proof(_position(position), began, verifier.rows, not_compared=table.wanted.changed)
            if verifier.digest is not None and not repaired:  # the repair is a later commit than the digest
                proof = replace(proof, digest=verifier.digest.text, snapshot=verifier.digest.snapshot)
            table.lake.record_proof(proof)
        self._reports[name] = replace(
            self._reports[name],
            proof=proof,
            differing=len(left),
            undecided=undecided,
            repaired=repaired,
            rows=tuple(map(_differing_row, [*left, *unproven][:_ROWS_SHOWN])),
            not_compared=table.wanted.changed,
            ended=time.time(),
            error=None,
            reading=None,
        )

    def _verifier(self, topic: str, name: str, table: VerifiedTable, folder: Path) -> TableVerifier:
        clock = self._clock
        progress = LakeProgress(table.source, self._offsets, topic, clock.now, clock.sleep)
        options = VerifyOptions(self._timeout, self._tables.task.envelope.position_epoch, digest=True)
        paced = replace(table, source=PacedSource(table.source, self._pace))
        read = 0

        def report(side: str, rows: int) -> None:
            nonlocal read
            if side == "source":
                self._reports[name] = replace(self._reports[name], reading=rows)
            else:
                self._pace.rows(rows - read)
                read = rows

        return TableVerifier(paced, progress, options, clock, folder, report)

    def _may_repair(self, name: str, rows: int) -> bool:
        """Whether so many rows may be repaired, after those of the last hour."""
        if not self._settings.repairs:
            return False
        repairs, now = self._repairs.setdefault(name, deque()), time.monotonic()
        while repairs and repairs[0][0] < now - _HOUR:
            repairs.popleft()
        return sum(count for _, count in repairs) + rows <= self._settings.repairs_per_hour

    def _show_error(self, name: str, text: str) -> None:
        if self._reports[name].error != text:
            log.warning("%s: table %s cannot be verified: %s", self._connector, name, text)
        self._reports[name] = replace(self._reports[name], error=text, ended=time.time(), reading=None)

    def _warn(self, name: str, left: Sequence[Difference], undecided: int, needs_snapshot: bool) -> None:
        """Log how many rows differ, and in which columns. Keys are in the status only: they may be personal data."""
        columns = sorted({column for row in left for column in row.columns})
        what = f" in {', '.join(columns)}" if columns else ""
        way = "a resnapshot" if self._tables.task.tables.history else "headrace verify --repair"
        log.warning(
            "%s: table %s: %d row(s) differ from the source%s, %d could not be decided; GET "
            "/connectors/%s/tables/%s shows their keys, %s repairs them%s",
            *(self._connector, name, len(left), what, undecided, self._connector, name, way),
            ", and headrace resnapshot adds those that the lake lacks" if needs_snapshot else "",
        )


def _position(position: LogPosition) -> str:
    return f"{position.connector}:{','.join(map(str, position.end))}"


def _differing_row(row: Difference) -> DifferingRow:
    key = {name: cell_text(row.key[name][0]) for name in row.key.column_names}
    return DifferingRow(key, row.where.value, row.columns, row.verdict is not Verdict.UNPROVEN)
