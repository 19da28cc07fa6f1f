"""The workarounds for defects of aiokafka, and stopping its clients, on aiokafka's own classes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import GroupAuthorizationFailedError, KafkaError
from aiokafka.protocol.commit import OffsetFetchRequest, OffsetFetchResponse_v3
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from aiokafka.protocol.offset import OffsetRequest_v1, OffsetResponse_v1
from aiokafka.protocol.produce import ProduceRequest_v3, ProduceResponse_v3
from aiokafka.protocol.transaction import InitProducerIdRequest_v0, InitProducerIdResponse_v0
from support.fix_asyncio import eventually
from support.kafka.scripted_kafka import NODE, ScriptedKafka

from headrace_connectors.kafka.aiokafka_patches import (
    check_alive,
    pace_requests,
    raise_group_errors,
    separate_fetches,
    stop_client,
)

PARTITION = TopicPartition("t", 0)
LOADING, NOT_AVAILABLE, MOVED, FORBIDDEN = 14, 15, 16, 30
NOT_LEADER, STORAGE = 6, 56
BACKOFF_MS = 20
COMMITTED = OffsetFetchResponse_v3(0, [("t", [(0, 7, "", 0)])], 0)


class Brokers:
    """The client interface that a GroupCoordinator of aiokafka uses, with scripted responses."""

    def __init__(self, *answers: Any) -> None:
        self.cluster = ClusterMetadata()
        self.looked_up = 0
        self._answers: Iterator[Any] = iter(answers)

    async def coordinator_lookup(self, *_: object) -> int:
        """Return a new node id at each lookup of the coordinator."""
        self.looked_up += 1
        return self.looked_up

    async def ready(self, *_: object, **__: object) -> bool:
        """Report every broker as connected."""
        return True

    async def send(self, node: int, request: Any, **_: object) -> Any:
        """Return the next scripted response."""
        assert isinstance(request, OffsetFetchRequest)
        return next(self._answers)


@asynccontextmanager
async def coordinator(brokers: Brokers) -> AsyncIterator[GroupCoordinator]:
    """Open a GroupCoordinator that raises group errors, as GroupMember uses it."""
    made = GroupCoordinator(brokers, SubscriptionState(), retry_backoff_ms=1)
    made._subscription.register_fetch_waiters(set())
    raise_group_errors(made)
    yield made
    await made.close()


@pytest.mark.parametrize(("refusal", "lookups"), [(LOADING, 1), (NOT_AVAILABLE, 2), (MOVED, 2)])
def test_committed_offsets_of_a_group_that_moves(refusal: int, lookups: int) -> None:
    """OffsetFetch is sent again, to the new coordinator if it moved. Plain aiokafka would return no offsets."""

    async def scenario() -> None:
        brokers = Brokers(OffsetFetchResponse_v3(0, [], refusal), COMMITTED)
        async with coordinator(brokers) as group:
            assert (await group.fetch_committed_offsets([PARTITION]))[PARTITION].offset == 7
        assert brokers.looked_up == lookups

    asyncio.run(scenario())


def test_positions_of_a_group_that_moves() -> None:
    """The task that fetches initial positions also repeats OffsetFetch after a coordinator error."""

    async def scenario() -> None:
        async with coordinator(Brokers(OffsetFetchResponse_v3(0, [], LOADING), COMMITTED)) as group:
            await group.ensure_coordinator_known()
            group._subscription.assign_from_user([PARTITION])
            assignment = group._subscription.subscription.assignment
            found = assignment.state_value(PARTITION).fetch_committed()
            group.start_commit_offsets_refresh_task(assignment)
            assert (await found).offset == 7

    asyncio.run(scenario())


def test_committed_offsets_without_authorization() -> None:
    """An authorization error of OffsetFetch is raised instead of returning no offsets."""

    async def scenario() -> None:
        async with coordinator(Brokers(OffsetFetchResponse_v3(0, [], FORBIDDEN))) as group:
            with pytest.raises(GroupAuthorizationFailedError):
                await group.fetch_committed_offsets([PARTITION])

    asyncio.run(scenario())


@pytest.mark.parametrize(("leaders", "error"), [([-1], 0), ([NODE], NOT_LEADER), ([NODE], STORAGE), ([], 0)])
def test_requests_to_failing_brokers_are_paced(leaders: list[int], error: int) -> None:
    """Metadata and fetch requests wait for retry_backoff_ms. Plain aiokafka would send thousands per second."""

    async def scenario() -> None:
        refused = FetchResponse_v4(0, [("t", [(0, error, -1, -1, None, b"?")])])
        async with ScriptedKafka({"t": leaders} if leaders else {}, {FetchRequest_v4: lambda _: refused}) as kafka:
            consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, retry_backoff_ms=BACKOFF_MS)
            pace_requests(consumer)
            await consumer.start()
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 0)
            began = time.monotonic()
            await eventually(lambda: kafka.asked["MetadataRequest_v1"] + kafka.asked["FetchRequest_v4"] > 20)
            assert time.monotonic() - began > 8 * BACKOFF_MS / 1000  # metadata and fetch requests are paced separately
            await stop_client(consumer)

    asyncio.run(scenario())


def test_requests_for_offsets_do_not_wait_behind_a_fetch() -> None:
    """The broker holds a fetch until there are records. Plain aiokafka would use the same connection."""

    async def scenario() -> None:
        answers: dict[Any, Any] = {
            FetchRequest_v4: lambda _: FetchResponse_v4(0, [("t", [(0, 0, 0, 0, None, b"")])]),
            OffsetRequest_v1: lambda _: OffsetResponse_v1([("t", [(0, 0, -1, 5)])]),
        }
        async with ScriptedKafka({"t": [NODE]}, answers, empty_seconds=3600) as kafka:
            consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
            separate_fetches(consumer)
            await consumer.start()
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 0)
            await eventually(lambda: kafka.asked["FetchRequest_v4"] == 1)
            async with asyncio.timeout(60):
                assert await consumer.end_offsets([PARTITION]) == {PARTITION: 5}
            await stop_client(consumer)

    asyncio.run(scenario())


TOPIC = "t"


async def nothing_is_left(kafka: ScriptedKafka) -> None:
    """Wait until no connection is open, and assert that no task of aiokafka runs."""
    await eventually(lambda: kafka.connections == 0)
    left = [task for task in asyncio.all_tasks() if "aiokafka" in str(task.get_coro())]
    assert left == []


def test_a_producer_whose_records_are_not_accepted() -> None:
    """A producer whose records are refused is aborted, so that it does not write records reported as lost."""

    async def scenario() -> None:
        answers: dict[Any, Any] = {
            InitProducerIdRequest_v0: lambda _: InitProducerIdResponse_v0(0, 0, 5, 0),
            ProduceRequest_v3: lambda _: ProduceResponse_v3([(TOPIC, [(0, NOT_LEADER, -1, -1)])], 0),
        }
        async with ScriptedKafka({TOPIC: [NODE]}, answers) as kafka:
            producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True)
            await producer.start()
            await producer.send(TOPIC, b"value")
            await eventually(lambda: kafka.asked["ProduceRequest_v3"] > 0)
            await stop_client(producer, 0.1)
            await nothing_is_left(kafka)

    asyncio.run(scenario())


def test_a_consumer_whose_fetch_task_failed() -> None:
    """A consumer whose fetch task failed is closed, although its own ``stop`` raises that error first."""

    async def scenario() -> None:
        unrequested = [(TOPIC, [(44, 0, 0, 0, None, b"")])]  # a partition that was not requested
        answers: dict[Any, Any] = {
            OffsetRequest_v1: lambda _: OffsetResponse_v1([(TOPIC, [(0, 0, -1, 0)])]),
            FetchRequest_v4: lambda _: FetchResponse_v4(0, unrequested),
        }
        async with ScriptedKafka({TOPIC: [NODE]}, answers) as kafka:
            consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers)
            await consumer.start()
            consumer.assign([TopicPartition(TOPIC, 0)])
            await eventually(lambda: consumer._fetcher._fetch_task.done())
            await stop_client(consumer)
            await nothing_is_left(kafka)

    asyncio.run(scenario())


def test_a_consumer_whose_metadata_task_failed() -> None:
    """A broker name that cannot be resolved ends the metadata task.

    ``check_alive`` reports it and ``stopped`` closes it.
    """

    async def scenario() -> None:
        async with ScriptedKafka({TOPIC: [NODE]}, {}) as kafka:
            consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, metadata_max_age_ms=5)
            await consumer.start()
            check_alive(consumer)
            kafka.others = [(2, "kafka..svc", 9092, None)]
            await eventually(lambda: consumer._client._sync_task.done())
            with pytest.raises(KafkaError, match="has stopped following brokers"):
                check_alive(consumer)
            await stop_client(consumer)
            await nothing_is_left(kafka)

    asyncio.run(scenario())
