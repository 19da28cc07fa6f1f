"""One resnapshot of a table inside a worker, in a thread of its own: the steps of ``headrace resnapshot``.

    READING     ``table_snapshot.py``: the signal, the reads of the source connector, the rows in the lake table
    COMPARING   ``verify/table_comparison.py``: compare with the source, repair, compare again

After an error that passes, such as a broker or database that does not answer, the steps begin again and continue what
is stored. Without progress for ``WAIT_SECONDS`` the resnapshot has failed; another request continues it as well.

Tests: ``tests/rest/test_resnapshots.py``, ``tests/integration/test_resnapshot.py``.
"""

from __future__ import annotations

import logging
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.config import SinkConnectorConfig
from headrace.config.source_connector import SourceConnectorSettings
from headrace.core.connect.resnapshots import ResnapshotProgress, ResnapshotRequest, ResnapshotState
from headrace.core.model.errors import ConfigError, HeadraceError, remedy
from headrace.core.resnapshot.signals import new_id
from headrace.core.verify.verification import Verdict
from headrace.ports import Lakehouse, OpenRowSource, Stores, TableSource
from headrace.runtime.resnapshot.snapshot_target import (
    OpenSignalTopic,
    SnapshotTarget,
    signal_channel,
    snapshot_target,
    source_database,
)
from headrace.runtime.resnapshot.source_connector import SourceConnector
from headrace.runtime.resnapshot.table_snapshot import Progress, SinkTables, TableSnapshot
from headrace.runtime.trace import summary
from headrace.runtime.verify.connector_tables import ConnectorTables
from headrace.runtime.verify.kafka_offsets import KafkaOffsets, RunCoroutine
from headrace.runtime.verify.paced_source import Pace, Stopped
from headrace.runtime.verify.table_comparison import TableComparison
from headrace.runtime.verify.table_verifier import Clock, Difference
from headrace.runtime.worker.worker import Worker

log = logging.getLogger(__name__)

WAIT_SECONDS = 180.0
"""The time without progress after which a resnapshot has failed, as the default of ``headrace resnapshot --wait``."""
_RETRY_SECONDS = 5.0
_STORE_SECONDS = 2.0
"""Between two records of the status topic, unless the state changes."""


@dataclass(frozen=True, slots=True)
class ResnapshotParts:
    """What a resnapshot reaches. ``open_source_connector`` raises ConfigError."""

    stores: Stores
    lakehouse: Lakehouse
    open_row_source: OpenRowSource
    open_signal_topic: OpenSignalTopic
    open_source_connector: Callable[[SourceConnectorSettings], SourceConnector]


class WorkerTables(SinkTables):
    """The lake tables of a connector's tasks on this worker, for a thread beside the event loop."""

    def __init__(self, worker: Worker, connector: str, run: RunCoroutine) -> None:
        self._worker, self._connector, self._run = worker, connector, run

    def table(self, table: str) -> Mapping[str, Any] | None:
        async def look() -> Mapping[str, Any] | None:
            connector = self._worker.connector(self._connector)
            reports = connector.reports() if connector is not None else ()
            now = self._worker.now().timestamp()
            return next((report.document(task, now) for task, report in reports if report.table == table), None)

        return self._run(look())

    def restart_table(self, table: str) -> None:
        async def restart() -> None:
            if (connector := self._worker.connector(self._connector)) is not None:
                connector.restart_table(table, recreate=True)

        self._run(restart())


class ResnapshotRun:
    """Runs one request. ``run`` belongs to a thread; ``cancel`` and ``leave`` may be called from any other.

    ``former`` is the stored progress, with which the run continues. ``put`` stores the progress. ``now`` returns
    seconds since the epoch.
    """

    def __init__(
        self,
        request: ResnapshotRequest,
        config: SinkConnectorConfig,
        sink: SinkTables,
        parts: ResnapshotParts,
        run: RunCoroutine,
        former: ResnapshotProgress,
        put: Callable[[ResnapshotProgress], None],
        now: Callable[[], float],
    ) -> None:
        self.request = request
        self._config, self._sink, self._parts = config, sink, parts
        self._put, self._now = put, now
        settings = config.verify
        self._pace = Pace(settings.rows_per_second, settings.source_ms_per_minute, time.monotonic)
        self._clock = Clock(time.monotonic, self._pace.sleep)
        self._run = run
        self._offsets = KafkaOffsets(parts.stores, config, run)
        self._progress = former
        self._stored = 0.0  # monotonic, as the next
        self._advanced = self._clock.now()
        self._is_cancelled = False

    def cancel(self) -> None:
        """End the reads of the source connector, and the resnapshot. What has arrived stays."""
        self._is_cancelled = True
        self._pace.stop()

    def leave(self) -> None:
        """Interrupt the run without an effect: this or another worker continues it."""
        self._pace.stop()

    def run(self) -> None:
        """Run to the end, and store the result. Never raises."""
        try:
            while not self._is_over_after_attempt():
                pass
        except Stopped:
            self._store(waits_for="a running task that reads the topic")
        except Exception as error:
            text = str(error) if isinstance(error, HeadraceError) else summary(error)
            log.warning("%s: resnapshot of %s failed: %s", self._config.name, self.request.source_table, text)
            self._store(state=ResnapshotState.FAILED, error=text.partition("\n")[0])

    def _is_over_after_attempt(self) -> bool:
        """Try all steps. Return False after an error that passes. Raises other errors, and Stopped."""
        try:
            self._attempt()
        except Exception as error:
            if not remedy(error).retry or self._clock.now() - self._advanced >= WAIT_SECONDS:
                raise
            self._store(waits_for=str(error).partition("\n")[0])
            self._clock.sleep(_RETRY_SECONDS)
            return False
        return True

    def _attempt(self) -> None:
        with closing(source_database(self._config, self._parts.open_row_source)) as database:
            source = self._parts.open_source_connector(self._config.source_connector)
            target = snapshot_target(self._config, source, database, self.request.source_table, self.request.topic)
            snapshot = self._snapshot(target, source, database)
            try:
                if self._is_cancelled:
                    raise Stopped
                known = self._progress
                snapshot.follow(known.signal if known.is_read else "")
                self._store(state=ResnapshotState.COMPARING, step="", is_read=True, signal=snapshot.request)
                result = self._compare(target)
            except Stopped:
                if not self._is_cancelled:
                    raise
                snapshot.cancel()
                result = {"state": ResnapshotState.CANCELLED}
            if result["state"] is ResnapshotState.EQUAL:
                snapshot.finish()
            self._store(**{"step": "", "waits_for": "", "estimated_end": None, "left": 0, **result})
            log.info("%s: resnapshot of %s: %s", self._config.name, self.request.source_table, result["state"])

    def _snapshot(self, target: SnapshotTarget, source: SourceConnector, database: TableSource) -> TableSnapshot:
        def report(progress: Progress) -> None:
            self._report(target, snapshot, progress)

        snapshot = TableSnapshot(
            target.table,
            source,
            target.settings,
            signal_channel(self._config, target.settings, database, self._parts.open_signal_topic, self._run),
            self._sink,
            self._offsets,
            lambda: int(database.log_position().end[0]),
            self._clock,
            lambda: new_id(time.time(), uuid.uuid4().hex),
            lambda text: log.info("%s: resnapshot of %s: %s", self._config.name, self.request.source_table, text),
            report,
            WAIT_SECONDS,
        )
        return snapshot

    def _report(self, target: SnapshotTarget, snapshot: TableSnapshot, progress: Progress) -> None:
        """Store the progress of the reads. A system that does not answer leaves the numbers as they are."""
        known: dict[str, Any] = {"waits_for": progress.waits_for, "is_read": progress.has_begun}
        if snapshot.request:
            known["signal"] = snapshot.request
        if progress.step != "waits":
            left = progress.seconds_left
            known |= {
                "step": progress.step,
                "rows": progress.rows,
                "total": progress.total or 0,
                "left": progress.left or 0,
                "chunk_size": target.settings.chunk_size,
                "estimated_end": None if left is None else self._now() + left,
            }
        self._store(state=ResnapshotState.READING, **known)

    # -- compare -------------------------------------------------------------------------------------------------------

    def _compare(self, target: SnapshotTarget) -> dict[str, Any]:
        """Compare the table with its source, and repair it. Return what the result is."""
        topic, name = target.table.topic, target.table.name
        if not self._offsets.ends(topic):
            raise ConfigError(
                f"topic {topic}: does not exist; either {name} is empty, or a transform of the source connector "
                'renames its topic: send {"source.table": …, "topic": …} with the request'
            )
        tables = ConnectorTables(self._config, self._parts.open_row_source, self._parts.lakehouse, [name])
        with closing(tables), tempfile.TemporaryDirectory(prefix="headrace-resnapshot-") as folder:
            sources = {(id.schema, id.table): (id, source) for id, source in tables.of(topic)}
            found = sources.get((target.id.schema, target.id.table))
            if found is None:
                raise ConfigError(f"{name}: topic {topic} has no rows of this table; name its topic in the request")
            counts = _Counts(self._report_compared)
            comparison = TableComparison(
                tables,
                self._offsets,
                self._clock,
                Path(folder),
                counts,
                timeout=WAIT_SECONDS,
                repairs=True,
                pace=self._pace,
            )
            compared = comparison.run(topic, *found)
        left = counts.different - counts.repairs
        return {
            "state": ResnapshotState.DIFFERS if left else ResnapshotState.EQUAL,
            "compared": compared.rows,
            "differing": left,
            "repaired": counts.repairs,
            "not_compared": tuple(compared.changed),
        }

    def _report_compared(self, side: str, rows: int) -> None:
        self._clock.sleep(0)  # raises Stopped
        compared = rows if side == "source" else self._progress.compared
        self._store(state=ResnapshotState.COMPARING, step=f"reads the {side}", compared=compared)

    def _store(self, **changed: Any) -> None:
        """Change the progress, and store it unless only a moment has passed since the last time."""
        before = self._progress
        after = replace(before, **changed)
        if after == before and after.state.is_open:
            return
        if replace(after, waits_for="", estimated_end=None) != replace(before, waits_for="", estimated_end=None):
            self._advanced = self._clock.now()
        self._progress = replace(after, updated=self._now())
        is_new = (after.state, after.step, after.waits_for, after.signal, after.is_read) != (
            *(before.state, before.step, before.waits_for, before.signal, before.is_read),
        )
        if is_new or self._clock.now() - self._stored >= _STORE_SECONDS:
            self._stored = self._clock.now()
            self._put(self._progress)


class _Counts:
    """Counts what a comparison finds. ``report`` gets the rows that were read of a side."""

    def __init__(self, report: Callable[[str, int], None]) -> None:
        self.progress = report
        self.different = self.repairs = 0

    def on_difference(self, difference: Difference) -> None:
        self.different += difference.verdict is not Verdict.EXPLAINED

    def on_repair(self, difference: Difference) -> None:
        self.repairs += 1
