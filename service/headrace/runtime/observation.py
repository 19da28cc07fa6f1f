"""Observers of a sink task and its worker, which the metrics override (``runtime/metrics/metrics.py``).

All methods are called on the event loop, ``stage`` and ``on_repair`` also in threads.

Tests: ``tests/unit/runtime/metrics/``, ``tests/unit/runtime/task/``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from headrace.core.batch.batch import Batch, Unwritten
from headrace.core.connect.lifecycle import State
from headrace.core.connect.status import TableStatus
from headrace.core.connect.table_load import LoadProgress
from headrace.core.model.proof import VerificationReport
from headrace.ports import ReplicationSlot, TopicPartition, UpkeepReport


class Observer:
    """Receives the steps of a task, and ignores them."""

    def stage(self, table: str, stage: str) -> AbstractContextManager[None]:
        """Measure a stage of a table (decode: of a topic): decode, fold, reselect, ledger, merge, …

        A stage begins and ends in the same thread, so that its CPU time can be measured.
        """
        return nullcontext()

    def on_assignment(self, partitions: Collection[TopicPartition]) -> None:
        """Receive a new assignment. No records of the old one are in memory."""

    def on_chunk_decoded(self, partition: TopicPartition, records: int, skipped: int) -> None:
        """Receive the number of records of a decoded chunk."""

    def on_chunk_taken(self, partition: TopicPartition, end: int, records: int) -> None:
        """Receive a chunk that ends before offset ``end`` and waits to be written."""

    def on_errant_records(self, records: int, *, skipped: bool, logged: bool) -> None:
        """Receive the number of records that could not be used. They are skipped, or the table or task fails."""

    def on_dead_letters(self, records: int, *, failed: bool) -> None:
        """Receive the number of records that were sent to the dead letter queue. ``failed``: it did not accept them."""

    def on_retry(self) -> None:
        """Receive a retry after a retriable error."""

    def on_note(self, text: str, location: str) -> None:
        """Receive a guarantee that does not hold for a topic or one of its columns, once."""

    def set_note(self, text: str, locations: Sequence[str]) -> None:
        """Receive all topics to which a note applies at present; none if it applies no more."""

    def on_losses(self, topic: str, losses: Mapping[str, int]) -> None:
        """Receive how many values the source's connector does not send completely, by the kind of loss."""

    def on_batch_durable(self, batch: Batch, seconds: float, now: float) -> None:
        """Receive a batch that is durable. ``now`` is Unix time in seconds, for the freshness of its rows."""

    def on_late_events(self, table: str, events: int) -> None:
        """Receive how many events of a durable batch became visible after the freshness target; may be none."""

    def on_commit(self, offsets: Mapping[TopicPartition, int], seconds: float) -> None:
        """Receive the committed offsets, and the duration of the commit."""

    def on_failed_commit(self, *, refused: bool) -> None:
        """Receive a failed commit. ``refused``: the group rejected it because it came too late."""

    def watch_lag(self, lag: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Receive the function that returns the number of records that are not committed, by partition."""

    def watch_unwritten(self, oldest: Callable[[], Mapping[str, Unwritten]]) -> None:
        """Receive the function that returns the oldest events that are not durable, by table. Other tables have none.

        A function, because the answer changes with each chunk, and takes time in proportion to the number of tables.
        """

    def watch_targets(self, target: Callable[[str], float]) -> None:
        """Receive the function that returns the freshness target of a table, in seconds."""

    def watch_loads(self, loads: Callable[[], Mapping[str, LoadProgress]]) -> None:
        """Receive the function that returns the progress of the loads that are running, by table."""

    def on_slots(self, slots: Sequence[ReplicationSlot]) -> None:
        """Receive the replication slots of the connector's databases; none if they are not known."""

    def watch_verifications(self, reports: Callable[[], Mapping[str, VerificationReport]]) -> None:
        """Receive the function that returns the reports on the verifications of the task's tables, by table."""

    def on_upkeep(self, table: str, report: UpkeepReport) -> None:
        """Receive the files of a table, and what merges and upkeep have written since it was opened."""

    def on_schema_change(self, table: str, columns: str) -> None:
        """Receive which columns of a table were added, removed or got another type, as text."""

    def on_repair(self, table: str, rows: int) -> None:
        """Receive how many rows of a table a verification has repaired."""

    def on_tables_left(self, tables: Collection[str]) -> None:
        """Receive tables whose topics are now assigned to another task."""

    def on_blocked_tables(self, blocked: Sequence[TableStatus]) -> None:
        """Receive the tables that are retried, have failed or are paused alone. The task's other tables run."""


class StateObserver:
    """Receives the states of this worker's connectors and tasks, and ignores them."""

    def on_connector_state(self, connector: str, state: State) -> None:
        """Receive the new state of a connector. A start ends in RUNNING or FAILED."""

    def on_task_state(self, connector: str, task_number: int, state: State) -> None:
        """Receive the new state of a task. DESTROYED: this worker does not run it any more."""


NO_OBSERVER, NO_STATE_OBSERVER = Observer(), StateObserver()
