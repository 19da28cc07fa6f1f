"""Requests about the identity of logs, which aiokafka does not have: topic ids and leader epochs.

Metadata version 10 reports the id of a topic (KIP-516, brokers since 2.8) and OffsetForLeaderEpoch the end of what a
leader has written (KIP-320). Both need the right to describe the topic, which every reader has.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.errors import IncompatibleBrokerVersion, for_code
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)

from headrace.ports import TopicPartition

_METADATA, _OFFSET_FOR_LEADER_EPOCH = 3, 23
_NO_ID = bytes(16)
_CONSUMER = -1
_UNKNOWN = -1


class Uuid(AbstractType[bytes]):
    """16 bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        """Return the bytes."""
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        """Read 16 bytes."""
        return data.read(16)


class MetadataResponse_v10(Response):  # noqa: N801 - aiokafka's naming convention
    """Brokers, and the topics with their ids and leaders."""

    API_KEY = _METADATA
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("topic", CompactString("utf-8")),
                ("topic_id", Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class MetadataRequest_v10(RequestStruct):  # noqa: N801
    """The names of topics, which are not created."""

    API_KEY = _METADATA
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponse_v10
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicIdsRequest(Request[MetadataRequest_v10]):
    """Builds the Metadata request for these topics."""

    API_KEY = _METADATA

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[MetadataRequest_v10]) -> MetadataRequest_v10:
        """Return the request."""
        topics: list[tuple[bytes, str, dict[int, bytes]]] = [(_NO_ID, topic, {}) for topic in self._topics]
        return request_struct_class(topics, False, False, False, {})


class OffsetForLeaderEpochResponse_v3(Response):  # noqa: N801
    """The epoch that was found for each partition, and the offset at which it ends."""

    API_KEY = _OFFSET_FOR_LEADER_EPOCH
    API_VERSION = 3
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(("error_code", Int16), ("partition", Int32), ("leader_epoch", Int32), ("end_offset", Int64)),
                ),
            ),
        ),
    )


class OffsetForLeaderEpochRequest_v3(RequestStruct):  # noqa: N801
    """Partitions of one leader, each with the epoch whose end is requested."""

    API_KEY = _OFFSET_FOR_LEADER_EPOCH
    API_VERSION = 3
    RESPONSE_TYPE = OffsetForLeaderEpochResponse_v3
    SCHEMA = Schema(
        ("replica_id", Int32),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                ("partitions", Array(("partition", Int32), ("current_leader_epoch", Int32), ("leader_epoch", Int32))),
            ),
        ),
    )


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochRequest_v3]):
    """Builds the request for one partition."""

    API_KEY = _OFFSET_FOR_LEADER_EPOCH

    def __init__(self, partition: TopicPartition, leader_epoch: int) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch

    def build(self, request_struct_class: type[OffsetForLeaderEpochRequest_v3]) -> OffsetForLeaderEpochRequest_v3:
        """Return the request."""
        topic, number = self._partition
        return request_struct_class(_CONSUMER, [(topic, [(number, _UNKNOWN, self._leader_epoch)])])


class Leader(NamedTuple):
    """The leader of a partition: its node, and the epoch since which it leads."""

    node: int
    epoch: int


class TopicLogs(NamedTuple):
    """The id of a topic, and the leaders of those of its partitions that have one."""

    topic_id: str
    leaders: Mapping[int, Leader]


async def topic_logs(client: Any, topics: Collection[str]) -> Mapping[str, TopicLogs]:
    """Return the ids and leaders of topics as an aiokafka ``client`` learns them now; without those that do not exist.

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
            str(uuid.UUID(bytes=topic_id)) if topic_id != _NO_ID else "",
            {number: Leader(leader, epoch) for _, number, leader, epoch, *_ in partitions if leader >= 0},
        )
        for error_code, topic, topic_id, _, partitions, *_ in response.topics
        if not error_code
    }


async def epoch_end(client: Any, leader: Leader, partition: TopicPartition, leader_epoch: int) -> int | None:
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
