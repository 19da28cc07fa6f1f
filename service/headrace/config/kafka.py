"""What the Kafka clients of a connector need, and which of their properties connectors may set.

``connector.client.config.override.policy`` (KIP-458) decides about the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.config.framework import DeadLetterSettings, TopicSettings
from headrace.core.connect.config_def import InvalidValue
from headrace.core.connect.typed_options import option_group, options_below

CLIENT_OVERRIDES = ("consumer.override.", "producer.override.", "admin.override.")


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """The topics, the dead letter queue, and the client properties that the connector overrides.

    ``consumer``, ``producer`` and ``admin`` are Kafka's properties without their prefix. Kafka's clients read them, so
    they are free here.
    """

    topics: TopicSettings = option_group(TopicSettings)
    dead_letters: DeadLetterSettings = option_group(DeadLetterSettings)
    consumer: Mapping[str, str] = options_below("consumer.override.")
    producer: Mapping[str, str] = options_below("producer.override.")
    admin: Mapping[str, str] = options_below("admin.override.")

    def overrides(self, client: str) -> Mapping[str, str]:
        return {"consumer": self.consumer, "producer": self.producer, "admin": self.admin}[client]


_ALLOWED_BY_PRINCIPAL = ("sasl.jaas.config", "sasl.mechanism", "security.protocol")
_NAMES = ("All", "None", "Principal", "Allowlist")
_CLASS = "org.apache.kafka.connect.connector.policy.{}ConnectorClientConfigOverridePolicy"


@dataclass(frozen=True, slots=True)
class OverridePolicy:
    """A policy by its short name; ``allowed`` are the client properties that connectors may set, None for all."""

    name: str = "All"
    allowed: frozenset[str] | None = None

    @staticmethod
    def of(name: str, allowlist: Sequence[str]) -> OverridePolicy:
        """The policy that the worker names, by short name in any case or by Kafka Connect's class."""
        short = _short_name(name) or name
        allowed = {"None": (), "Principal": _ALLOWED_BY_PRINCIPAL, "Allowlist": allowlist}.get(short)
        return OverridePolicy(short, None if allowed is None else frozenset(allowed))

    def problem(self, client_property: str) -> str | None:
        """Why a connector may not set a client property, in Connect's words; None where it may."""
        if self.allowed is None or client_property in self.allowed:
            return None
        return (
            f"The '{self.name}' policy does not allow '{client_property}' to be overridden in the connector "
            "configuration."
        )


def override_policy(name: str, value: Any) -> None:
    if value is not None and _short_name(str(value)) is None:
        raise InvalidValue(f"Invalid value {value} for configuration {name}: must be one of: {', '.join(_NAMES)}")


def _short_name(name: str) -> str | None:
    return next((short for short in _NAMES if name.lower() == short.lower() or name == _CLASS.format(short)), None)
