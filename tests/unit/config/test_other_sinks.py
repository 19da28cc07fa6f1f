"""The guide for other sinks covers every key of theirs, and names only keys that exist."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from headrace.config.connector import CONNECTOR_OPTIONS
from headrace.config.keys_without_effect import ICEBERG, JDBC, OTHER_SINKS, called_here, migration
from headrace.config.worker_options import WORKER_OPTIONS

KEYS = Path(__file__).parents[2] / "fixtures" / "other-sinks"
FREE = ("table.properties.*", "consumer.override.*", "consumer.override.group.id", "spark.hadoop.*")
"""Prefixes that are in no list of options."""


@pytest.mark.parametrize(
    ("file", "keys"),
    [("debezium-connector-jdbc-3.6.0.Final.txt", JDBC), ("iceberg-kafka-connect-1.10.0.txt", ICEBERG)],
)
def test_every_key_of_the_other_sink_is_answered(file: str, keys: Mapping[str, str]) -> None:
    """There is an answer for each key that the classes of the sink define."""
    for name in (KEYS / file).read_text(encoding="utf-8").split():
        assert name in keys or (called_here(name.replace("*", "x")) or "").startswith("It is a key of"), name


@pytest.mark.parametrize("here", sorted({here for keys in OTHER_SINKS.values() for here in keys.values()}))
def test_the_keys_that_the_guide_names_exist(here: str) -> None:
    """Every key in a sentence is an option of a connector or a worker, or has a free prefix."""
    for name in re.findall(r"`([a-z][a-z.*-]*\.[a-z.*-]+)(?:=[a-z]+)?`", here):
        known = name in CONNECTOR_OPTIONS or name in WORKER_OPTIONS or name in FREE
        assert known or name.startswith("spark.sql.catalog."), name


def test_the_longest_prefix_applies() -> None:
    """The sentence about a key is that of its longest prefix."""
    assert "table.properties" in (called_here("iceberg.tables.write-props.write.format.default") or "")
    assert "control topic" in (called_here("iceberg.control.commit.threads") or "")
    assert called_here("icberg.tables") is None


@pytest.mark.parametrize(
    ("class_name", "keys", "sentences"),
    [
        (
            "io.debezium.connector.jdbc.JdbcSinkConnector",
            ["topics", "connection.url", "connection.password", "insert.mode", "delete.enabled", "delete.mode"],
            "It is the class of Debezium's JDBC sink. To move its connector (docs/migration.md), set connector.class "
            "to LakehouseSink, set another name, and replace these keys: connection.url, connection.password "
            "(in the worker file: warehouse, and spark.sql.catalog.lake.* for a catalog other than a folder); "
            "delete.enabled (not needed: deletes always apply; delete.mode=soft marks rows instead of removing them).",
        ),
        (
            "IcebergSink",
            ["topics"],
            "It is the class of Apache Iceberg's sink. To move its connector (docs/migration.md), set connector.class "
            "to LakehouseSink, set another name.",
        ),
        ("FileStreamSink", ["topics", "connection.url"], None),
    ],
)
def test_the_class_of_another_sink_is_answered_with_the_keys_to_replace(
    class_name: str, keys: list[str], sentences: str | None
) -> None:
    """The answer contains each key that is different here; those that are the same, and all others, are not in it."""
    assert migration(class_name, keys) == sentences
