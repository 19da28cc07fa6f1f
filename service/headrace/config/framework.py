"""The options that every Kafka Connect sink honours, in Connect's order and layout (``connect.md`` section 8).

Tests: ``tests/unit/config/test_validation.py``, ``tests/rest/test_transcript.py``.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from headrace.core.connect.config_def import (
    REQUIRED,
    Importance,
    Type,
    Width,
    at_least,
    not_empty_name,
    one_of,
    regex,
    unique_aliases,
    unique_entries,
)
from headrace.core.connect.config_state import MAX_TASKS
from headrace.core.connect.java_patterns import python_pattern
from headrace.core.connect.typed_options import Layout, definition, equal_to, option, option_group
from headrace.core.reselect.options import ReselectOptions

CONNECTOR_CLASS = "headrace.LakehouseSinkConnector"
TASK_CLASS = "headrace.LakehouseSinkTask"
_HIGH, _MEDIUM, _LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_RESELECT = ReselectOptions()
_COMMON, _ERRORS = "Common", "Error Handling"


def _converter(side: str, order: int) -> Any:
    return option(
        f"{side}.converter",
        Type.CLASS,
        None,
        f"Converter of the record's {side}; the worker's if not set. Its options follow by prefix.",
        _LOW,
        layout=Layout(_COMMON, order, Width.SHORT, f"{side.capitalize()} converter class"),
    )


def _converter_version(side: str, order: int) -> Any:
    return option(
        f"{side}.converter.plugin.version",
        Type.STRING,
        None,
        f"Version range of the {side} converter.",
        _LOW,
        layout=Layout(_COMMON, order, Width.SHORT, f"{side.capitalize()} converter version"),
    )


@dataclass(frozen=True, slots=True)
class ErrorSettings:
    """What to do about errors and records that cannot be used."""

    retry_timeout_ms: int = option(
        "errors.retry.timeout",
        Type.LONG,
        _RESELECT.errors_retry_timeout_ms,
        "Time, in ms, for which a row's SELECT is retried after a retriable error; -1 means no limit. A "
        "record always waits for a schema registry that does not answer, regardless of this value: retriable "
        "errors of converters skip nothing.",
        _MEDIUM,
        layout=Layout(_ERRORS, 1, Width.MEDIUM, "Retry Timeout for Errors"),
    )
    retry_delay_max_ms: int = option(
        "errors.retry.delay.max.ms",
        Type.LONG,
        _RESELECT.errors_retry_delay_max_ms,
        "Longest pause, in ms, between two such attempts.",
        _MEDIUM,
        layout=Layout(_ERRORS, 2, Width.MEDIUM, "Maximum Delay Between Retries for Errors"),
    )
    tolerate: bool = option(
        "errors.tolerance",
        Type.STRING,
        "none",
        "What to do with a record that cannot be used: none fails its table, all skips the record (and sends "
        "it to the dead letter queue if there is one).",
        _MEDIUM,
        one_of("none", "all"),
        read=equal_to("all"),
        layout=Layout(_ERRORS, 3, Width.SHORT, "Error Tolerance"),
    )
    log: bool = option(
        "errors.log.enable",
        Type.BOOLEAN,
        False,
        "Whether to log every bad record with its stage and error.",
        _MEDIUM,
        layout=Layout(_ERRORS, 4, Width.SHORT, "Log Errors"),
    )
    log_messages: bool = option(
        "errors.log.include.messages",
        Type.BOOLEAN,
        False,
        "Whether that log line contains topic, partition, offset and timestamp. Values are never logged.",
        _MEDIUM,
        layout=Layout(_ERRORS, 5, Width.SHORT, "Log Error Details"),
    )


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The topics of a connector: names, or a regular expression."""

    names: tuple[str, ...] = option(
        "topics",
        Type.LIST,
        (),
        "Topics to read, one table each. Set either this or topics.regex.",
        _HIGH,
        unique_entries,
        layout=Layout(_COMMON, 4, Width.LONG, "Topics"),
    )
    regex: str = option(
        "topics.regex",
        Type.STRING,
        "",
        "Regular expression that must match a topic's whole name. New topics are found at a metadata refresh.",
        _HIGH,
        regex,
        layout=Layout(_COMMON, 4, Width.LONG, "Topics regex"),
    )

    @property
    def pattern(self) -> str:
        """The regular expression for whole names of topics, in Python's syntax; empty where topics are named."""
        return python_pattern(self.regex)

    @property
    def whole_names(self) -> str:
        """The same; of topics that are named, a regular expression that matches exactly these."""
        return self.pattern or "|".join(map(re.escape, self.names))

    def absent(self, existing: Collection[str]) -> tuple[str, ...]:
        """Return the names of topics that are not ``existing``, or the regular expression if none is."""
        if self.regex:
            return () if existing else (self.regex,)
        return tuple(name for name in self.names if name not in existing)


@dataclass(frozen=True, slots=True)
class DeadLetterSettings:
    """The dead letter queue; there is none without a ``topic``."""

    topic: str = option(
        "errors.deadletterqueue.topic.name",
        Type.STRING,
        "",
        "Topic for records that cannot be used; empty means none. It is created if it does not exist.",
        _MEDIUM,
        layout=Layout(_ERRORS, 6, Width.MEDIUM, "Dead Letter Queue Topic Name"),
    )
    replication: int = option(
        "errors.deadletterqueue.topic.replication.factor",
        Type.SHORT,
        3,
        "Replication factor of that topic when it is created.",
        _MEDIUM,
        layout=Layout(_ERRORS, 7, Width.MEDIUM, "Dead Letter Queue Topic Replication Factor"),
    )
    context_headers: bool = option(
        "errors.deadletterqueue.context.headers.enable",
        Type.BOOLEAN,
        False,
        "Whether dead letters have the __connect.errors.* headers, which contain the origin of the record and "
        "the error.",
        _MEDIUM,
        layout=Layout(_ERRORS, 8, Width.MEDIUM, "Enable Error Context Headers"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSettings:
    """What every sink connector has: its name, topics, converters, transforms and treatment of errors."""

    name: str = option(
        "name",
        Type.STRING,
        REQUIRED,
        "Name of the connector, unique in the Connect cluster. Its consumer group is connect-<name>.",
        _HIGH,
        not_empty_name,
        layout=Layout(_COMMON, 1, Width.MEDIUM, "Connector name"),
    )
    connector_class: str = option(
        "connector.class",
        Type.STRING,
        REQUIRED,
        f"Class of the connector: {CONNECTOR_CLASS}, LakehouseSinkConnector or LakehouseSink.",
        _HIGH,
        layout=Layout(_COMMON, 2, Width.LONG, "Connector class"),
    )
    plugin_version: str | None = option(
        "connector.plugin.version",
        Type.STRING,
        None,
        "Version range of the connector, in Maven's syntax. There is one version: the worker's.",
        _MEDIUM,
        layout=Layout(_COMMON, 3, Width.MEDIUM, "Connector version"),
    )
    tasks_max: int = option(
        "tasks.max",
        Type.INT,
        1,
        "Maximum number of tasks that share the connector's topics. All partitions of a topic belong to one task, "
        f"so there are never more tasks than topics, and at most {MAX_TASKS}.",
        _HIGH,
        at_least(1),
        layout=Layout(_COMMON, 4, Width.SHORT, "Tasks max"),
    )
    tasks_max_enforce: bool = option(
        "tasks.max.enforce",
        Type.BOOLEAN,
        True,
        "Deprecated in Kafka Connect. This connector never has more than tasks.max tasks.",
        _LOW,
        layout=Layout(_COMMON, 5, Width.SHORT, "Enforce tasks max"),
    )
    key_converter: str | None = _converter("key", 6)
    key_converter_version: str | None = _converter_version("key", 7)
    value_converter: str | None = _converter("value", 8)
    value_converter_version: str | None = _converter_version("value", 9)
    header_converter: str | None = _converter("header", 10)
    header_converter_version: str | None = _converter_version("header", 11)
    transforms: tuple[str, ...] = option(
        "transforms",
        Type.LIST,
        (),
        "Aliases of single message transforms, in the order in which they apply to a record (docs/transforms.md).",
        _LOW,
        unique_aliases,
        layout=Layout("Transforms", 12, Width.LONG, "Transforms"),
    )
    predicates: tuple[str, ...] = option(
        "predicates",
        Type.LIST,
        (),
        "Aliases of predicates, which select the records that a transform applies to.",
        _LOW,
        unique_aliases,
        layout=Layout("Predicates", 13, Width.LONG, "Predicates"),
    )
    config_action_reload: str = option(
        "config.action.reload",
        Type.STRING,
        "restart",
        "What to do when a config provider reports that a value has changed: none or restart.",
        _LOW,
        one_of("none", "restart"),
        layout=Layout(_COMMON, 14, Width.MEDIUM, "Reload Action"),
    )
    errors: ErrorSettings = option_group(ErrorSettings)
    topics: TopicSettings = option_group(TopicSettings)
    dead_letters: DeadLetterSettings = option_group(DeadLetterSettings)


FRAMEWORK_OPTIONS = definition(FrameworkSettings)
