"""The documents that are made from the code: options, errors and states.

``python -m headrace.config`` writes them; a test fails when they have drifted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TypeVar

from headrace.config import connector, kafka, worker_options
from headrace.config.converter import CONVERTERS
from headrace.config.framework import FRAMEWORK_OPTIONS
from headrace.config.keys_without_effect import (
    CLIENT_SECURITY,
    CREATED_TOPICS,
    OTHER_SINKS,
    PASS_THROUGH,
    WITHOUT_EFFECT,
)
from headrace.core.connect.config_def import ConfigDef, ConfigKey
from headrace.core.connect.lifecycle import CONNECTOR, LAKE_TABLE, TASK, Event, State, TableEvent
from headrace.core.model.errors import POLICY

_PAUSED_TABLES = """\
A table is `PAUSED` while [it](operations.md#pause-one-table) or its connector is paused, and no write of the table is
in progress. A resume of the one does not lift the pause of the other. A failed table stays `FAILED` during a pause and
after it: only a restart of the table, its task or the worker ends that. If the pause still applies then, the table is
`PAUSED`. A table that is retried when it is paused is `RUNNING` after the resume, and is written with the next attempt.
"""

_MADE = "<!-- Made from the code by `python -m headrace.config`; edit it there. -->\n"
_DELETED = "deleted"
_State = TypeVar("_State", bound=StrEnum)
_Event = TypeVar("_Event", bound=StrEnum)


def configuration() -> str:
    """All options of worker and connector, and Kafka Connect's options without an effect here."""
    parts = [
        "# Configuration\n",
        _MADE,
        "Keys have the names of Kafka Connect and Debezium where those have such a key. A key that is not listed here "
        "is refused, and the message suggests the right one. Keys and values that are not available yet are refused "
        "as well.\n",
        "## Worker\n",
        "In `worker.properties`, or from the environment: `CONNECT_BOOTSTRAP_SERVERS` is `bootstrap.servers`. "
        f"{_listed(PASS_THROUGH)} are passed unchanged to Kafka's clients, to Spark and to converters. "
        f"{_listed(CLIENT_SECURITY)} apply to all clients of the worker.\n",
        *_groups(worker_options.WORKER_OPTIONS),
        f"With the prefixes {_listed(CREATED_TOPICS)}, topic settings apply to the storage topics when the "
        "worker creates them, such as `config.storage.min.insync.replicas`.\n",
        "### Without effect\n",
        "Accepted with a warning, so that a worker file of Kafka Connect can be used.\n",
        *_reasons(WITHOUT_EFFECT),
        "## Connector\n",
        "In `POST /connectors` and `PUT /connectors/{name}/config`. Client properties have the prefixes "
        f"{_listed(kafka.CLIENT_OVERRIDES)}. Reselect options may have the prefix `post.processors.<name>.`. A "
        "consumer's `request.timeout.ms` is at least its `rebalance.timeout.ms` plus 5 s, because a join may take that "
        "long.\n",
        *_groups(FRAMEWORK_OPTIONS + connector.SINK_OPTIONS),
        *_converters(),
        "### Not available yet\n",
        *_reasons(connector.LATER),
    ]
    return "\n".join(parts).rstrip() + "\n"


def migration() -> str:
    """The keys of other sinks and their equivalents here."""
    parts = [
        "# Migrating a connector from another sink\n",
        _MADE,
        "For an example of each pipeline before and after, and what is different, see [from Debezium's JDBC "
        "sink](migrate/jdbc-sink.md), [from Iceberg's sink](migrate/iceberg-sink.md), [from Hudi "
        "Streamer](migrate/hudi-streamer.md) and [from a hand-written stream](migrate/hand-written-stream.md).\n",
        "To move a sink connector that reads Debezium's topics to Headrace:\n",
        "1. Keep `topics` or `topics.regex`, `tasks.max`, converters, `errors.*`, `consumer.override.*` and "
        "`transforms` ([transforms.md](transforms.md) lists the transforms that are not needed).\n"
        '2. Set `"connector.class": "LakehouseSink"`.\n'
        "3. Replace the keys in the tables below.\n"
        "4. Set a new `name`. Under the old name the connector would continue at the offsets of the old sink's group, "
        "and miss the earlier records.\n"
        "5. Validate the file, without a worker and without Kafka:\n",
        "```sh\nheadrace validate shop.json\n```\n",
        "A remaining key of the old sink is an error that names its equivalent.\n",
    ]
    for sink, keys in OTHER_SINKS.items():
        parts += [f"## {sink}\n", "| key of the other sink | in Headrace |", "|---|---|"]
        parts += [f"| `{name}` | {here} |" for name, here in keys.items()] + [""]
    return "\n".join(parts).rstrip() + "\n"


def errors() -> str:
    """The table of errors: what Headrace does, and what an operator has to do."""
    rows = [
        f"| `{error_class.__name__}` | {_yes(rule.retry)} | {_yes(rule.tolerable)} | {rule.http_status} | {rule.hint} |"
        for error_class, rule in POLICY.items()
    ]
    head = ["| error | retried | tolerable | HTTP | what to do |", "|---|---|---|---|---|"]
    text = "`errors.tolerance=all` skips tolerable errors. An error that is not listed is treated as `Fatal`.\n"
    return "\n".join(["# Errors\n", _MADE, text, *head, *rows, ""])


def states() -> str:
    """The states of connectors, tasks and lake tables, with the state after each event."""
    parts = [
        "# States\n",
        _MADE,
        "Each row is a state, and each column an event: the cell is the state after it. A hyphen means that the event "
        "does not happen in that state. The REST API requests start, pause, resume, restart, stop and delete. The "
        "event release happens when a worker shuts down, or when another worker gets the task.\n",
        "## Connector\n",
        "A connector begins as `UNASSIGNED`, until a worker starts it.\n",
        *_state_table(CONNECTOR, Event),
        "## Task\n",
        "A task has no state `STOPPED`, because a stopped connector has no tasks. Only a restart, or a new "
        "configuration of its connector, starts a failed task again.\n",
        *_state_table(TASK, Event),
        "## Lake table\n",
        "The state of one table while its task is `RUNNING` or `PAUSED` ([failures of one "
        "table](guarantees.md#failures-of-one-table)).\n",
        *_state_table(LAKE_TABLE, TableEvent),
        _PAUSED_TABLES,
    ]
    return "\n".join(parts).rstrip() + "\n"


def _state_table(transitions: Mapping[_State, Mapping[_Event, _State]], all_events: type[_Event]) -> Iterator[str]:
    events = [event for event in all_events if any(event in row for row in transitions.values())]
    yield f"| state | {' | '.join(events)} |"
    yield "|---" * (len(events) + 1) + "|"
    for state, row in transitions.items():
        after = (
            "-" if event not in row else _DELETED if row[event] is State.DESTROYED else f"`{row[event]}`"
            for event in events
        )
        yield f"| `{state}` | {' | '.join(after)} |"
    yield ""


def _groups(options: ConfigDef) -> Iterator[str]:
    for title in options.groups():
        yield f"### {title}\n"
        yield from _table([key for key in options.keys if key.group == title])


def _converters() -> Iterator[str]:
    """The classes by the options that they share."""
    yield "### Converters\n"
    yield "With the prefix `key.converter.` or `value.converter.`, of a worker or connector that names the converter.\n"
    for options in dict.fromkeys(options for options in CONVERTERS.values() if len(options.keys) > 1):
        yield ", ".join(f"`{name}`" for name, its in CONVERTERS.items() if its is options) + ":\n"
        yield from _table(key for key in options.keys if key.name != "converter.type")  # never given


def _table(keys: Iterable[ConfigKey]) -> Iterator[str]:
    yield "| key | type | default | |"
    yield "|---|---|---|---|"
    for key in keys:
        default = "required" if key.required else f"`{key.default_text}`" if key.default_text else ""
        # Neither an escape, nor the end of a cell, nor a tag.
        doc = key.doc.replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<")
        yield f"| `{key.name}` | {key.type} | {default} | {doc} |"
    yield ""


def _reasons(reasons: Mapping[str, str]) -> Iterator[str]:
    yield from (f"- `{name}`: {reason}" for name, reason in reasons.items())
    yield ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}*`" for name in names)


def _yes(flag: bool) -> str:
    return "yes" if flag else "no"
