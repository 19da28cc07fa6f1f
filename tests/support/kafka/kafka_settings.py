"""The settings of a connector's Kafka clients, parsed from properties of a connector."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.config.kafka import KafkaSettings
from headrace.core.connect.typed_options import parsed


def settings_of(given: Mapping[str, str]) -> KafkaSettings:
    return parsed(KafkaSettings, given)
