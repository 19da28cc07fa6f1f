"""Headrace's own metrics: name, type, labels, unit and meaning of each, declared once.

``metrics.py``, ``task_progress.py`` and ``state_metrics.py`` measure them. Alerts, dashboard and ``docs/metrics.md``
are made from the declarations (``headrace.monitoring``). ``connect_declarations.py`` has those of Kafka Connect.

Tests: ``tests/unit/runtime/metrics/test_declarations.py``.
"""

from __future__ import annotations

from headrace.runtime.metrics.declaration import Group

_TASK = ("connector", "task")
_TABLE = (*_TASK, "table")
_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_WRITE_SECONDS = _SECONDS[2:]
_FRESHNESS = (0.5, 1, 2, 3, 5, 10, 20, 30, 60, 120, 300, 900, 3600)
_ROWS = (1, 10, 100, 1_000, 10_000, 50_000, 100_000, 500_000)

TABLES = Group(
    "Tables",
    "They exist where a task runs or restarts, for a table from its first event on. A failed table has no freshness "
    "and no age of its oldest event, because its topics are not read. `metrics.tables` limits how many tables have "
    'series of their own; the others of a task share those with `table="*"`: sums of counters, and the worst value of '
    "a gauge.",
)
TABLE_STATE = TABLES.gauge(
    "headrace_table_state",
    "1 for the current state of the table",
    (*_TABLE, "state"),
    note="`RUNNING`, `RETRYING`, `FAILED` or `PAUSED`. A failed table needs an operator. Tables that share series: how "
    "many are in the state.",
)
FRESHNESS = TABLES.gauge(
    "headrace_freshness_last_seconds",
    "Time since the source commit of the oldest unwritten event, or freshness of the last batch",
    _TABLE,
    "seconds",
    "It grows if nothing is finished. A failed table has none.",
)
FRESHNESS_TARGET = TABLES.gauge(
    "headrace_freshness_target_seconds",
    "Time from source commit to visible row that the table should not exceed (freshness.target.ms)",
    _TABLE,
    "seconds",
    "Tables that share series: the smallest.",
)
OLDEST_UNWRITTEN = TABLES.gauge(
    "headrace_oldest_unwritten_seconds",
    "Seconds since the oldest event that is not durable was read, 0 without such an event",
    _TABLE,
    "seconds",
)
SOURCE_TIME = TABLES.gauge(
    "headrace_source_time_seconds",
    "Source time of the newest visible row, Unix time",
    _TABLE,
    "Unix time",
    "`time()` minus it grows: the newest visible row of a table that changes all the time gets older. Tables that "
    "share series: the smallest.",
)
FRESHNESS_SECONDS = TABLES.histogram(
    "headrace_freshness_seconds",
    "Time from source commit to visible row, newest event of each batch",
    _TABLE,
    "seconds",
    _FRESHNESS,
)
LATE_EVENTS = TABLES.counter(
    "headrace_freshness_target_missed_total",
    "Events that became visible after freshness.target.ms",
    _TABLE,
    "events",
    "Whatever the cause is: also first loads, and what a connector that was stopped reads again.",
)
EVENTS = TABLES.counter("headrace_events_total", "Change events written to tables", _TABLE, "events")
BATCHES = TABLES.counter(
    "headrace_batches_total",
    "Batches by the limit that closed them",
    (*_TABLE, "trigger"),
    "batches",
    "A batch is counted when it is durable: one commit of the table.",
)
BATCH_EVENTS = TABLES.histogram("headrace_batch_events", "Events per batch", _TABLE, "events", _ROWS)
WRITE_SECONDS = TABLES.histogram(
    "headrace_write_seconds",
    "Time from the close of a batch to its durable rows",
    _TABLE,
    "seconds",
    _WRITE_SECONDS,
)
STAGE_SECONDS = TABLES.counter(
    "headrace_stage_seconds_total",
    "Time of each stage",
    (*_TABLE, "stage"),
    "seconds",
    "Its rate is how many threads the stage occupies. `decode` has topics in the label `table`.",
)
STAGE_CPU_SECONDS = TABLES.counter(
    "headrace_stage_cpu_seconds_total",
    "CPU time of each stage in its own threads",
    (*_TABLE, "stage"),
    "seconds",
    "Without that of Spark's JVM.",
)
TABLE_FILES = TABLES.gauge(
    "headrace_table_files",
    "Data files and delete files of a table",
    _TABLE,
    "files",
    "Above 200 for hours: upkeep does not run, or its budget is too small.",
)
TABLE_BYTES = TABLES.gauge(
    "headrace_table_bytes",
    "Size of the data files and delete files of a table's newest snapshot",
    _TABLE,
    "bytes",
    "Without the files of older snapshots, which are kept for a while.",
)
TABLE_DELETED = TABLES.gauge(
    "headrace_table_deleted_ratio",
    "Share of the rows in the files that deletes hide from readers",
    _TABLE,
    "0 to 1",
    "Above 0.4 for hours: upkeep does not run, or its budget is too small.",
)
WRITTEN_BYTES = TABLES.counter(
    "headrace_table_written_bytes_total",
    "Bytes of new files by what wrote them: merge or upkeep",
    (*_TABLE, "by"),
    "bytes",
)
LOAD_ROWS = TABLES.gauge(
    "headrace_load_rows",
    "Rows of the snapshot that is being loaded that the table contains",
    _TABLE,
    "rows",
    "While a load is running, as the next two.",
)
LOAD_REMAINING = TABLES.gauge(
    "headrace_load_remaining_records",
    "Records of the topics of a table that is being loaded that are not committed",
    _TABLE,
    "records",
)
LOAD_END = TABLES.gauge(
    "headrace_load_end_seconds", "Estimated end of the load of what Kafka contains, Unix time", _TABLE, "Unix time"
)

VERIFY = Group("Verification", "Of connectors with `verify.interval.ms`.")
VERIFY_AGE = VERIFY.gauge(
    "headrace_verify_age_seconds",
    "Time since the table was last proven equal to its source, or since the task began to verify it",
    ("connector", "table"),
    "seconds",
)
VERIFY_INTERVAL = VERIFY.gauge(
    "headrace_verify_interval_seconds",
    "Time between two verifications of a table (verify.interval.ms)",
    ("connector",),
    "seconds",
)
VERIFY_DIFFERENCES = VERIFY.gauge(
    "headrace_verify_differences",
    "Rows that differ from the source, by the last verification",
    ("connector", "table"),
    "rows",
)

TOPICS = Group(
    "Topics",
    'Topics that share series have `topic="*"` and `partition="*"`: the sum.',
)
LAG = TOPICS.gauge(
    "headrace_lag_records",
    "Records that the group has not committed",
    (*_TASK, "topic", "partition"),
    "records",
    "Read or not. If it grows for a long time, the writer is slower than the source.",
)
SKIPPED = TOPICS.counter(
    "headrace_records_skipped_total", "Records that are not changes of rows", (*_TASK, "topic"), "records"
)
LOSSES = TOPICS.counter(
    "headrace_source_losses_total",
    "Values that the source's connector does not send completely",
    (*_TASK, "topic", "kind"),
    "values",
    "The notes of the task have the details.",
)

WORKER = Group("Worker")
INFO = WORKER.gauge("headrace_info", "Version of the worker", ("version",), note="The value is 1.")
SPARK_UP = WORKER.gauge("headrace_spark_up", "Whether Spark runs (1) or not (0)")
SPARK_RESTARTS = WORKER.gauge(
    "headrace_spark_restarts", "Starts of Spark after it had ended, hung or not started", unit="starts"
)
CHANGES_BYTES = WORKER.gauge(
    "headrace_changes_memory_bytes", "Memory of the changes of all tables that are not durable", unit="bytes"
)
CHANGES_LIMIT = WORKER.gauge(
    "headrace_changes_memory_limit_bytes",
    "Memory that the changes of all tables share (worker.memory.bytes)",
    unit="bytes",
    note="Tables with the most changes are not read while half of it is used.",
)
CERTIFICATE_END = WORKER.gauge(
    "headrace_certificate_end_seconds",
    "End of the worker's own certificate in a key store, Unix time",
    ("option",),
    "Unix time",
    "`option` is that of the key store: of listeners, and of clients of Kafka, schema registries and token endpoints. "
    "The earliest, if several connectors have one. Changed files count from the next scrape.",
)
METRICS_TABLES = WORKER.gauge(
    "headrace_metrics_tables",
    "Tables with series of their own, and tables that share the series with the label value *",
    ("series",),
    "tables",
    "`own` or `shared` (`metrics.tables`).",
)
TIMELINE_DROPPED = WORKER.counter(
    "headrace_timeline_events_dropped_total",
    "Events of the timeline that were not stored, because too many waited to be written to the status topic",
    unit="events",
)

DIRECTORY = Group("Connectors as code", "Of `connectors.directory`. Only the leader has them.")
DIRECTORY_CONNECTORS = DIRECTORY.gauge(
    "headrace_directory_connectors",
    "Connectors of connectors.directory by state",
    ("state",),
    "connectors",
    "`CONFLICT`, `FAILED`, `KEPT` and `DRIFTED` need an operator.",
)
DIRECTORY_INVALID = DIRECTORY.gauge(
    "headrace_directory_invalid_files",
    "Files of connectors.directory that define no connector because of an error",
    unit="files",
)
DIRECTORY_READABLE = DIRECTORY.gauge(
    "headrace_directory_readable", "1 if the last round could read connectors.directory"
)
DIRECTORY_CORRECTIONS = DIRECTORY.counter(
    "headrace_directory_corrections_total",
    "Configurations that were changed over REST and replaced by those of their files",
    unit="changes",
)

SOURCES = Group(
    "Source databases",
    "Replication slots of a PostgreSQL database, of connectors with `reselect.database.*`. The first task of the "
    "connector looks at them every minute.",
)
SLOT_ACTIVE = SOURCES.gauge(
    "headrace_source_slot_active",
    "Whether something reads a logical replication slot of the source database (1) or not (0)",
    ("connector", "database", "slot"),
)
SLOT_BYTES = SOURCES.gauge(
    "headrace_source_slot_retained_bytes",
    "Bytes of its log that the source database keeps for a slot",
    ("connector", "database", "slot"),
    "bytes",
)

RESELECT = Group("Reselect", "Of connectors with `reselect.database.*`. They appear with the first read of a row.")
RESELECT_CELLS = RESELECT.counter(
    "reselect_cells_total",
    "Cells without a value after the fold, by state",
    (*_TABLE, "state", "column"),
    "cells",
    "`unchanged`, `unknown`, `null`.",
)
RESELECT_RESOLVED = RESELECT.counter(
    "reselect_resolved_total",
    "Cells without a value, by the step that resolved them",
    (*_TABLE, "step", "column"),
    "cells",
    "`fold` (another event of the batch), `cache`, `source` (a SELECT), `carry` and `target` (the stored row keeps "
    "them), `unresolved`; `unreadable` for values that the column cannot hold.",
)
RESELECT_QUERIES = RESELECT.counter(
    "reselect_queries_total",
    "SELECTs by result",
    (*_TABLE, "result"),
    "SELECTs",
    "`ok`, `not_found`, `timeout`, `transient`, `permanent`.",
)
RESELECT_QUERY_SECONDS = RESELECT.histogram(
    "reselect_query_seconds", "Duration of a SELECT", _TASK, "seconds", _SECONDS
)
RESELECT_QUERY_KEYS = RESELECT.histogram("reselect_keys_per_query", "Rows requested by a SELECT", _TASK, "rows", _ROWS)
RESELECT_WAIT = RESELECT.histogram(
    "reselect_visibility_wait_seconds",
    "Time spent waiting for transactions to become visible",
    _TASK,
    "seconds",
    _SECONDS,
)
RESELECT_NOT_FOUND = RESELECT.counter(
    "reselect_rows_not_found_total", "Rows that no longer existed at the source", _TABLE, "rows"
)
RESELECT_BYTES = RESELECT.counter(
    "reselect_bytes_read_total", "Bytes of the values that SELECTs returned", _TABLE, "bytes"
)
RESELECT_CONNECTIONS = RESELECT.gauge(
    "reselect_connections",
    "Connections to source databases; servers that are not queried for a while",
    (*_TASK, "state"),
    "connections",
    "`idle` and `used`; `left_alone` counts servers that do not answer.",
)
RESELECT_FLASHBACK = RESELECT.counter(
    "reselect_flashback_fallbacks_total", "Oracle reads that used the current state", (*_TABLE, "code"), "reads"
)
RESELECT_GUARD = RESELECT.counter(
    "reselect_placeholder_guard_total",
    "Batches stopped because a placeholder would have been written",
    _TABLE,
    "batches",
    "Must stay 0.",
)
RESELECT_EQUALS_PLACEHOLDER = RESELECT.counter(
    "reselect_source_equals_placeholder_total",
    "Values at the source that equal the placeholder's text",
    _TABLE,
    "values",
)
RESELECT_CONTRADICTIONS = RESELECT.counter(
    "reselect_contradictions_total",
    "Contradictions that indicate missing events",
    (*_TABLE, "kind"),
    "contradictions",
    "An event is missing (`null_then_placeholder`, `position_regression`), or the snapshot is "
    "(`update_without_create`), or another writer has changed the table (`unexplained_counts`). A connector with "
    "`verify.interval.ms` verifies the table next.",
)
CACHE_REQUESTS = RESELECT.counter(
    "reselect_cache_requests_total",
    "Lookups in the column cache by result",
    (*_TABLE, "result"),
    "lookups",
    "`hit`, `miss`, `expired`, `ahead`, `foreign_partition`, `lost`, `fingerprint`, `poisoned`; `bypassed` where the "
    "cache is not queried (new incarnations of rows, columns and topics that are not cached).",
)
CACHE_WRITES = RESELECT.counter(
    "reselect_cache_writes_total",
    "Writes to the column cache by result",
    (*_TABLE, "origin", "result"),
    "entries",
    "Offered by events and answers: `stored`, `invalidated`, or the reason against storing.",
)
CACHE_DROPS = RESELECT.counter(
    "reselect_cache_drops_total", "Rows evicted from the column cache", (*_TABLE, "cause"), "rows"
)
CACHE_ROWS = RESELECT.gauge("reselect_cache_rows", "Rows in a task's column cache", _TASK, "rows")
CACHE_BYTES = RESELECT.gauge("reselect_cache_bytes", "Approximate bytes in a task's column cache", _TASK, "bytes")
CACHE_POISONED = RESELECT.gauge(
    "reselect_cache_poisoned_rows", "Cached rows that a failed write has invalidated", _TASK, "rows"
)
CACHE_OLDEST = RESELECT.gauge(
    "reselect_cache_oldest_seconds", "Age of the oldest entry in a memory cache", _TASK, "seconds"
)

GROUPS = (TABLES, VERIFY, TOPICS, WORKER, DIRECTORY, SOURCES, RESELECT)
