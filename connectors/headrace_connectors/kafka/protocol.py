"""The requests of Kafka's protocol that aiokafka does not have, each in the only version that is needed.

Metadata version 10 reports the id of a topic (KIP-516, brokers since 2.8). OffsetForLeaderEpoch reports where the log
of a leader ends (KIP-320). OffsetDelete removes the offsets of single partitions.

Tests: ``tests/contracts/feed_suite.py``, ``tests/contracts/test_group_offsets.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from io import BytesIO

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

_METADATA, _OFFSET_FOR_LEADER_EPOCH, _OFFSET_DELETE = 3, 23, 47
NO_ID = bytes(16)
_CONSUMER = -1
_UNKNOWN = -1


class Uuid(AbstractType[bytes]):
    """16 bytes."""

    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class MetadataResponseV10(Response):
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


class MetadataRequestV10(RequestStruct):
    """The names of topics, which are not created."""

    API_KEY = _METADATA
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = MetadataResponseV10
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", Uuid), ("topic", CompactString("utf-8")), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class TopicIdsRequest(Request[MetadataRequestV10]):
    """The Metadata request, for the ids of topics."""

    API_KEY = _METADATA

    def __init__(self, topics: Collection[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[MetadataRequestV10]) -> MetadataRequestV10:
        topics: list[tuple[bytes, str, dict[int, bytes]]] = [(NO_ID, topic, {}) for topic in self._topics]
        return request_struct_class(topics, False, False, False, {})


class OffsetForLeaderEpochResponseV3(Response):
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


class OffsetForLeaderEpochRequestV3(RequestStruct):
    """Partitions of one leader, each with the epoch whose end is requested."""

    API_KEY = _OFFSET_FOR_LEADER_EPOCH
    API_VERSION = 3
    RESPONSE_TYPE = OffsetForLeaderEpochResponseV3
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


class OffsetForLeaderEpochRequest(Request[OffsetForLeaderEpochRequestV3]):
    """The request for the end of a leader epoch of one partition."""

    API_KEY = _OFFSET_FOR_LEADER_EPOCH

    def __init__(self, partition: TopicPartition, leader_epoch: int) -> None:
        self._partition = partition
        self._leader_epoch = leader_epoch

    def build(self, request_struct_class: type[OffsetForLeaderEpochRequestV3]) -> OffsetForLeaderEpochRequestV3:
        topic, number = self._partition
        return request_struct_class(_CONSUMER, [(topic, [(number, _UNKNOWN, self._leader_epoch)])])


class OffsetDeleteResponseV0(Response):
    """An error of the group, and one for each partition."""

    API_KEY = _OFFSET_DELETE
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(("topic", String("utf-8")), ("partitions", Array(("partition", Int32), ("error_code", Int16)))),
        ),
    )


class OffsetDeleteRequestV0(RequestStruct):
    """The partitions of a group whose offsets are removed."""

    API_KEY = _OFFSET_DELETE
    API_VERSION = 0
    RESPONSE_TYPE = OffsetDeleteResponseV0
    SCHEMA = Schema(
        ("group_id", String("utf-8")), ("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32))))
    )


class OffsetDeleteRequest(Request[OffsetDeleteRequestV0]):
    """The request to remove offsets, in the only version that exists."""

    API_KEY = _OFFSET_DELETE

    def __init__(self, group: str, topics: list[tuple[str, list[int]]]) -> None:
        self._group = group
        self._topics = topics

    def build(self, request_struct_class: type[OffsetDeleteRequestV0]) -> OffsetDeleteRequestV0:
        return request_struct_class(self._group, self._topics)
