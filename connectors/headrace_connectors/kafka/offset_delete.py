"""Kafka's OffsetDelete request (KIP-496), which aiokafka does not have."""

from __future__ import annotations

from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int16, Int32, Schema, String

GROUP_SUBSCRIBED_TO_TOPIC = 86
"""The error for a partition whose topic a member of the group reads, which aiokafka does not define."""
_API_KEY = 47


class OffsetDeleteResponse_v0(Response):  # noqa: N801 - aiokafka's naming convention
    """An error of the group, and one for each partition."""

    API_KEY = _API_KEY
    API_VERSION = 0
    SCHEMA = Schema(
        ("error_code", Int16),
        ("throttle_time_ms", Int32),
        (
            "topics",
            Array(("topic", String("utf-8")), ("partitions", Array(("partition", Int32), ("error_code", Int16)))),
        ),
    )


class OffsetDeleteRequest_v0(RequestStruct):  # noqa: N801
    """The partitions of a group whose offsets are removed."""

    API_KEY = _API_KEY
    API_VERSION = 0
    RESPONSE_TYPE = OffsetDeleteResponse_v0
    SCHEMA = Schema(
        ("group_id", String("utf-8")),
        ("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))),
    )


class OffsetDeleteRequest(Request[OffsetDeleteRequest_v0]):
    """Builds the request in the only version that exists."""

    API_KEY = _API_KEY

    def __init__(self, group: str, topics: list[tuple[str, list[int]]]) -> None:
        self._group = group
        self._topics = topics

    def build(self, request_struct_class: type[OffsetDeleteRequest_v0]) -> OffsetDeleteRequest_v0:
        """Return the request."""
        return request_struct_class(self._group, self._topics)
