"""The stores of a worker: configurations and statuses that outlive it, and the groups of the cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from headrace.config.kafka import KafkaSettings
from headrace.core.connect.work import Assignment, Task
from headrace.core.doctor.topics import ClusterState, TopicDescription
from headrace.ports.feed import TopicPartition

LogRecord = tuple[str, bytes | None]
"""Key and value of a record of a compacted log; no value removes the key."""


class CompactedLog(Protocol):
    """A keyed log of which the last value of every key counts: a compacted Kafka topic (``KafkaBasedLog``)."""

    async def start(self, applied: Callable[[str, bytes | None], None]) -> None:
        """Pass the log's records to ``applied`` up to its end, and then new records of any writer.

        Raises ConfigError or Retriable if the log cannot be reached or created.
        """

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Write the records in order, all or none; when this returns, ``applied`` has got them. Raises Retriable."""

    def position(self) -> int:
        """How far the log has been read. Comparable between readers of a log with one partition."""

    async def close(self) -> None:
        """Close the connections. Idempotent."""


class FencedLog(CompactedLog, Protocol):
    """A log that one worker of a group writes, and all read."""

    async def lead(self) -> None:
        """Become the writer. Later writes of the former writer raise Fenced, and no earlier one arrives late.

        A worker that another one has fenced calls this again. Raises Retriable.
        """

    async def refresh(self) -> None:
        """Wait until everything that is in the log now has been applied. Raises Retriable."""


class WorkerMember(Protocol):
    """A worker in the group of all workers (Kafka Connect's ``WorkerGroupMember``)."""

    async def start(self, assigned: Callable[[Assignment], None]) -> None:
        """Join, and stay until ``stop``. ``assigned`` is called on the worker's event loop, now and at each change.

        Raises ConfigError, Retriable or Fatal when the group cannot be joined.
        """

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        """The tasks as of ``offset`` of the config topic, which this member assigns if the group elects it."""

    def rebalance(self) -> None:
        """Request a new assignment of all tasks."""

    async def confirm(self) -> None:
        """Raises Fenced unless the newest assignment of this member is still valid, and Retriable."""

    async def stop(self) -> None:
        """Leave the group. Idempotent."""


class GroupOffsets(Protocol):
    """The committed offsets of consumer groups, read and changed by a process outside of the group.

    Every call raises Retriable when the brokers do not answer. A change raises Fenced while the group has members, and
    Fatal for a partition that does not exist.
    """

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """The next offset of every partition that the group has committed; empty for an unknown group."""

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set the next offsets, which may lie beyond a partition's end; None removes one. Others stay as they are."""

    async def reset(self, group: str) -> None:
        """Remove all offsets of the group. Idempotent."""


class TopicOffsets(Protocol):
    """Topics and their offsets, read outside of any group."""

    async def ends(self, pattern: str) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of the topics whose whole name matches the regular expression.

        Raises Retriable when the brokers do not answer.
        """

    async def describe(self, pattern: str) -> Sequence[TopicDescription]:
        """The topics whose whole name matches, by name. Raises Retriable when the brokers do not answer."""

    async def cluster(self, now: Callable[[], float]) -> ClusterState:
        """The state of the cluster, compared with the clock ``now``, seconds since the epoch. Raises Retriable."""


class Stores(Protocol):
    """The stores of what outlives a worker: configurations with target states, and statuses."""

    configs: FencedLog
    statuses: CompactedLog

    async def start(self) -> None:
        """Connect. The readers of the logs start them. Raises ConfigError or Retriable."""

    def member(self, worker: str) -> WorkerMember:
        """The membership of the worker with the address ``worker`` (``host:port``)."""

    def group_offsets(self, connector: str, settings: KafkaSettings) -> GroupOffsets:
        """The consumer groups of the cluster that the connector reads. Raises ConfigError for its client properties."""

    def topic_offsets(self, connector: str, settings: KafkaSettings) -> TopicOffsets:
        """The topics of that cluster. Raises ConfigError likewise."""

    async def cluster_id(self) -> str | None:
        """The Kafka cluster's id; None if it has none."""

    async def close(self) -> None:
        """Close everything. Idempotent."""
