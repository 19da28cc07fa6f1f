"""The feed contract, kept by aiokafka and Faust on a real broker."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from contracts.feed_suite import FeedHarness, FeedSuite
from contracts.kafka_harness import KafkaHarness

from headrace_dev.kafka import Kafka


@pytest.mark.stack
class TestKafkaFeed(FeedSuite):
    """The suite."""

    @pytest.fixture
    def harness(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> FeedHarness:
        return KafkaHarness(stack_kafka, unique)
