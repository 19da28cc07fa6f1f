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
    """Return the records in groups of some thousands. ``arguments`` are aiokafka's. Raises HeadraceError."""
    consumer = AIOKafkaConsumer(**arguments, enable_auto_commit=False, isolation_level="read_committed")
    try:
        await consumer.start()
        # The consumer's own metadata are empty until it reads, so its ``partitions_for_topic`` returns nothing.
        indexes = (await consumer._client.fetch_all_metadata()).partitions_for_topic(topic)
        if indexes is None:
            option = "errors.deadletterqueue.topic.name"
            raise ConfigError(f"{option}: the dead letter topic {topic} does not exist; correct the name", option)
        partitions = [TopicPartition(topic, index) for index in sorted(indexes)]
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
