"""How a source connector receives signals, and the state of its snapshot in its offsets."""

from __future__ import annotations

import json

import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.resnapshot.source_connector import (
    SignalSettings,
    SnapshotState,
    check_captured,
    signal_settings,
    snapshot_state,
)

CONFIG = {"connector.class": "io.debezium.connector.postgresql.PostgresConnector", "topic.prefix": "shop"}
TABLE = {"signal.data.collection": "public.signals"}
KAFKA = {"signal.enabled.channels": "kafka", "signal.kafka.topic": "signals"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (TABLE, SignalSettings("shop", "public.signals")),
        (TABLE | KAFKA, SignalSettings("shop", topic="signals")),
        (TABLE | KAFKA | {"signal.enabled.channels": "source, kafka"}, SignalSettings("shop", "public.signals")),
        (KAFKA | {"read.only": "true"}, SignalSettings("shop", topic="signals")),
        (
            {"signal.enabled.channels": "kafka", "read.only": "true", "incremental.snapshot.chunk.size": "10"},
            SignalSettings("shop", topic="shop-signal", chunk_size=10),
        ),
    ],
)
def test_how_signals_are_received(options: dict[str, str], expected: SignalSettings) -> None:
    """The signal table is preferred; the topic has Debezium's default name."""
    assert signal_settings("source", CONFIG | options) == expected


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({}, "set signal.data.collection to it; or"),
        (KAFKA, "signal.data.collection is not set"),
        ({"read.only": "true"} | TABLE, "set signal.enabled.channels=kafka"),
        (TABLE | {"signal.enabled.channels": "file"}, "add source"),
        ({"connector.class": "io.debezium.connector.mysql.MySqlConnector"}, "PostgresConnector only"),
    ],
)
def test_a_connector_without_signals_is_refused(options: dict[str, str], remedy: str) -> None:
    """The message contains the options to add."""
    with pytest.raises(ConfigError, match=remedy):
        signal_settings("source", CONFIG | options)


def test_a_table_that_the_filters_exclude_is_refused() -> None:
    """Filters are expressions for whole names; one that is valid in Java only may match."""
    check_captured("source", {}, "public", "orders")
    check_captured("source", {"table.include.list": "a.b, PUBLIC[.]ord.*"}, "public", "orders")
    check_captured("source", {"table.include.list": "(?<name>orders)"}, "public", "orders")
    for options in (
        {"table.include.list": "public.order"},
        {"schema.include.list": "sales"},
        {"table.exclude.list": ".*orders"},
        {"schema.exclude.list": "public"},
    ):
        with pytest.raises(ConfigError, match=next(iter(options))):
            check_captured("source", options, "public", "orders")


def test_the_state_of_a_snapshot() -> None:
    """The tables are in the order in which they are read. Offsets of another prefix are ignored."""
    collections = [{"incremental_snapshot_collections_id": name} for name in ("public.a", "public.b")]
    running = {
        "lsn": 7,
        "incremental_snapshot_collections": json.dumps(collections),
        "incremental_snapshot_total_rows": "50",
    }
    offsets = {
        "offsets": [
            {"partition": {"server": "other"}, "offset": {"lsn": 9}},
            {"partition": {"server": "shop"}, "offset": running},
        ]
    }
    assert snapshot_state(offsets, "shop") == SnapshotState(7, ["public.a", "public.b"], 50)
    assert snapshot_state(offsets, "other") == SnapshotState(9, [], None)
    assert snapshot_state({"offsets": []}, "shop") == SnapshotState(0)
