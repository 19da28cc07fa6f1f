"""Read a dead letter topic once, from its beginning to its current end, without a consumer group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from headrace.core.model.errors import ConfigError
from headrace.ports import Record
from headrace_connectors.kafka.aiokafka_patches import position
from headrace_connectors.kafka.errors import translated
from headrace_connectors.kafka.stopping import stopped

_AT_ONCE = 5_000
_POLL_MS = 1_000


async def read_topic(topic: str, arguments: Mapping[str, Any]) -> AsyncIterator[Sequence[Record]]:
    """The records, some thousands at a time; ``arguments`` are aiokafka's. Raises ConfigError, Retriable or Fatal."""
    consumer = AIOKafkaConsumer(**arguments, enable_auto_commit=False, isolation_level="read_committed")
    try:
        await consumer.start()
        # Its own metadata are empty until it reads something: ``partitions_for_topic`` would know of none.
        numbers = (await consumer._client.fetch_all_metadata()).partitions_for_topic(topic)
        if numbers is None:
            raise ConfigError(f"there is no dead letter topic {topic}", "errors.deadletterqueue.topic.name")
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(partitions)
        while [each for each in partitions if await position(consumer, each) < ends[each]]:
            batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=_AT_ONCE)
            records = [record for batch in batches.values() for record in batch]
            if records:
                yield records
    except (KafkaError, OSError) as error:
        raise translated(error, f"reading the dead letter topic {topic}") from error
    finally:
        await stopped(consumer)
