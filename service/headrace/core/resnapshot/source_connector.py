"""What Headrace reads of a source connector: how it receives signals, and the state of its incremental snapshot.

Sources: Debezium's pages on signalling and on the PostgreSQL connector. The state is in the offsets that the connector
commits (Kafka Connect's ``GET /connectors/{name}/offsets``): the tables that an incremental snapshot still has to read,
the first one being read now, and the position in the log up to which the connector has read.

Tests: ``tests/unit/core/resnapshot/test_source_connector.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.model.errors import ConfigError

_CLASS = "io.debezium.connector.postgresql.PostgresConnector"
_HOW = "docs/operations.md, section 'Heal one table'"


@dataclass(frozen=True, slots=True)
class SignalSettings:
    """How a source connector receives signals: by a table of the source, or by a topic of Kafka.

    ``table`` (``schema.table``) or ``topic`` is empty. ``prefix`` is ``topic.prefix``, the key of records in ``topic``.
    """

    prefix: str
    table: str = ""
    topic: str = ""
    chunk_size: int = 1024


def signal_settings(name: str, config: Mapping[str, str]) -> SignalSettings:
    """Return the settings of the source connector ``name``. Raises ConfigError, which contains the options to add."""

    def refuse(reason: str, remedy: str) -> ConfigError:
        return ConfigError(f"source connector {name}: {reason}; {remedy} ({_HOW})")

    if (connector_class := config.get("connector.class", "")) not in (_CLASS, _CLASS.rpartition(".")[2]):
        raise refuse(f"its class is {connector_class}", f"headrace resnapshot supports {_CLASS} only")
    prefix, chunk_size = config.get("topic.prefix", ""), config.get("incremental.snapshot.chunk.size", "1024")
    channels = {channel.strip() for channel in config.get("signal.enabled.channels", "source").split(",")}
    table = config.get("signal.data.collection", "").partition(",")[0].strip()
    topic = config.get("signal.kafka.topic", f"{prefix}-signal") if "kafka" in channels else ""
    size = int(chunk_size) if chunk_size.isdecimal() else 1024
    reads_only = config.get("read.only", "false").lower() == "true"
    if reads_only and not topic:
        raise refuse(
            "read.only=true, so it takes signals from Kafka, and signal.enabled.channels does not contain kafka",
            "set signal.enabled.channels=kafka, signal.kafka.topic and signal.kafka.bootstrap.servers",
        )
    if not reads_only and not table:
        raise refuse(
            "it receives no signals: signal.data.collection is not set",
            "create a signal table and set signal.data.collection to it; or, to write nothing to the source, set "
            "read.only=true, signal.enabled.channels=kafka, signal.kafka.topic and signal.kafka.bootstrap.servers",
        )
    if not reads_only and "source" in channels:
        return SignalSettings(prefix, table, "", size)
    if not topic:
        raise refuse(
            "signal.enabled.channels contains neither source nor kafka", "add source, which needs nothing else"
        )
    return SignalSettings(prefix, "", topic, size)


def check_captured(name: str, config: Mapping[str, str], schema: str, table: str) -> None:
    """Raise ConfigError if the source connector's filters exclude the table.

    Debezium ignores a signal for such a table. Its filters are lists of regular expressions for whole names, without
    regard to case.
    """
    for option, text in (("schema", schema), ("table", f"{schema}.{table}")):
        include, exclude = config.get(f"{option}.include.list", ""), config.get(f"{option}.exclude.list", "")
        if include and not _matches(include, text):
            raise ConfigError(
                f"source connector {name}: {option}.include.list does not contain {text}, so its changes are not sent; "
                "add it, and restart the source connector"
            )
        if exclude and _matches(exclude, text):
            raise ConfigError(f"source connector {name}: {option}.exclude.list contains {text}; remove it")


def _matches(expressions: str, text: str) -> bool:
    """Whether one of the expressions matches; also if one is valid in Java only, because it may match."""
    for expression in expressions.split(","):
        try:
            if re.fullmatch(expression.strip(), text, re.IGNORECASE):
                return True
        except re.error:
            return True
    return False


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The incremental snapshot of a source connector, as of the offsets that it has committed last.

    ``tables`` are those that it still has to read, the first of them is being read; ``rows`` is the number of rows that
    Debezium expects in it, None if that is unknown. ``position`` is the position in the log up to which it has read.
    """

    position: int
    tables: Sequence[str] = ()
    rows: int | None = None


def snapshot_state(offsets: Mapping[str, Any], prefix: str) -> SnapshotState:
    """Return the state in the document of ``GET /connectors/{name}/offsets``. Position 0: nothing is committed yet."""
    for entry in offsets.get("offsets") or ():
        if entry.get("partition", {}).get("server") == prefix and isinstance(offset := entry.get("offset"), Mapping):
            return SnapshotState(int(offset.get("lsn") or 0), _tables(offset), _rows(offset))
    return SnapshotState(0)


def _tables(offset: Mapping[str, Any]) -> Sequence[str]:
    collections = json.loads(offset.get("incremental_snapshot_collections") or "[]")
    return [str(collection["incremental_snapshot_collections_id"]) for collection in collections]


def _rows(offset: Mapping[str, Any]) -> int | None:
    rows = str(offset.get("incremental_snapshot_total_rows", ""))
    return int(rows) if rows.isdecimal() else None
