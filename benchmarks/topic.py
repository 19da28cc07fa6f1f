"""Write the load to Kafka, and read from the broker how far a group has committed."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition

from benchmarks.envelope import encode
from benchmarks.workload import TOPIC, Source
from headrace_dev.kafka import Kafka

_QUEUE = 100_000
_COORDINATOR_STARTS = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


class Publisher:
    """Writes events to the topic, which has one partition."""

    def __init__(self, kafka: Kafka) -> None:
        kafka.create_topic(TOPIC, config={"retention.ms": "-1"})
        self._producer = Producer(
            {
                "bootstrap.servers": kafka.bootstrap_servers,
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.size": 500_000,
                "enable.idempotence": True,
                "log_level": 3,  # the coordinator of the broker may still start at the first request
                "queue.buffering.max.messages": _QUEUE,
            }
        )

    def send(self, records: Iterable[tuple[bytes, bytes]]) -> int:
        """Write keys and values, and wait until the broker has them. Return their bytes, uncompressed."""
        size = 0
        for key, value in records:
            size += len(key) + len(value)
            while len(self._producer) >= _QUEUE:
                self._producer.poll(0.1)
            self._producer.produce(TOPIC, key=key, value=value)
            self._producer.poll(0)
        self._producer.flush()
        return size


def produce(kafka: Kafka, source: Source) -> int:
    """Write all events of ``source`` to the topic. Return their bytes, uncompressed."""
    return Publisher(kafka).send(map(encode, source.events()))


class Progress:
    """The offsets that a group has committed, from the broker: a request to the worker would use measured CPU time."""

    def __init__(self, kafka: Kafka) -> None:
        self._admin = kafka.admin()

    def committed(self, group: str) -> int:
        """The next offset of the topic's one partition, 0 for none or while the group's coordinator still starts."""
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition(TOPIC, 0)])
        try:
            answer = self._admin.list_consumer_group_offsets([asked])[group].result(timeout=30)
        except KafkaException as error:
            if error.args[0].code() in _COORDINATOR_STARTS:
                return 0
            raise
        return max(0, *(int(partition.offset) for partition in answer.topic_partitions or ()), 0)
