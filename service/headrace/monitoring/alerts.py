"""The alerts for Prometheus. Their expressions refer to declared metrics, so that they follow a renamed metric.

Each alert has a section with its name below "When an alert fires" in docs/operations.md.

Tests: ``tests/packaging/test_alerts.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.runtime.metrics import connect_declarations as connect
from headrace.runtime.metrics import declarations as declared
from headrace.runtime.metrics.declaration import Declaration

SCOPE = 'job="headrace"'
"""What selects the series of a worker. The chart puts namespace and pods of the release in its place."""
UP = f"up{{{SCOPE}}}"
"""Prometheus' own metric: 1 if the last scrape of a worker succeeded."""
_WORKER = "{{ or $labels.pod $labels.instance }}"
_TABLE = "{{ $labels.table }} of {{ $labels.connector }}"
_STATUS = "GET /connectors/{{ $labels.connector }}/status"
_TABLES = "GET /connectors/{{ $labels.connector }}/tables"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert. It fires after ``expression`` has had a result for ``wait`` (a duration in PromQL).

    ``summary`` and ``description`` are Prometheus' templates.
    """

    name: str
    severity: str
    wait: str
    expression: str
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """Return the section of its runbook, relative to the root of the repository."""
        return f"docs/operations.md#{self.name.lower()}"


def _of(metric: Declaration, **labels: str) -> str:
    return metric.query(SCOPE, **labels)


def _rise(metric: Declaration, window: str, **labels: str) -> str:
    return f"increase({_of(metric, **labels)}[{window}])"


ALERTS = (
    Alert(
        "HeadraceTaskFailed",
        "critical",
        "1m",
        f"{_of(connect.TASK_STATUS, status='failed')} > 0",
        "Task {{ $labels.connector }}-{{ $labels.task }} has failed",
        f"{_STATUS} has the cause and what to do; then restart the task.",
    ),
    Alert(
        "HeadraceTaskStuck",
        "critical",
        "15m",
        f"sum by (namespace, connector, task) ({_of(declared.LAG)}) > 0 "
        f"and on (namespace, connector, task) {_of(connect.TASK_STATUS, status='running')} > 0 "
        f"unless on (namespace, connector, task) {_rise(connect.COMMITS, '15m')} > 0",
        "Task {{ $labels.connector }}-{{ $labels.task }} commits no offsets",
        f"It has records to write, and has committed nothing for 15 minutes. {_STATUS} has what it waits for.",
    ),
    Alert(
        "HeadraceConnectorFailed",
        "critical",
        "1m",
        f"{_of(connect.CONNECTOR_STATUS, status='failed')} > 0",
        "Connector {{ $labels.connector }} has failed",
        f"{_STATUS} has the cause and what to do.",
    ),
    Alert(
        "HeadraceTableFailed",
        "critical",
        "1m",
        f"{_of(declared.TABLE_STATE, state='FAILED')} > 0",
        f"Table {_TABLE} has failed",
        f"{_TABLES} has the cause. Restart the table after it is gone. Table * is one of those without metrics of "
        "their own (metrics.tables).",
    ),
    Alert(
        "HeadraceTableRetrying",
        "warning",
        "10m",
        f"{_of(declared.TABLE_STATE, state='RETRYING')} > 0",
        f"Table {_TABLE} is retried for 10 minutes",
        f"The cause does not pass. {_TABLES} has it.",
    ),
    Alert(
        "HeadraceTableStuck",
        "critical",
        "5m",
        f"{_of(declared.OLDEST_UNWRITTEN)} > 300 "
        f"and {_of(declared.FRESHNESS)} > {_of(declared.FRESHNESS_TARGET)} "
        f"unless sum without (trigger) ({_rise(declared.BATCHES, '10m')}) > 0",
        f"Events of table {_TABLE} wait for {{{{ $value | humanizeDuration }}}}, and none is committed",
        "The table misses its freshness target and has had no commit for 10 minutes: the writer hangs. Look at the "
        "state of the table and at the storage.",
    ),
    Alert(
        "HeadraceTableStale",
        "warning",
        "10m",
        f"{_of(declared.FRESHNESS)} > 10 * {_of(declared.FRESHNESS_TARGET)} "
        f"and {_rise(declared.LATE_EVENTS, '10m')} > 0 "
        f"unless {_of(declared.LOAD_ROWS)}",
        f"Table {_TABLE} is {{{{ $value | humanizeDuration }}}} behind its source",
        "That is more than ten times its freshness target, and no snapshot is being loaded. The writer is slower than "
        "the source, or the source connector sends late.",
    ),
    Alert(
        "HeadraceLagGrows",
        "warning",
        "30m",
        f"sum by (namespace, connector) ({_of(declared.LAG)}) > 100000 "
        f"and sum by (namespace, connector) (deriv({_of(declared.LAG)}[30m])) > 0",
        "The lag of {{ $labels.connector }} grows",
        "The tasks are slower than the source for half an hour. Add workers, or memory for larger batches.",
    ),
    Alert(
        "HeadraceRecordsFail",
        "warning",
        "0m",
        f"{_rise(connect.RECORD_FAILURES, '15m')} > 0",
        "Records of {{ $labels.connector }} cannot be used",
        "With errors.tolerance=all the task continues without them. The log and the dead letter queue have them.",
    ),
    Alert(
        "HeadraceSourceIncomplete",
        "warning",
        "0m",
        f"{_rise(declared.RESELECT_CONTRADICTIONS, '1h')} > 0",
        "Events of {{ $labels.table }} are missing",
        "The kind is {{ $labels.kind }}. Compare the table with headrace verify.",
    ),
    Alert(
        "HeadraceRowsDiffer",
        "critical",
        "0m",
        f"{_of(declared.VERIFY_DIFFERENCES)} > 0",
        f"{{{{ $value }}}} rows of table {_TABLE} differ from the source",
        "A verification has compared them twice. The console shows the keys under Proof.",
    ),
    Alert(
        "HeadraceProofStale",
        "warning",
        "10m",
        f"{_of(declared.VERIFY_AGE)} > on (namespace, connector) group_left () "
        f"3 * max by (namespace, connector) ({_of(declared.VERIFY_INTERVAL)})",
        f"Table {_TABLE} was last proven equal to its source {{{{ $value | humanizeDuration }}}} ago",
        "That is more than three times verify.interval.ms.",
    ),
    Alert(
        "HeadraceSourceNotQueried",
        "warning",
        "15m",
        f"{_of(declared.RESELECT_CONNECTIONS, state='left_alone')} > 0",
        "A database of {{ $labels.connector }} does not answer",
        "Its cells wait, or are written as reselect.unresolved.* specifies.",
    ),
    Alert(
        "HeadraceSlotInactive",
        "warning",
        "15m",
        f"{_of(declared.SLOT_ACTIVE)} == 0",
        "Nothing reads replication slot {{ $labels.slot }} of {{ $labels.database }}",
        "Connector {{ $labels.connector }} gets no changes if it is the slot of its source connector, and the log of "
        "the database grows.",
    ),
    Alert(
        "HeadraceUpkeepBehind",
        "warning",
        "6h",
        f"{_of(declared.TABLE_FILES)} > 200 or {_of(declared.TABLE_DELETED)} > 0.4",
        f"Upkeep of table {_TABLE} is behind",
        "The table has more than 200 files, or deletes hide more than 40 % of its rows, for 6 hours. "
        "Readers get slower.",
    ),
    Alert(
        "HeadraceSparkDown",
        "critical",
        "5m",
        f"{_of(declared.SPARK_UP)} == 0",
        f"Spark of {_WORKER} does not run",
        "GET /health/ready and the log have the cause. The worker starts Spark again and again.",
    ),
    Alert(
        "HeadraceSparkRestarts",
        "warning",
        "0m",
        f"{_rise(declared.SPARK_RESTARTS, '1h')} > 3",
        f"Spark of {_WORKER} was started again {{{{ $value | humanize }}}} times in an hour",
        "For lack of memory, raise spark.driver.memory and the memory limit, or lower batch.max.bytes.",
    ),
    Alert(
        "HeadraceDirectoryNotApplied",
        "warning",
        "5m",
        f"{_of(declared.DIRECTORY_CONNECTORS, state='~CONFLICT|FAILED|KEPT|DRIFTED')} > 0 "
        f"or {_of(declared.DIRECTORY_INVALID)} > 0 "
        f"or {_of(declared.DIRECTORY_READABLE)} == 0",
        "Connectors differ from their files",
        "GET /connectors-directory has the files and connectors that need an operator.",
    ),
    Alert(
        "HeadraceCertificateEnds",
        "warning",
        "1h",
        f"{_of(declared.CERTIFICATE_END)} - time() < 14 * 86400",
        f"A certificate of {_WORKER} ends in {{{{ $value | humanizeDuration }}}}",
        "It is that of {{ $labels.option }}. Replace its file; the worker reads it again without a restart.",
    ),
    Alert(
        "HeadraceWorkerDown",
        "critical",
        "5m",
        f"{UP} == 0",
        f"Worker {_WORKER} does not answer",
        "Its metrics cannot be read for 5 minutes. The other workers take over its tasks.",
    ),
    Alert(
        "HeadraceNoWorker",
        "critical",
        "5m",
        f"absent({UP})",
        "No worker answers",
        "Prometheus reads metrics of no worker, so no other alert can fire: the workers are gone, or Prometheus "
        "does not find them.",
    ),
)
