"""The logs that one worker writes against their contract, in memory and on Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contracts.led_log_suite import LedLogSuite, OpenLed

from headrace.core.errors import Fenced
from headrace_connectors.kafka.led_log import KafkaLedLog
from headrace_connectors.kafka.log import LogTopic
from headrace_connectors.memory.stores import MemoryLog
from headrace_dev.kafka import Kafka


class TestMemoryLog(LedLogSuite):
    """The memory log."""

    @pytest.fixture
    def open_log(self) -> OpenLed:
        """Logs on one storage."""
        first = MemoryLog()
        return lambda: MemoryLog(first)


@pytest.mark.stack
class TestKafkaLedLog(LedLogSuite):
    """The log on a topic."""

    @pytest.fixture
    def open_log(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> OpenLed:
        """A topic and a group of their own for every test."""
        name = unique("led")
        topic = LogTopic(name, "config.storage.topic", partitions=1, replication=1)
        return lambda: KafkaLedLog(topic, {"bootstrap_servers": stack_kafka.bootstrap_servers}, name)

    async def test_nobody_writes_before_it_leads(self, open_log: OpenLed) -> None:
        """A worker that only follows has no producer."""
        log = open_log()
        await log.start(lambda key, value: None)
        with pytest.raises(Fenced):
            await log.append([("a", b"1")])
        await log.close()
