"""The stores of a worker (in Kafka if it is distributed, in memory if not), and the offsets of topics and groups.

Tests: tests/contracts/test_compacted_log.py, tests/contracts/test_standalone_stores.py
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as ClientPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from headrace.config.kafka import KafkaSettings
from headrace.config.worker_options import IdentitySettings, StorageSettings
from headrace.core.connect.typed_options import below, parse_options
from headrace.core.connect.work import Assignment, Task, WorkerState, assign_work
from headrace.core.doctor.topics import ClusterState, TopicDescription
from headrace.core.model.errors import Fenced
from headrace.ports import CompactedLog, FencedLog, LogRecord, TopicPartition, WorkerMember
from headrace_connectors.kafka.aiokafka_patches import stop_client
from headrace_connectors.kafka.cluster import read_cluster
from headrace_connectors.kafka.errors import headrace_error
from headrace_connectors.kafka.group_offsets import KafkaGroupOffsets
from headrace_connectors.kafka.log import KafkaFencedLog, KafkaLog, LogTopic
from headrace_connectors.kafka.preflight import check_brokers
from headrace_connectors.kafka.settings import client_arguments, group_arguments, topic_arguments
from headrace_connectors.kafka.topics import POLICY, RETENTION, admin_client, topic_configs
from headrace_connectors.kafka.worker_member import KafkaWorkerMember

_CONFIG, _STATUS = "config.storage", "status.storage"
_OWN_SETTINGS = ("topic", "partitions", "replication.factor")
"""Options with the prefix of a topic that are not settings of the topic."""


class KafkaTopicOffsets:
    """``headrace.ports.TopicOffsets``. Each call opens a connection, without a group."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = dict(arguments)

    async def ends(self, pattern: str) -> Mapping[TopicPartition, int]:
        """Return the last stable offsets of the matching topics' partitions. Raises Retriable, ConfigError or Fatal."""
        consumer = AIOKafkaConsumer(**self._arguments, isolation_level="read_committed", enable_auto_commit=False)
        try:
            await consumer.start()
            async with admin_client(self._arguments) as admin:  # a consumer knows only its own topics
                partitions = _partitions(await _describe_topics(admin, pattern))
            ends = await consumer.end_offsets(partitions) if partitions else {}
        except (KafkaError, OSError) as error:
            raise headrace_error(error, "reading the ends of topics") from error
        finally:
            await stop_client(consumer)
        return {TopicPartition(partition.topic, partition.partition): end for partition, end in ends.items()}

    async def describe(self, pattern: str) -> Sequence[TopicDescription]:
        """Return the matching topics by name. Raises Retriable, ConfigError or Fatal."""
        now_ms = int(time.time() * 1000)
        consumer = AIOKafkaConsumer(**self._arguments, enable_auto_commit=False)
        try:
            await consumer.start()
            async with admin_client(self._arguments) as admin:
                topics = await _describe_topics(admin, pattern)
                if not topics:
                    return ()
                configs = await topic_configs(admin, [topic["topic"] for topic in topics], POLICY, RETENTION)
                cluster: Mapping[str, Any] = await admin.describe_cluster()
            partitions = _partitions(topics)
            begins = await consumer.beginning_offsets(partitions)
            retained = {name: int(config.get(RETENTION, "-1")) for name, config in configs.items()}
            ages = {
                partition: now_ms - retained[partition.topic] // 2
                for partition in partitions
                if 0 <= retained[partition.topic] < now_ms
            }
            middles = await consumer.offsets_for_times(ages) if ages else {}
            ends = await consumer.end_offsets(partitions)
        except (KafkaError, OSError) as error:
            raise headrace_error(error, "describing topics") from error
        finally:
            await stop_client(consumer)
        return [
            TopicDescription(
                topic["topic"],
                begins={place.partition: begins[place] for place in _partitions([topic])},
                replicas=min(len(partition["replicas"]) for partition in topic["partitions"]),
                policy=configs[topic["topic"]].get(POLICY, ""),
                brokers=len(cluster["brokers"]),
                retention_ms=retained[topic["topic"]],
                middles={
                    # A marker of a transaction may be the last record, which no group has to read.
                    place.partition: found.offset if (found := middles[place]) else max(begins[place], ends[place] - 1)
                    for place in _partitions([topic])
                    if place in middles
                },
            )
            for topic in topics
        ]

    async def cluster(self, now: Callable[[], float]) -> ClusterState:
        """Return the state of the cluster. Raises Retriable, ConfigError or Fatal."""
        return await read_cluster(self._arguments, now)


async def _describe_topics(admin: AIOKafkaAdminClient, pattern: str) -> list[dict[str, Any]]:
    """Return what the cluster knows of the topics whose whole name matches, by name."""
    topics = [topic for topic in await admin.list_topics() if re.fullmatch(pattern, topic)]
    described = await admin.describe_topics(topics) if topics else []
    return sorted(described, key=lambda topic: str(topic["topic"]))


def _partitions(topics: Sequence[Mapping[str, Any]]) -> list[ClientPartition]:
    return [
        ClientPartition(topic["topic"], partition["partition"]) for topic in topics for partition in topic["partitions"]
    ]


class KafkaCluster:
    """The part of ``headrace.ports.Stores`` that any worker has: consumer groups and topics of the cluster."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties
        self._arguments = client_arguments(properties)

    async def start(self) -> None:
        await check_brokers(self._arguments)

    def group_offsets(self, connector: str, settings: KafkaSettings) -> KafkaGroupOffsets:
        return KafkaGroupOffsets(group_arguments(self._properties, connector, settings))

    def topic_offsets(self, connector: str, settings: KafkaSettings) -> KafkaTopicOffsets:
        return KafkaTopicOffsets(topic_arguments(self._properties, settings))

    async def cluster_id(self) -> str | None:
        """Return the cluster's id for ``GET /``, None if it cannot be read."""
        try:
            async with admin_client(self._arguments) as admin:
                answer: dict[str, Any] = await admin.describe_cluster()
        except (KafkaError, OSError):
            return None
        return answer.get("cluster_id")


class KafkaStores(KafkaCluster):
    """``headrace.ports.Stores`` on the topics in the worker's ``properties``, which include the defaults."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        identity, storage = parse_options(IdentitySettings, properties), parse_options(StorageSettings, properties)
        self._group, self._config_topic = identity.group_id or "", storage.config_topic or ""
        self._timeouts = {
            "session_timeout_ms": identity.session_timeout_ms,
            "heartbeat_interval_ms": identity.heartbeat_interval_ms,
            "rebalance_timeout_ms": identity.rebalance_timeout_ms,
        }
        configs = LogTopic(
            self._config_topic, f"{_CONFIG}.topic", 1, storage.config_replication, _topic_settings(properties, _CONFIG)
        )
        statuses = LogTopic(
            storage.status_topic or "",
            f"{_STATUS}.topic",
            storage.status_partitions,
            storage.status_replication,
            _topic_settings(properties, _STATUS),
        )
        self.configs: FencedLog = KafkaFencedLog(configs, self._arguments, self._group)
        self.statuses: CompactedLog = KafkaLog(statuses, self._arguments)

    def member(self, worker: str) -> WorkerMember:
        return KafkaWorkerMember(worker, self._group, self._config_topic, self._arguments, self._timeouts)

    async def close(self) -> None:
        """Close both logs. Idempotent."""
        await self.configs.close()
        await self.statuses.close()


def _topic_settings(properties: Mapping[str, str], storage: str) -> dict[str, str]:
    return {name: text for name, text in below(properties, f"{storage}.").items() if name not in _OWN_SETTINGS}


class StandaloneLog:
    """``headrace.ports.FencedLog`` of a worker that nobody else writes for. Its records end with the process."""

    def __init__(self) -> None:
        self._records: dict[str, bytes] = {}
        self._appended = 0
        self._listeners: list[Callable[[str, bytes | None], None]] = []

    async def start(self, applied: Callable[[str, bytes | None], None]) -> None:
        for key, value in self._records.items():
            applied(key, value)
        self._listeners.append(applied)

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Store the records, the last of each key at its own position as compaction does, and pass them on."""
        for key, value in records:
            self._appended += 1
            self._records.pop(key, None)
            if value is not None:
                self._records[key] = value
            for applied in self._listeners:
                applied(key, value)

    def position(self) -> int:
        return self._appended

    async def lead(self) -> None:
        """Do nothing, because no other worker writes."""

    async def refresh(self) -> None:
        """Do nothing, because records are passed on at once."""

    async def close(self) -> None:
        """Pass no further record on. Idempotent."""
        self._listeners.clear()


class StandaloneMember:
    """``headrace.ports.WorkerMember`` without a group: it leads and has all tasks."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._state = WorkerState(worker, 0)
        self._tasks: Collection[Task] = ()
        self._assigned: Callable[[Assignment], None] | None = None

    async def start(self, assigned: Callable[[Assignment], None]) -> None:
        self._assigned = assigned
        self.rebalance()

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        self._tasks = tasks
        self._state = replace(self._state, offset=offset)

    def rebalance(self) -> None:
        """Assign the tasks at once."""
        if self._assigned is not None:
            assignment = assign_work({self._worker: self._state}, self._tasks, self._state.offset)[self._worker]
            self._state = replace(
                self._state, generation=assignment.generation, leads=assignment.leads, tasks=assignment.tasks
            )
            self._assigned(assignment)

    async def confirm(self) -> None:
        if self._assigned is None:
            raise Fenced(f"{self._worker} has stopped")

    async def stop(self) -> None:
        self._assigned = None


class StandaloneStores(KafkaCluster):
    """``headrace.ports.Stores`` of standalone mode."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.configs: FencedLog = StandaloneLog()
        self.statuses: CompactedLog = StandaloneLog()

    def member(self, worker: str) -> WorkerMember:
        return StandaloneMember(worker)

    async def close(self) -> None:
        """Do nothing, because nothing is open."""
