"""The names of Kafka Connect's metrics of a sink task, as ``connect.md`` section 15 lists them."""

from __future__ import annotations

_LISTED = {
    "sink_task": "sink_record_read_total sink_record_send_total sink_record_active_count sink_record_lag_max "
    "partition_count offset_commit_seq_no offset_commit_completion_total offset_commit_skip_total "
    "put_batch_avg_time_ms put_batch_max_time_ms sink_record_read_rate sink_record_send_rate "
    "offset_commit_completion_rate offset_commit_skip_rate",
    "task_error": "total_record_failures total_record_errors total_records_skipped total_retries total_errors_logged "
    "deadletterqueue_produce_requests deadletterqueue_produce_failures last_error_timestamp",
    "connector_task": "running_ratio pause_ratio batch_size_avg batch_size_max offset_commit_avg_time_ms "
    "offset_commit_max_time_ms offset_commit_success_percentage offset_commit_failure_percentage",
}
TASK_METRICS = {f"kafka_connect_{group}_{name}" for group, names in _LISTED.items() for name in names.split()}
"""Metrics that have only the labels ``connector`` and ``task``."""
