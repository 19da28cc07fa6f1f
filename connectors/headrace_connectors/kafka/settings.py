"""Kafka's Java property names as aiokafka arguments (the table: ``client_properties.py``), nothing passed on unread.

A connector's clients get, later winning: the defaults below (measured, see ``docs/why.md``), the worker's own
connection properties (``bootstrap.servers``, ``security.protocol``, ``sasl.*``, ``ssl.*``), the worker's ``consumer.*``
and the connector's ``consumer.override.*`` (``producer.*`` and ``producer.override.*`` for the dead letter queue,
``admin.*`` and ``admin.override.*`` for making its topic and for the offsets of the connector's group); see
``client_layers.py``. A property that cannot be honoured is refused with the reason instead of being dropped in silence.
"""

from __future__ import annotations

import difflib
import logging
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    "session_timeout_ms": 10_000,  # a killed worker's members hold the group up for so long
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
    """How one task reads: aiokafka's arguments, the group, and the pattern that a topic's whole name must match."""

    arguments: Mapping[str, Any]
    group: str
    pattern: str
    reset: str


def consumer_settings(worker: Properties, connector: str, task: int, settings: KafkaSettings) -> ConsumerSettings:
    """Settings of the consumer of ``connector``'s task. Raises ConfigError that names the property."""
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
        arguments, arguments["group_id"], topic_pattern(settings.topics), arguments["auto_offset_reset"]
    )


def producer_arguments(worker: Properties, connector: str, task: int, settings: KafkaSettings) -> dict[str, Any]:
    """aiokafka's arguments for the dead letter queue's producer. Raises ConfigError that names the property."""
    properties = {
        "client.id": f"connector-dlq-producer-{connector}-{task}",
        **client_properties(worker, "producer", settings),
    }
    return {**_translate(properties, PRODUCER), "acks": "all", "enable_idempotence": True}


def admin_arguments(worker: Properties, settings: KafkaSettings, client_id: str) -> dict[str, Any]:
    """aiokafka's arguments for an admin client of a connector. Raises ConfigError that names the property."""
    return _translate({"client.id": client_id, **client_properties(worker, "admin", settings)}, CLIENT)


def group_arguments(worker: Properties, connector: str, settings: KafkaSettings) -> dict[str, Any]:
    """The same for asking about the connector's group, which is where its consumers read. Raises ConfigError.

    Kafka Connect asks the worker's brokers unless ``admin.override.bootstrap.servers`` names others. A connector whose
    consumers alone have other brokers would be answered from, and altered in, the wrong cluster: theirs are asked here.
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
    """The same for asking about the topics that the connector's consumers read. Raises ConfigError."""
    return client_arguments(client_properties(worker, "consumer", settings))


def check_worker(worker: Properties) -> None:
    """Raise ConfigError for what a worker's ``consumer.*``, ``producer.*`` or ``admin.*`` asks and no client can do.

    Said when the worker starts: each connector would be refused for it later.
    """
    for prefix, table in (("consumer.", CONSUMER), ("producer.", PRODUCER), ("admin.", CLIENT)):
        try:
            _translate({**connection(worker), **under(prefix, worker)}, table)
        except ConfigError as error:
            named = prefix if f"{prefix}{error.key}" in worker else ""
            raise ConfigError(f"{named}{error}", f"{named}{error.key}") from error


def client_arguments(properties: Properties) -> dict[str, Any]:
    """The connection part alone, from plain client properties: for admin calls. Raises ConfigError."""
    return _translate(connection(properties), CLIENT)


def connection_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The connection part of a consumer's or producer's arguments: for admin calls of a connector."""
    names = {name for name, _ in CLIENT.values()} | {"ssl_context", "sasl_plain_username", "sasl_plain_password"}
    return {key: value for key, value in arguments.items() if key in names}


def topic_pattern(topics: TopicSettings) -> str:
    """The regular expression of the subscribed topics, anchored for the full match that Connect asks for.

    Named topics become a pattern too: a consumer that subscribes by name makes a broker with automatic topic creation
    re-create a deleted topic.
    """
    names, regex = [name for name in topics.names if name], topics.regex
    if bool(names) == bool(regex):
        raise ConfigError("exactly one of topics and topics.regex must be set", "topics")
    try:
        regex = python_pattern(regex)
        unflagged = _LEADING_FLAGS.sub("", regex)
        flags = regex.removesuffix(unflagged)  # Python takes them in front of everything only, so before the anchor
        pattern = rf"{flags}\A(?:{unflagged or '|'.join(map(re.escape, names))})\Z"
        re.compile(regex)
        re.compile(pattern)
    except (re.error, OnlyJava) as error:
        raise ConfigError(f"topics.regex is not a valid regular expression: {error}", "topics.regex") from error
    return pattern


def _translate(properties: Properties, table: Mapping[str, Argument]) -> dict[str, Any]:
    arguments = _security(properties)
    for key, text in properties.items():
        if key in table:
            name, parse = table[key]
            arguments[name] = _parsed(key, text, parse)
        elif not key.startswith(("ssl.", "sasl.jaas")) or key in REFUSED:
            _without_argument(key, text, table)
    if "bootstrap_servers" not in arguments:
        raise ConfigError("bootstrap.servers is not set", "bootstrap.servers")
    return arguments


def _parsed(key: str, text: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise ConfigError(f"{key} has a wrong value: {error}", key) from error


def _without_argument(key: str, text: str, table: Mapping[str, Argument]) -> None:
    if text.strip() in DONE_ANYWAY.get(key, ()):
        return
    if key in IGNORED:
        log.warning("Property %s has no effect: %s", key, IGNORED[key])
        return
    if key in REFUSED:
        raise ConfigError(f"{key} cannot be set: {REFUSED[key]}", key)
    close = difflib.get_close_matches(key, table, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise ConfigError(f"{key} is not a property that this client knows{hint}", key)


_JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def _security(properties: Properties) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    if "sasl.jaas.config" in properties:
        arguments.update(_jaas(properties["sasl.jaas.config"]))
    if properties.get("security.protocol", "PLAINTEXT").strip().endswith("SSL"):
        arguments["ssl_context"] = _ssl_context(properties)
    return arguments


def _jaas(text: str) -> dict[str, str]:
    """User and password of a Plain or Scram login module; the text itself never gets into a message."""
    options = {name: next(filter(None, rest), "") for name, *rest in _JAAS_OPTION.findall(text)}
    if "username" not in options or "password" not in options:
        raise ConfigError(
            'sasl.jaas.config needs a login module with username="…" and password="…"', "sasl.jaas.config"
        )
    unescaped = {name: re.sub(r"\\(.)", r"\1", options[name]) for name in ("username", "password")}
    return {"sasl_plain_username": unescaped["username"], "sasl_plain_password": unescaped["password"]}


def _ssl_context(properties: Properties) -> ssl.SSLContext:
    _only_pem(properties)
    try:
        context = ssl.create_default_context(
            cafile=properties.get("ssl.truststore.location"), cadata=properties.get("ssl.truststore.certificates")
        )
        if keystore := properties.get("ssl.keystore.location"):
            context.load_cert_chain(Path(keystore), password=properties.get("ssl.key.password"))
    except (OSError, ssl.SSLError) as error:
        key = "ssl.keystore.location" if "ssl.keystore.location" in properties else "ssl.truststore.location"
        raise ConfigError(f"the certificates of {key} cannot be read: {error}", key) from error
    if properties.get("ssl.endpoint.identification.algorithm", "https").strip() == "":
        context.check_hostname = False
    return context


def _only_pem(properties: Properties) -> None:
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "PEM")
        if kind.upper() != "PEM":
            key = f"ssl.{store}.type"
            raise ConfigError(f"{key}={kind} is a Java key store: convert it to PEM and set {key}=PEM", key)
    if "ssl.keystore.key" in properties:
        raise ConfigError(
            "ssl.keystore.key inline is not supported: put it in a file and set ssl.keystore.location",
            "ssl.keystore.key",
        )
