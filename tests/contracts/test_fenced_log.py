"""The fenced logs in memory and on Kafka pass their contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from contracts.fenced_log_suite import FencedLogSuite, OpenLog

from headrace.core.model.errors import Fenced
from headrace.ports import LogRecord
from headrace_connectors.kafka.log import KafkaFencedLog, LogTopic
from headrace_dev.kafka import Kafka
from headrace_dev.memory.stores import MemoryLog


class TestMemoryLog(FencedLogSuite):
    """The memory log."""

    @pytest.fixture
    def open_log(self) -> OpenLog:
        """Logs on one storage."""
        first = MemoryLog()
        return lambda: MemoryLog(first)


@pytest.mark.stack
class TestKafkaFencedLog(FencedLogSuite):
    """The log on a topic."""

    @pytest.fixture
    def open_log(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> OpenLog:
        """A new topic and group per test."""
        name = unique("led")
        topic = LogTopic(name, "config.storage.topic", partitions=1, replication=1)
        return lambda: KafkaFencedLog(topic, {"bootstrap_servers": stack_kafka.bootstrap_servers}, name)

    async def test_only_a_leader_writes(self, open_log: OpenLog) -> None:
        """A worker that only reads the log has no producer."""
        log = open_log()
        await log.start(lambda key, value: None)
        with pytest.raises(Fenced):
            await log.append([("a", b"1")])
        await log.close()

    async def test_a_write_that_is_given_up_half_way_ends_the_term(
        self, stack_kafka: Kafka, unique: Callable[[str], str]
    ) -> None:
        """A request times out: readers see nothing of the transaction, and the next term writes normally."""
        topic = LogTopic(unique("led"), "config.storage.topic", partitions=1, replication=1)
        log = SilentOnce(topic, {"bootstrap_servers": stack_kafka.bootstrap_servers}, topic.name)
        read = list[str]()
        await log.start(lambda key, value: read.append(key))
        await log.lead()
        writing = asyncio.create_task(log.append([("given up", b"1")]))
        await log.begun.wait()
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
        with pytest.raises(Fenced):
            await log.append([("next", b"1")])
        await log.lead()
        await log.append([("next", b"1")])
        assert read == ["next"]
        await log.close()


class SilentOnce(KafkaFencedLog):
    """A log whose brokers do not answer during the first transaction."""

    def __init__(self, topic: LogTopic, arguments: Mapping[str, Any], group: str) -> None:
        super().__init__(topic, arguments, group)
        self.begun = asyncio.Event()

    async def _transact(self, producer: AIOKafkaProducer, records: Sequence[LogRecord]) -> list[Any]:
        if not self.begun.is_set():
            await producer.begin_transaction()
            self.begun.set()
            await asyncio.Event().wait()
        return await super()._transact(producer, records)
