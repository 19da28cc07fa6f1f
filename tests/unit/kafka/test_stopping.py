"""``stopped`` closes all connections and tasks of aiokafka clients that fail to stop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.protocol.fetch import FetchRequest_v4, FetchResponse_v4
from aiokafka.protocol.offset import OffsetRequest_v1, OffsetResponse_v1
from aiokafka.protocol.produce import ProduceRequest_v3, ProduceResponse_v3
from aiokafka.protocol.transaction import InitProducerIdRequest_v0, InitProducerIdResponse_v0
from support.fix_asyncio import eventually
from support.kafka.scripted_kafka import NODE, ScriptedKafka

from headrace_connectors.kafka.aiokafka_patches import check_alive
from headrace_connectors.kafka.stopping import stopped

NOT_LEADER = 6
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
            await stopped(producer, 0.1)
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
            await stopped(consumer)
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
            await stopped(consumer)
            await nothing_is_left(kafka)

    asyncio.run(scenario())
