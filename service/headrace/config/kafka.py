"""What the Kafka clients of a connector need, as the ports of the Kafka side take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.config.framework import DeadLetterSettings, TopicSettings
from headrace.core.connect.typed_options import nested, prefixed

CLIENT_OVERRIDES = ("consumer.override.", "producer.override.", "admin.override.")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The topics, the dead letter queue, and the client properties that the connector overrides.

    ``consumer``, ``producer`` and ``admin`` are Kafka's properties without their prefix. Kafka's clients read them, so
    they are free here.
    """

    topics: TopicSettings = nested(TopicSettings)
    dead_letters: DeadLetterSettings = nested(DeadLetterSettings)
    consumer: Mapping[str, str] = prefixed("consumer.override.")
    producer: Mapping[str, str] = prefixed("producer.override.")
    admin: Mapping[str, str] = prefixed("admin.override.")

    def overrides(self, client: str) -> Mapping[str, str]:
        """The properties that the connector overrides of ``consumer``, ``producer`` or ``admin``."""
        return {"consumer": self.consumer, "producer": self.producer, "admin": self.admin}[client]
