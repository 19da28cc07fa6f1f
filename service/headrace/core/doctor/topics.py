"""What goes wrong with the topics of a connector.

Tests: ``tests/integration/test_doctor_topics.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.doctor.clocks import ClockReading
from headrace.core.doctor.findings import Finding, Severity
from headrace.core.model.events import TopicPartition

DAY_MS = 86_400_000
"""The shortest ``retention.ms`` without a finding: a weekday's outage."""


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    TOPIC_MISSING = "topic-missing"
    TOPIC_REMOVED = "topic-changes-removed"
    TOPIC_RETENTION = "topic-retention"
    TOPIC_COMPACTED = "topic-compacted"
    TOPIC_ONE_REPLICA = "topic-one-replica"
    TOPIC_PARTITIONS = "topic-several-partitions"


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as its cluster describes it.

    ``begins`` are the first offsets that each partition still has, ``replicas`` the fewest of a partition, ``policy``
    is ``cleanup.policy``, and ``brokers`` the number of brokers of the cluster. ``retention_ms`` is ``retention.ms``,
    -1 without a limit; with one, ``middles`` are the first offsets of each partition whose records are younger than
    half of it.
    """

    topic: str
    begins: Mapping[int, int]
    replicas: int
    policy: str
    brokers: int
    retention_ms: int = -1
    middles: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The release of a broker, as 4.3, and the clock of Kafka's controller.

    The release is None if it is not known. Without a clock, ``no_clock`` is the reason.
    """

    release: str | None
    clock: ClockReading | None
    no_clock: str = ""


def findings(
    topics: Sequence[TopicDescription],
    wanted: Collection[str],
    committed: Mapping[TopicPartition, int],
    *,
    reads_database: bool = True,
) -> Iterator[Finding]:
    """Yield the findings. ``wanted`` are names that the connector lists, ``committed`` the offsets of its group.

    ``reads_database`` is whether the connector can read values that events omit.
    """
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
        if len(topic.begins) > 1 and not reads_database:
            yield Finding(
                Rule.TOPIC_PARTITIONS,
                Severity.WARNING,
                f"topic {topic.topic}",
                "after partitions were added, or keys have changed, an event that omits a value may be read before the "
                "one that contains it: the value is missing, or the table stops",
                f"{len(topic.begins)} partitions, and the connector names no database",
                "reselect.database.*  # in this connector; or topic.creation.default.partitions=1 at the source "
                "connector, and a new topic",
            )


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
        if read is not None and begin <= read < topic.middles.get(partition, 0):
            yield _retention(
                topic,
                f"topic {topic.topic}, partition {partition}",
                "changes are lost soon: Kafka removes them before the connector has read them",
                f"the next change to read, offset {read}, is older than half of retention.ms={topic.retention_ms}",
            )
    if 0 <= topic.retention_ms < DAY_MS:
        yield _retention(
            topic,
            f"topic {topic.topic}",
            f"changes are lost if the connector stops for longer than {topic.retention_ms / 3_600_000:g} hours",
            f"retention.ms={topic.retention_ms}",
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


def _retention(topic: TopicDescription, subject: str, consequence: str, evidence: str) -> Finding:
    remedy = f"kafka-configs.sh --alter --topic {topic.topic} --add-config retention.ms=604800000"
    return Finding(Rule.TOPIC_RETENTION, Severity.WARNING, subject, consequence, evidence, remedy)
