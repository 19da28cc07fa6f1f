"""Kafka Connect's metrics, under the names that Strimzi's rules give them (``connect.md`` section 15).

``connect_metrics.py`` and ``state_metrics.py`` measure them. docs/operations.md lists Kafka Connect's other metrics,
with the reason why Headrace does not have them.

Tests: ``tests/unit/runtime/metrics/test_declarations.py``, ``test_connect_metrics.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.core.connect.lifecycle import State
from headrace.runtime.metrics.declaration import Declaration, Group

PREFIX = "kafka_connect_"
_TASK = ("connector", "task")

TASKS = Group(
    "Kafka Connect: tasks",
    "Totals count from the start of the worker, and are removed with their connector. Averages, maxima, rates and "
    "percentages cover the last minute, and are `NaN` if nothing happened in it. A name that ends in `_total` is a "
    "counter; the other counts are gauges, as in JMX.",
)


def _count(stem: str, text: str, unit: str) -> Declaration:
    declare = TASKS.counter if stem.endswith("_total") else TASKS.gauge
    return declare(PREFIX + stem, text, _TASK, unit)


def _task(stem: str, text: str, unit: str) -> Declaration:
    return TASKS.gauge(PREFIX + stem, text, _TASK, unit)


RECORDS_READ = _count("sink_task_sink_record_read_total", "Records read from Kafka", "records")
RECORDS_SENT = _count("sink_task_sink_record_send_total", "Records written to a table", "records")
RECORDS_READ_RATE = _task("sink_task_sink_record_read_rate", "Records read from Kafka per second", "records/s")
RECORDS_SENT_RATE = _task("sink_task_sink_record_send_rate", "Records written to tables per second", "records/s")
ACTIVE_RECORDS = _task(
    "sink_task_sink_record_active_count", "Records read whose offsets are not committed yet", "records"
)
LAG_MAX = _task("sink_task_sink_record_lag_max", "Largest lag of the task's partitions", "records")
PARTITIONS = _task("sink_task_partition_count", "Partitions assigned to the task", "partitions")
PUT_AVERAGE = _task("sink_task_put_batch_avg_time_ms", "Average time to write a batch", "milliseconds")
PUT_LONGEST = _task("sink_task_put_batch_max_time_ms", "Longest time to write a batch", "milliseconds")
COMMITS_ATTEMPTED = _count("sink_task_offset_commit_seq_no", "Attempted offset commits", "commits")
COMMITS = _count("sink_task_offset_commit_completion_total", "Successful offset commits", "commits")
COMMITS_SKIPPED = _count(
    "sink_task_offset_commit_skip_total", "Offset commits that the group refused because they came too late", "commits"
)
COMMITS_RATE = _task("sink_task_offset_commit_completion_rate", "Successful offset commits per second", "commits/s")
COMMITS_SKIPPED_RATE = _task("sink_task_offset_commit_skip_rate", "Rejected offset commits per second", "commits/s")
RECORD_FAILURES = _count("task_error_total_record_failures", "Records that could not be used", "records")
RECORD_ERRORS = _count("task_error_total_record_errors", "Errors in processing records", "errors")
RECORDS_SKIPPED = _count("task_error_total_records_skipped", "Records skipped because of errors", "records")
RETRIES = _count("task_error_total_retries", "Retries after retriable errors", "retries")
ERRORS_LOGGED = _count("task_error_total_errors_logged", "Logged errors in processing records", "errors")
DEAD_LETTERS = _count("task_error_deadletterqueue_produce_requests", "Records sent to the dead letter queue", "records")
DEAD_LETTER_FAILURES = _count(
    "task_error_deadletterqueue_produce_failures",
    "Records that could not be written to the dead letter queue",
    "records",
)
LAST_ERROR = _task(
    "task_error_last_error_timestamp", "Time of the last error, Unix time in ms", "Unix time in milliseconds"
)
BATCH_AVERAGE = _task("connector_task_batch_size_avg", "Average records in a batch", "records")
BATCH_LARGEST = _task("connector_task_batch_size_max", "Most records in a batch", "records")
COMMIT_AVERAGE = _task("connector_task_offset_commit_avg_time_ms", "Average time of an offset commit", "milliseconds")
COMMIT_LONGEST = _task("connector_task_offset_commit_max_time_ms", "Longest time of an offset commit", "milliseconds")
COMMIT_SUCCESS = _task(
    "connector_task_offset_commit_success_percentage", "Share of successful offset commits, 0 to 1", "0 to 1"
)
COMMIT_FAILURE = _task(
    "connector_task_offset_commit_failure_percentage", "Share of failed offset commits, 0 to 1", "0 to 1"
)
RUNNING_RATIO = _task("connector_task_running_ratio", "Share of time in which the task was running", "0 to 1")
PAUSE_RATIO = _task("connector_task_pause_ratio", "Share of time in which the task was paused", "0 to 1")

STATES = Group(
    "Kafka Connect: states",
    "Each worker has only the connectors and tasks that it runs, so sums over workers are right.",
)
TASK_STATUS = STATES.gauge(
    f"{PREFIX}connector_task_status",
    "State of each task",
    (*_TASK, "status"),
    note="The value is 1. A running task with a failed table is `failed`, unless `errors.isolation.status=running`.",
)
CONNECTOR_STATUS = STATES.gauge(
    f"{PREFIX}connector_status", "State of each connector", ("connector", "status"), note="The value is 1."
)
CONNECTOR_CLASS = STATES.gauge(
    f"{PREFIX}connector_connector_class",
    "The connector's class",
    ("connector", "connector_class"),
    note="The value is 1.",
)
CONNECTOR_TYPE = STATES.gauge(
    f"{PREFIX}connector_connector_type", "The connector's type", ("connector", "connector_type"), note="The value is 1."
)
CONNECTOR_VERSION = STATES.gauge(
    f"{PREFIX}connector_connector_version",
    "The connector's version",
    ("connector", "connector_version"),
    note="The value is 1.",
)
CONNECTOR_COUNT = STATES.gauge(f"{PREFIX}worker_connector_count", "Connectors of this worker", unit="connectors")
TASK_COUNT = STATES.gauge(f"{PREFIX}worker_task_count", "Tasks of this worker", unit="tasks")
STARTUPS: Mapping[tuple[str, str], Declaration] = {
    (started, outcome): STATES.counter(
        f"{PREFIX}worker_{started}_startup_{outcome}_total", f"Starts of {started}s: {outcome}", unit="starts"
    )
    for started in ("connector", "task")
    for outcome in ("attempts", "success", "failure")
}
"""Starts of connectors and tasks, by what was started and by the outcome."""
TASKS_IN_STATE: Mapping[State, Declaration] = {
    state: STATES.gauge(
        f"{PREFIX}worker_connector_{state.lower()}_task_count",
        f"Tasks that are {state.lower()}",
        ("connector",),
        "tasks",
    )
    for state in (State.RUNNING, State.PAUSED, State.FAILED, State.UNASSIGNED, State.DESTROYED, State.RESTARTING)
}
TASKS_TOTAL = STATES.gauge(f"{PREFIX}worker_connector_total_task_count", "Tasks", ("connector",), "tasks")

GROUPS = (TASKS, STATES)
