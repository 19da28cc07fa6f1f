"""What goes wrong with the topics of a connector.

Tests: ``tests/integration/test_doctor_topics.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity
from headrace.core.model.events import TopicPartition


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    TOPIC_MISSING = "topic-missing"
    TOPIC_REMOVED = "topic-changes-removed"
    TOPIC_COMPACTED = "topic-compacted"
    TOPIC_ONE_REPLICA = "topic-one-replica"


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as its cluster describes it.

    ``begins`` are the first offsets that each partition still has, ``replicas`` the fewest of a partition, ``policy``
    is ``cleanup.policy``, and ``brokers`` the number of brokers of the cluster.
    """

    topic: str
    begins: Mapping[int, int]
    replicas: int
    policy: str
    brokers: int


def findings(
    topics: Sequence[TopicDescription], wanted: Collection[str], committed: Mapping[TopicPartition, int]
) -> Iterator[Finding]:
    """Yield the findings. ``wanted`` are names that the connector lists, ``committed`` the offsets of its group."""
    for name in sorted(set(wanted) - {topic.topic for topic in topics}):
        yield Finding(
            Rule.TOPIC_MISSING,
            Severity.WARNING,
            f"topic {name}",
            "no table comes of it until something writes to it: is the name right?",
            "the cluster has no such topic",
            "correct topics in the connector, or let Debezium write the first event",
        )
    for topic in topics:
        yield from _of_topic(topic, committed)


def _of_topic(topic: TopicDescription, committed: Mapping[TopicPartition, int]) -> Iterator[Finding]:
    for partition, begin in sorted(topic.begins.items()):
        read = committed.get(TopicPartition(topic.topic, partition))
        if read is not None and read < begin:
            yield Finding(
                Rule.TOPIC_REMOVED,
                Severity.ERROR,
                f"topic {topic.topic}, partition {partition}",
                "changes are lost: Kafka has removed them before they were read, and rows of the table are wrong",
                f"the connector has read up to offset {read}, and the topic begins at {begin}",
                f"kafka-configs.sh --alter --topic {topic.topic} --add-config retention.ms=604800000  "
                "# then headrace verify --repair",
            )
    if "compact" in topic.policy:
        yield Finding(
            Rule.TOPIC_COMPACTED,
            Severity.WARNING,
            f"topic {topic.topic}",
            "a reader that is behind misses changes that later ones of a key replace, and the column cache is not used",
            f"cleanup.policy is {topic.policy}",
            f"kafka-configs.sh --alter --topic {topic.topic} --add-config cleanup.policy=delete",
        )
    if topic.replicas == 1 and topic.brokers > 1:
        yield Finding(
            Rule.TOPIC_ONE_REPLICA,
            Severity.WARNING,
            f"topic {topic.topic}",
            "changes that were not read yet are lost with the disk of one broker",
            f"it has one replica, and the cluster has {topic.brokers} brokers",
            "set topic.creation.default.replication.factor=3 at the source connector, and reassign this topic",
        )
