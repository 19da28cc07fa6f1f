"""The release of a cluster's brokers and the clock of its controller, for ``headrace doctor``.

ApiVersions version 3 reports the features that a broker supports (KIP-584), among them the format of the cluster's
metadata, which each release of Kafka raises. DescribeQuorum version 1 reports when the leader of the controllers has
been heard of last (KIP-836), which is the time of its own clock when it answers. Neither request writes anything.

Tests: ``tests/unit/kafka/test_cluster.py``, ``tests/integration/test_doctor_topics.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from aiokafka.client import AIOKafkaClient
from aiokafka.errors import ClusterAuthorizationFailedError, IncompatibleBrokerVersion, KafkaError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response, ResponseHeader_v0
from aiokafka.protocol.types import CompactArray, CompactString, Int16, Int32, Int64, Schema, TaggedFields

from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.topics import ClusterState
from headrace.core.doctor.versions import kafka_release
from headrace_connectors.kafka.errors import headrace_error

_API_VERSIONS, _DESCRIBE_QUORUM = 18, 55


async def read_cluster(arguments: Mapping[str, Any], now: Callable[[], float]) -> ClusterState:
    """Return the state of the cluster. Raises Retriable, ConfigError or Fatal.

    ``now`` is the clock of this machine, in seconds since the epoch.
    """
    client = AIOKafkaClient(**arguments)
    try:
        await client.bootstrap()
        node = client.get_random_node()
        features = await _features(client, node)
        clock, reason = await _controller_clock(client, node, now)
    except (KafkaError, OSError) as error:
        raise headrace_error(error, "querying the state of the cluster") from error
    finally:
        await client.close()
    return ClusterState(kafka_release(features.get("metadata.version")), clock, reason)


async def _features(client: AIOKafkaClient, node: int | None) -> Mapping[str, int]:
    """Return the newest version of each feature that a broker supports; empty if it reports none."""
    try:
        response = await client.send(node, FeaturesRequest())
    except (IncompatibleBrokerVersion, NotImplementedError):
        return {}
    tag = response.tags.get(0)
    features = _SUPPORTED_FEATURES.decode(BytesIO(tag)) if tag is not None else None
    return {name: newest for name, _, newest, _ in features or ()}


async def _controller_clock(
    client: AIOKafkaClient, node: int | None, now: Callable[[], float]
) -> tuple[ClockReading | None, str]:
    """Return the clock of the active controller, or None and the reason."""
    before = now()
    try:
        response = await client.send(node, QuorumRequest())
    except (IncompatibleBrokerVersion, NotImplementedError):
        return None, "these brokers do not report a time (DescribeQuorum)"
    after = now()
    if response.error_code:
        error = for_code(response.error_code)
        if error is ClusterAuthorizationFailedError:
            return None, "the client's user may not describe the cluster; grant it Describe on the cluster"
        raise error("describing the controllers")
    [(_, [(_, error_code, leader, _, _, voters, *_), *_], *_)] = response.topics
    times = {replica: fetched / 1000 for replica, _, fetched, *_ in voters}
    if error_code or leader not in times:
        return None, "the cluster has no controller at the moment"
    return ClockReading(f"Kafka, controller {leader}", before, times[leader], after), ""


class ApiVersionsResponseV3(Response):
    """The requests that a broker answers. Its tags contain the features that it supports."""

    API_KEY = _API_VERSIONS
    API_VERSION = 3
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "api_keys",
            CompactArray(("api_key", Int16), ("min_version", Int16), ("max_version", Int16), ("tags", TaggedFields)),
        ),
        ("throttle_time_ms", Int32),
        ("tags", TaggedFields),
    )


class ApiVersionsRequestV3(RequestStruct):
    """The name and version of the client."""

    API_KEY = _API_VERSIONS
    API_VERSION = 3
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = ApiVersionsResponseV3
    SCHEMA = Schema(
        ("software_name", CompactString("utf-8")), ("software_version", CompactString("utf-8")), ("tags", TaggedFields)
    )

    def parse_response_header(self, read_buffer: BytesIO | bytes) -> ResponseHeader_v0:
        """Parse it without tags: its client does not know yet which versions the broker has."""
        header: ResponseHeader_v0 = ResponseHeader_v0.decode(read_buffer)
        return header


class FeaturesRequest(Request[ApiVersionsRequestV3]):
    """The ApiVersions request, for the features of a broker."""

    API_KEY = _API_VERSIONS

    def build(self, request_struct_class: type[ApiVersionsRequestV3]) -> ApiVersionsRequestV3:
        return request_struct_class("headrace", "doctor", {})


_SUPPORTED_FEATURES = CompactArray(
    ("name", CompactString("utf-8")), ("min_version", Int16), ("max_version", Int16), ("tags", TaggedFields)
)


_REPLICAS = CompactArray(
    ("replica_id", Int32),
    ("log_end_offset", Int64),
    ("last_fetch_timestamp", Int64),
    ("last_caught_up_timestamp", Int64),
    ("tags", TaggedFields),
)


class DescribeQuorumResponseV1(Response):
    """The controllers of the cluster. The leader's times are those of its clock when it answers."""

    API_KEY = _DESCRIBE_QUORUM
    API_VERSION = 1
    SCHEMA = Schema(
        ("error_code", Int16),
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("high_watermark", Int64),
                        ("voters", _REPLICAS),
                        ("observers", _REPLICAS),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class DescribeQuorumRequestV1(RequestStruct):
    """The partitions of the controllers' log."""

    API_KEY = _DESCRIBE_QUORUM
    API_VERSION = 1
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = DescribeQuorumResponseV1
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(
                ("topic", CompactString("utf-8")),
                ("partitions", CompactArray(("partition", Int32), ("tags", TaggedFields))),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class QuorumRequest(Request[DescribeQuorumRequestV1]):
    """The request about the controllers' log, which has one partition."""

    API_KEY = _DESCRIBE_QUORUM

    def build(self, request_struct_class: type[DescribeQuorumRequestV1]) -> DescribeQuorumRequestV1:
        return request_struct_class([("__cluster_metadata", [(0, {})], {})], {})
