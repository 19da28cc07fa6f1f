"""The settings of a connector's Kafka clients, parsed from properties of a connector."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.kafka import KafkaSettings
from headrace.core.connect.typed_options import parse_options


def settings_of(given: Mapping[str, str]) -> KafkaSettings:
    return parse_options(KafkaSettings, given)


def dead_letter_options(topic: str, context: str | None = "true", **more: str) -> dict[str, str]:
    """The dead letter options of a connector; ``context`` is the value for context headers, if any."""
    prefix = "errors.deadletterqueue."
    enabled = {} if context is None else {f"{prefix}context.headers.enable": context}
    return {f"{prefix}topic.name": topic, f"{prefix}topic.replication.factor": "1", **enabled, **more}
