"""Translate Kafka's Java client properties to aiokafka arguments, with the table in ``client_properties.py``.

The properties of a connector's clients have these layers, of which a later one overrides an earlier one
(``client_layers.py``): the defaults below (measured, see ``docs/decisions/kafka.md``); the worker's connection
properties (``bootstrap.servers``, ``security.protocol``, ``sasl.*``, ``ssl.*``); the worker's ``consumer.*``; the
connector's ``consumer.override.*``. The dead letter queue uses ``producer.*``, its topic and the offsets of the
connector's group ``admin.*``. A property that aiokafka does not support is an error with the reason.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.config.framework import TopicSettings
from headrace.config.kafka import KafkaSettings
from headrace.core.connect.java_patterns import OnlyJava, python_pattern
from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.client_layers import (
    client_properties,
    connection,
    names_other_brokers,
    overridden,
    under,
    without_security,
)
from headrace_connectors.kafka.client_properties import (
    CLIENT,
    CONSUMER,
    DONE_ANYWAY,
    IGNORED,
    PRODUCER,
    REFUSED,
    Argument,
)
from headrace_connectors.kafka.jaas import LOGIN
from headrace_connectors.kafka.oauth import OAUTH_PROPERTIES
from headrace_connectors.kafka.security import ARGUMENTS, is_security, security_arguments

log = logging.getLogger(__name__)

Properties = Mapping[str, str]

_BROKERS = "bootstrap.servers"
_LEADING_FLAGS = re.compile(r"\A(?:\(\?[a-zA-Z]+\))+")
_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000

CONSUMER_DEFAULTS: Mapping[str, Any] = {
    "enable_auto_commit": False,
    "isolation_level": "read_committed",
    "auto_offset_reset": "earliest",
    "max_poll_interval_ms": _TEN_YEARS_MS,  # back-pressure and pause last longer than any default
    "session_timeout_ms": 10_000,  # for this time, the members of a killed worker block the group
    "heartbeat_interval_ms": 3_000,
    "rebalance_timeout_ms": 120_000,
    "request_timeout_ms": 125_000,
    "metadata_max_age_ms": 30_000,
    "fetch_max_bytes": 8 * 1024 * 1024,
    "max_partition_fetch_bytes": 1024 * 1024,
    "max_poll_records": 4_000,
}
_JOIN_MARGIN_MS = 5_000
"""A JoinGroup is answered at the end of the rebalance, and aiokafka gives up on it after ``request.timeout.ms``."""


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The consumer of one task: aiokafka's arguments, the group, the topics, and the pattern of their whole names."""

    arguments: Mapping[str, Any]
    group: str
    pattern: str
    reset: str
    topics: TopicSettings


def consumer_settings(worker: Properties, connector: str, task: int, settings: KafkaSettings) -> ConsumerSettings:
    """Return the settings of a task's consumer. Raises ConfigError with the property."""
    properties = {
        "group.id": f"connect-{connector}",
        "client.id": f"connector-consumer-{connector}-{task}",
        **client_properties(worker, "consumer", settings),
    }
    arguments = {**CONSUMER_DEFAULTS, **_translate(properties, CONSUMER)}
    shortest = arguments["rebalance_timeout_ms"] + _JOIN_MARGIN_MS
    arguments["request_timeout_ms"] = max(arguments["request_timeout_ms"], shortest)
    if "group_instance_id" in arguments:  # two members with one id evict each other without an error
        arguments["group_instance_id"] += f"-{task}"
    return ConsumerSettings(
        arguments,
        arguments["group_id"],
        topic_pattern(settings.topics),
        arguments["auto_offset_reset"],
        settings.topics,
    )


def producer_arguments(worker: Properties, connector: str, task: int, settings: KafkaSettings) -> dict[str, Any]:
    """Return aiokafka's arguments for the dead letter queue's producer. Raises ConfigError with the property."""
    properties = {
        "client.id": f"connector-dlq-producer-{connector}-{task}",
        **client_properties(worker, "producer", settings),
    }
    return {**_translate(properties, PRODUCER), "acks": "all", "enable_idempotence": True}


def admin_arguments(worker: Properties, settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """Return aiokafka's arguments for an admin client of a connector. Raises ConfigError with the property."""
    return _translate({"client.id": client_id, **client_properties(worker, "admin", settings)}, CLIENT)


def group_arguments(worker: Properties, connector: str, settings: KafkaSettings) -> dict[str, Any]:
    """Return aiokafka's arguments for requests about the connector's consumer group. Raises ConfigError.

    Kafka Connect sends them to the worker's brokers unless ``admin.override.bootstrap.servers`` names others. If only
    the connector's consumers use other brokers, that is the wrong cluster: these requests go to the consumers' brokers.
    """
    consumer = client_properties(worker, "consumer", settings)
    admin = under("admin.", worker)
    inherited = {**connection(worker), **admin}
    named = _BROKERS in admin or _BROKERS in settings.admin
    if not named and consumer.get(_BROKERS) != worker.get(_BROKERS):
        operators = {**connection(worker), **under("consumer.", worker)}
        if names_other_brokers(operators, settings.consumer):
            admin = without_security(admin)
        inherited = {**connection(consumer), **admin}
    properties = overridden(inherited, settings, "admin")
    return _translate({"client.id": f"connector-worker-adminclient-{connector}", **properties}, CLIENT)


def topic_arguments(worker: Properties, settings: KafkaSettings) -> dict[str, Any]:
    """Return aiokafka's arguments for requests about the topics that the connector reads. Raises ConfigError."""
    return client_arguments(client_properties(worker, "consumer", settings))


def check_worker(worker: Properties) -> None:
    """Raise ConfigError for an unsupported property in the worker's ``consumer.*``, ``producer.*`` or ``admin.*``.

    The worker fails at its start, because all of its connectors would fail.
    """
    for prefix, table in (("consumer.", CONSUMER), ("producer.", PRODUCER), ("admin.", CLIENT)):
        try:
            _translate({**connection(worker), **under(prefix, worker)}, table)
        except ConfigError as error:
            named = prefix if f"{prefix}{error.key}" in worker else ""
            raise ConfigError(f"{named}{error}", f"{named}{error.key}") from error


def client_arguments(properties: Properties) -> dict[str, Any]:
    """Return aiokafka's connection arguments for client properties, for admin requests. Raises ConfigError."""
    return _translate(connection(properties), CLIENT)


def connection_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection arguments among those of a consumer or producer, for admin requests of a connector."""
    names = {name for name, _ in CLIENT.values()} | set(ARGUMENTS)
    return {key: value for key, value in arguments.items() if key in names}


def topic_pattern(topics: TopicSettings) -> str:
    """Return the regular expression of the subscribed topics, anchored because Kafka Connect matches whole names.

    Named topics are subscribed by pattern as well: a subscription by name would make a broker with automatic topic
    creation create a deleted topic again.
    """
    names, regex = [name for name in topics.names if name], topics.regex
    if bool(names) == bool(regex):
        raise ConfigError("exactly one of topics and topics.regex must be set", "topics")
    try:
        regex = python_pattern(regex)
        unflagged = _LEADING_FLAGS.sub("", regex)
        flags = regex.removesuffix(unflagged)  # before the anchor, because Python accepts them only at the start
        pattern = rf"{flags}\A(?:{unflagged or '|'.join(map(re.escape, names))})\Z"
        re.compile(regex)
        re.compile(pattern)
    except (re.error, OnlyJava) as error:
        raise ConfigError(f"topics.regex is not a valid regular expression: {error}", "topics.regex") from error
    return pattern


def _translate(properties: Properties, table: Mapping[str, Argument]) -> dict[str, Any]:
    arguments = security_arguments(properties)
    for key, text in properties.items():
        if key in table:
            name, parse = table[key]
            arguments[name] = _parsed(key, text, parse)
        elif not is_security(key):
            _without_argument(key, text, table)
    if "bootstrap_servers" not in arguments:
        raise ConfigError("bootstrap.servers is not set", "bootstrap.servers")
    return arguments


def _parsed(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{key}: invalid value: {error}", key) from error


def _without_argument(key: str, text: str, table: Mapping[str, Argument]) -> None:
    if text.strip() in DONE_ANYWAY.get(key, ()):
        return
    if key in IGNORED:
        log.warning("Property %s has no effect: %s", key, IGNORED[key])
        return
    if key in REFUSED:
        raise ConfigError(f"{key}: cannot be set: {REFUSED[key]}", key)
    close = difflib.get_close_matches(key, [*table, LOGIN, *OAUTH_PROPERTIES], n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ConfigError(f"{key}: not a property of this client{hint}", key)
