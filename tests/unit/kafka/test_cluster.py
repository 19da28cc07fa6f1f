"""The state of a cluster, where the brokers do not report it: against scripted answers of a broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiokafka.protocol.api import RequestStruct
from support.clock import Clock
from support.kafka.scripted_kafka import Answer, ScriptedKafka

from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.topics import ClusterState
from headrace.core.model.errors import Retriable
from headrace_connectors.kafka.cluster import DescribeQuorumRequestV1, DescribeQuorumResponseV1, read_cluster

pytestmark = pytest.mark.anyio

NOW = Clock(1_000.0)
NOT_ALLOWED, BUSY = 31, 7


def quorum(leader: int, *voters: tuple[int, int], error: int = 0) -> Mapping[type[RequestStruct], Answer]:
    """An answer with the times of the controllers, in milliseconds."""
    replicas = [(replica, 0, time, time, {}) for replica, time in voters]
    topics: list[Any] = [("__cluster_metadata", [(0, 0, leader, 1, 1, replicas, [], {})], {})]
    return {DescribeQuorumRequestV1: lambda _: DescribeQuorumResponseV1(error, [] if error else topics, {})}


async def state(answers: Mapping[type[RequestStruct], Answer]) -> ClusterState:
    async with ScriptedKafka({}, answers) as kafka:
        return await read_cluster({"bootstrap_servers": kafka.bootstrap_servers}, NOW)


async def test_the_clock_is_that_of_the_leader() -> None:
    """The others were heard of earlier."""
    found = await state(quorum(2, (1, 990_000), (2, 1_002_500)))
    assert found.clock == ClockReading("Kafka, controller 2", 1_000.0, 1_002.5, 1_000.0)


async def test_brokers_without_these_requests() -> None:
    assert await state({}) == ClusterState(None, None, "these brokers do not report a time (DescribeQuorum)")


async def test_a_user_without_the_right() -> None:
    found = await state(quorum(-1, error=NOT_ALLOWED))
    assert found.clock is None
    assert "grant it Describe on the cluster" in found.no_clock


async def test_no_controller() -> None:
    assert (await state(quorum(-1))).no_clock == "the cluster has no controller at the moment"


async def test_an_error_that_passes() -> None:
    with pytest.raises(Retriable, match="querying the state of the cluster"):
        await state(quorum(-1, error=BUSY))
