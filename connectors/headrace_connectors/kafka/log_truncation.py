"""Detect logs that are not those that the group has read: cut, or of a topic that was deleted and created again.

Brokers, and Kafka's Java clients, detect a cut log by leader epochs (KIP-320); aiokafka does not, and continues at its
offset in whatever the log contains there. A record that is written after a cut has a higher leader epoch than those
before it, because a partition gets a new epoch when its leader ends. So the log is compared

- at the begin of an assignment with what was committed with the offset (``core/batch/offsets.py``): the topic's
  id, and the record before the offset, which is read again and not delivered. If compaction has removed that record,
  the end of its leader epoch shows whether it is in the log;
- whenever a record of another leader epoch arrives: with the end of the epoch before it, as the new leader knows it;
- if records come again that were read already, which is what aiokafka does if its offset is behind the end of the log;
- every few seconds with the topic's id.

The requests for the id of a topic and for the end of a leader epoch (``protocol.py``) need the right to describe the
topic, which every reader has.

Tests: ``tests/unit/kafka/test_log.py``, ``tests/contracts/feed_suite.py``.
"""

from __future__ import annotations

import asyncio
import time
import uuid
import zlib
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import IncompatibleBrokerVersion, KafkaError, for_code

from headrace.core.batch.offsets import LogPosition, ReadLogs
from headrace.core.decode.json_converter import document_bytes
from headrace.core.model.errors import Retriable
from headrace.ports import OffsetNote, TopicPartition
from headrace_connectors.kafka.protocol import NO_ID, OffsetForLeaderEpochRequest, TopicIdsRequest
from headrace_connectors.kafka.records import FetchedRecord


class Leader(NamedTuple):
    """The leader of a partition: its node, and the epoch since which it leads."""

    node: int
    epoch: int


class TopicLogs(NamedTuple):
    """The id of a topic, and the leaders of those of its partitions that have one."""

    topic_id: str
    leaders: Mapping[int, Leader]


async def topic_logs(client: AIOKafkaClient, topics: Collection[str]) -> Mapping[str, TopicLogs]:
    """Return the ids and leaders of topics as the ``client`` learns them now; without those that do not exist.

    Empty if the brokers do not know topic ids. Raises KafkaError.
    """
    node = client.get_random_node()
    if node is None or not topics:
        return {}
    try:
        response = await client.send(node, TopicIdsRequest(topics))
    except (IncompatibleBrokerVersion, NotImplementedError):
        return {}
    return {
        topic: TopicLogs(
            str(uuid.UUID(bytes=topic_id)) if topic_id != NO_ID else "",
            {number: Leader(leader, epoch) for _, number, leader, epoch, *_ in partitions if leader >= 0},
        )
        for error_code, topic, topic_id, _, partitions, *_ in response.topics
        if not error_code
    }


async def epoch_end(client: AIOKafkaClient, leader: Leader, partition: TopicPartition, leader_epoch: int) -> int | None:
    """Return the offset behind the last record that was written up to a leader epoch, as the log is now.

    None if the leader does not know. Raises KafkaError, also if it is not the leader any more.
    """
    try:
        response = await client.send(leader.node, OffsetForLeaderEpochRequest(partition, leader_epoch))
    except (IncompatibleBrokerVersion, NotImplementedError):
        return None
    [(_, [(error_code, _, _, end_offset)])] = response.topics
    if error_code:
        raise for_code(error_code)(f"{partition.topic}-{partition.partition}")
    return int(end_offset) if end_offset >= 0 else None


_ANSWER_SECONDS = 60.0
_PAUSE_SECONDS = 0.5


class LogTruncation:
    """The logs of one member's assignment. Everything runs on the consumer thread; ``client`` is aiokafka's."""

    def __init__(self, client: AIOKafkaClient) -> None:
        self._client = client
        self.topic_ids: dict[str, str] = {}
        self._noted_ids: set[tuple[str, str]] = set()  # topics and ids in the notes of committed offsets
        self._logs = ReadLogs()
        self._unread: dict[TopicPartition, LogPosition] = {}  # the record before the offset, until it is read again
        self._begin: dict[TopicPartition, int] = {}

    def begin(self, committed: Mapping[TopicPartition, OffsetNote]) -> None:
        """Begin an assignment with the offsets and notes of the group."""
        self._logs = ReadLogs(committed.items())
        self._begin = {partition: offset for partition, (offset, _) in committed.items()}
        self._unread = {partition: last for partition in committed if (last := self._logs.last(partition)) is not None}
        self._noted_ids = {(partition.topic, position.topic_id) for partition, position in self._unread.items()}
        self.topic_ids = {}

    async def created_again(self, topics: Collection[str]) -> Sequence[str]:
        """Return the topics that have another id than in their notes, or than before in this assignment.

        Raises KafkaError.
        """
        logs = await topic_logs(self._client, topics)
        current_ids = {topic: log.topic_id for topic, log in logs.items() if log.topic_id}
        earlier_ids = {*self._noted_ids, *self.topic_ids.items()}
        self.topic_ids = current_ids | self.topic_ids
        return sorted(
            {topic for topic, topic_id in earlier_ids if topic_id and current_ids.get(topic, topic_id) != topic_id}
        )

    def begins_at(self, first: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int]:
        """Return where to begin to read: at the record before the committed offset, if it is not removed yet.

        ``first`` are the offsets of the logs' first records.
        """
        self._unread = {
            partition: position
            for partition, position in self._unread.items()
            if partition in first and position.offset >= first[partition]
        }
        return {partition: position.offset for partition, position in self._unread.items()}

    async def check(
        self, partition: TopicPartition, records: Sequence[FetchedRecord]
    ) -> tuple[Sequence[FetchedRecord], str | None]:
        """Return the records to deliver, which follow what was read before, or what is wrong with the log.

        Raises Retriable if the leader of the partition does not answer.
        """
        last, unread, problem = self._logs.last(partition), self._unread.pop(partition, None), None
        if unread is not None:
            problem = unread.difference(_position(records[0]))
        elif last is not None and records[0].offset <= last.offset:
            problem = f"the log ended before offset {last.offset + 1}"
        if problem is None and last is not None and last.leader_epoch != records[-1].leader_epoch:
            problem = await self._epoch_problem(partition, last, records[-1].leader_epoch)
        if problem is not None:
            return (), problem
        begin = self._begin.get(partition, 0)
        return [record for record in records if record.offset >= begin] if records[0].offset < begin else records, None

    async def _epoch_problem(self, partition: TopicPartition, last: LogPosition, leader_epoch: int) -> str | None:
        """Compare the end of the last record's leader epoch with that record; ``leader_epoch`` is a later record's."""
        if last.leader_epoch < 0 or leader_epoch < 0:
            return None  # the old format of messages has no epochs
        if leader_epoch < last.leader_epoch:
            return f"leader epoch {leader_epoch} follows epoch {last.leader_epoch} of offset {last.offset}"
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                logs = (await topic_logs(self._client, [partition.topic])).get(partition.topic)
                if logs is None:
                    return None  # it was deleted, or the brokers are too old
                leader = logs.leaders.get(partition.partition)
                if leader is not None:
                    end = await epoch_end(self._client, leader, partition, last.leader_epoch)
                    if end is not None and end <= last.offset:
                        return f"the log was cut at offset {end}, and the group has read up to {last.offset + 1}"
                    return None
            except KafkaError as error:
                if time.monotonic() > deadline:
                    raise Retriable(
                        f"{partition.topic}-{partition.partition}: the leader has changed, and does not report where "
                        f"the epoch of the leader before it ends: {error}"
                    ) from error
            if time.monotonic() > deadline:
                raise Retriable(f"{partition.topic}-{partition.partition}: the partition has no leader")
            await asyncio.sleep(_PAUSE_SECONDS)

    def read(self, partition: TopicPartition, record: FetchedRecord, end: int) -> None:
        """Register the last record before the fetch position ``end``."""
        self._logs.read(partition, _position(record, self.topic_ids.get(partition.topic, "")), end)

    def before(self, partition: TopicPartition, offset: int) -> LogPosition | None:
        """Return the position to commit with an offset."""
        return self._logs.before(partition, offset)


def _position(record: FetchedRecord, topic_id: str = "") -> LogPosition:
    checksum = zlib.crc32(document_bytes(record.value) or b"", zlib.crc32(record.key or b""))
    return LogPosition(record.offset, record.timestamp, checksum, record.leader_epoch, topic_id)
