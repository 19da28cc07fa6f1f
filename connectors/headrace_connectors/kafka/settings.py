"""Translate Kafka's Java client properties to aiokafka arguments, with the table in ``client_properties.py``.

The properties of a connector's clients have these layers. A later layer overrides an earlier one: the defaults below
(measured, see ``docs/decisions/kafka.md``); the worker's connection properties (``bootstrap.servers``,
``security.protocol``, ``sasl.*``, ``ssl.*``); the worker's ``consumer.*``; the connector's ``consumer.override.*``. The
dead letter queue uses ``producer.*``, its topic and the offsets of the connector's group ``admin.*``. A property that
aiokafka does not support is an error with the reason.

All layers but the last are the operator's. The author of a connector must not obtain the worker's credentials by
sending them to other brokers, or in a form that others can read (``docs/decisions/credentials.md``).
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.config.framework import TopicSettings
from headrace.config.kafka import KafkaSettings
from headrace.core.connect.java_patterns import OnlyJava, python_pattern
from headrace.core.connect.typed_options import below
from headrace.core.model.errors import ConfigError
from headrace_connectors.kafka.aiokafka_patches import FETCHER_MS
from headrace_connectors.kafka.client_properties import (
    CLIENT,
    CONSUMER,
    DONE_ANYWAY,
    IGNORED,
    PRODUCER,
    REFUSED,
    Argument,
)
from headrace_connectors.kafka.oauth import LOGIN, OAUTH_PROPERTIES
from headrace_connectors.kafka.security import ARGUMENTS, AWS_MSK_IAM, is_msk, is_security, security_arguments

log = logging.getLogger(__name__)

Properties = Mapping[str, str]

BROKERS = "bootstrap.servers"
_PROTOCOL = "security.protocol"
_SECRET = "sasl.oauthbearer.client.credentials.client.secret"  # noqa: S105 - a name
_CREDENTIALS = (LOGIN, _SECRET, "sasl.oauthbearer.client.credentials.client.id")
"""The properties with the credentials of a login. A connector overrides all of them or inherits all of them."""
_MACHINE_MECHANISMS = (AWS_MSK_IAM, "GSSAPI")
"""The mechanisms whose credentials are those of the worker's machine, and not in a property."""
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - a name
_SECURITY_PREFIXES = ("security.protocol", "sasl.", "ssl.")
_DEFAULTS = {_PROTOCOL: "PLAINTEXT"}


def client_properties(worker: Properties, client: str, settings: KafkaSettings) -> dict[str, str]:
    """Return the properties of the connector's ``client`` (``consumer``, ``producer`` or ``admin``).

    Raises ConfigError with the override if the worker's credentials would reach brokers that the connector names, or
    would be sent with other security settings than the worker's.
    """
    inherited = {**connection_properties(worker), **below(worker, f"{client}.")}
    return with_overrides(inherited, settings, client)


def with_overrides(inherited: Properties, settings: KafkaSettings, client: str) -> dict[str, str]:
    """Return ``inherited`` with the connector's overrides for ``client``. Raises ConfigError like client_properties."""
    overrides, prefix = settings.overrides(client), f"{client}.override."
    if _is_token_file(overrides):
        raise ConfigError(
            f"{prefix}{_TOKEN_URL}: a connector cannot name a file, because it would send the file's content to its "
            "brokers; use a token endpoint, or set it in the worker's configuration",
            f"{prefix}{_TOKEN_URL}",
        )
    if names_other_brokers(inherited, overrides):
        # Without a security protocol, the data of a secured worker would be sent without encryption.
        if _value(inherited, _PROTOCOL) != "PLAINTEXT" and _PROTOCOL not in overrides:
            raise ConfigError(
                f"{prefix}{BROKERS}: the worker's security settings are not sent to brokers that a connector names; "
                f"set {prefix}{_PROTOCOL} and what it needs ({prefix}sasl.*, {prefix}ssl.*), or remove "
                f"{prefix}{BROKERS}",
                f"{prefix}{BROKERS}",
            )
        if _value(overrides, _PROTOCOL).startswith("SASL") and not _has_login(overrides):
            raise ConfigError(
                f"{prefix}{BROKERS}: the worker's credentials are not sent to brokers that a connector names; set "
                f"{prefix}{LOGIN}",
                f"{prefix}{BROKERS}",
            )
        # The tokens of the worker's AWS identity are valid at each MSK cluster.
        if overrides.get("sasl.mechanism", "").strip() == AWS_MSK_IAM and not all(map(is_msk, _addresses(overrides))):
            raise ConfigError(
                f"{prefix}{BROKERS}: tokens of the worker's AWS identity are not sent to brokers that are not of "
                "Amazon MSK; use the names that MSK shows",
                f"{prefix}{BROKERS}",
            )
        return {**without_security(inherited), **overrides}
    _check_inherited_login(inherited, overrides, prefix)
    if _has_login(overrides):
        inherited = {key: value for key, value in inherited.items() if key not in _CREDENTIALS}
    return {**inherited, **overrides}


def names_other_brokers(inherited: Properties, overrides: Properties) -> bool:
    """Return whether ``overrides`` have addresses that are not among the inherited ones."""
    return BROKERS in overrides and not _addresses(overrides) <= _addresses(inherited)


def without_security(properties: Properties) -> dict[str, str]:
    return {key: value for key, value in properties.items() if not key.startswith(_SECURITY_PREFIXES)}


def connection_properties(properties: Properties) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key.startswith((BROKERS, *_SECURITY_PREFIXES))}


def _check_inherited_login(inherited: Properties, overrides: Properties, prefix: str) -> None:
    """Reject security settings of the connector with which others could read the worker's password."""
    machine_login = inherited.get("sasl.mechanism", "").strip() in _MACHINE_MECHANISMS
    sends_login = _value({**inherited, **overrides}, _PROTOCOL).startswith("SASL")
    if not (_has_login(inherited) or machine_login) or _has_login(overrides) or not sends_login:
        return
    for key in overrides:
        if key.startswith(_SECURITY_PREFIXES) and _value(overrides, key) != _value(inherited, key):
            raise ConfigError(
                f"{prefix}{key}: the worker's credentials ({LOGIN}) are sent with the worker's own security settings "
                f"only; set {prefix}{LOGIN} as well, or remove {prefix}{key}",
                f"{prefix}{key}",
            )


def _has_login(properties: Properties) -> bool:
    return LOGIN in properties or _SECRET in properties or _is_token_file(properties)


def _is_token_file(properties: Properties) -> bool:
    return properties.get(_TOKEN_URL, "").strip().lower().startswith("file:")


def _value(properties: Properties, key: str) -> str:
    return properties.get(key, _DEFAULTS.get(key, "")).strip()


def _addresses(properties: Properties) -> set[str]:
    return {address.strip() for address in properties.get(BROKERS, "").split(",")}


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
    "fetch_max_wait_ms": 500,  # for this time, records of many partitions wait for others as well (held_records.py)
    "consumer_timeout_ms": FETCHER_MS,
    "fetch_max_bytes": 8 * 1024 * 1024,
    "max_partition_fetch_bytes": 1024 * 1024,
    "max_poll_records": 4_000,
}
_JOIN_MARGIN_MS = 5_000
"""The broker answers JoinGroup at the end of the rebalance. Until then ``request.timeout.ms`` must not expire."""


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
    join_timeout = arguments["rebalance_timeout_ms"] + _JOIN_MARGIN_MS
    arguments["request_timeout_ms"] = max(arguments["request_timeout_ms"], join_timeout)
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
    admin = below(worker, "admin.")
    inherited = {**connection_properties(worker), **admin}
    names_admin_brokers = BROKERS in admin or BROKERS in settings.admin
    if not names_admin_brokers and consumer.get(BROKERS) != worker.get(BROKERS):
        worker_consumer = {**connection_properties(worker), **below(worker, "consumer.")}
        if names_other_brokers(worker_consumer, settings.consumer):  # brokers of the connector, not of the operator
            admin = without_security(admin)
        inherited = {**connection_properties(consumer), **admin}
    properties = with_overrides(inherited, settings, "admin")
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
            _translate({**connection_properties(worker), **below(worker, prefix)}, table)
        except ConfigError as error:
            # The property is a connection property of the worker if the client has none with its prefix.
            used_prefix = prefix if f"{prefix}{error.key}" in worker else ""
            raise ConfigError(f"{used_prefix}{error}", f"{used_prefix}{error.key}") from error


def client_arguments(properties: Properties) -> dict[str, Any]:
    """Return aiokafka's connection arguments for client properties, for admin requests. Raises ConfigError."""
    return _translate(connection_properties(properties), CLIENT)


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
        re.compile(regex)  # by itself: the anchors would complete the unbalanced groups of "a)|(?:b"
        re.compile(pattern)
    except (re.error, OnlyJava) as error:
        raise ConfigError(f"topics.regex is not a valid regular expression: {error}", "topics.regex") from error
    return pattern


def _translate(properties: Properties, table: Mapping[str, Argument]) -> dict[str, Any]:
    """Return aiokafka's arguments for client properties by ``table``. Raises ConfigError with the property."""
    arguments = security_arguments(properties)
    for key, text in properties.items():
        if key in table:
            name, parse = table[key]
            try:
                arguments[name] = parse(text)
            except ValueError as error:
                raise ConfigError(f"{key}: invalid value: {error}", key) from error
        elif is_security(key) or text.strip() in DONE_ANYWAY.get(key, ()):
            continue
        elif key in IGNORED:
            log.warning("Property %s has no effect: %s", key, IGNORED[key])
        elif key in REFUSED:
            raise ConfigError(f"{key}: cannot be set: {REFUSED[key]}", key)
        else:
            similar = difflib.get_close_matches(key, [*table, LOGIN, *OAUTH_PROPERTIES], n=1)
            hint = f"; did you mean {similar[0]}?" if similar else ""
            raise ConfigError(f"{key}: not a property of this client{hint}", key)
    if "bootstrap_servers" not in arguments:
        raise ConfigError("bootstrap.servers is not set", "bootstrap.servers")
    return arguments
