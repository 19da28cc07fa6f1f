"""The source tables of topics, as the lake tables store them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions
from headrace.core.tables.naming import TableNaming
from headrace.core.tables.table_sources import TableSource
from headrace.runtime.verify.source_tables import SourceTables, refuse_shared_table, topic_form
from headrace_dev.memory import MemoryRowSource

SHOP = DatabaseOptions("shop-db", dbname="shop")
ODD = TableId("p", "shop", "public", "Größen & Maße")
ODD_TOPIC = "p.public.Gr__en___Ma_e"
BY_TOPIC = TableNaming("${topic}")


def stored(topic: str, table: TableId) -> TableSource:
    return TableSource("shop", "connect-shop", topic, table)


def found(
    topic: str,
    lake: Mapping[str, Sequence[TableSource]],
    naming: TableNaming = BY_TOPIC,
    named: Sequence[str] = (),
    database: DatabaseOptions = SHOP,
) -> list[TableId]:
    """The source tables of a topic, if the lake tables store ``lake``."""
    tables = SourceTables([(database, MemoryRowSource())], naming.name, lambda name: lake.get(name, ()), named)
    return [table for table, _ in tables.of(topic)]


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        (ODD_TOPIC, ODD),
        ("p.public.a.b", TableId("p", "shop", "public", "a.b")),
        ("orders", TableId("p", "shop", "public", "orders")),  # a router at the source has renamed the topic
    ],
)
def test_a_table_is_the_one_that_the_lake_table_stores(topic: str, table: TableId) -> None:
    """The topic does not name it: other characters, dots in a name, another name."""
    assert found(topic, {topic.replace(".", "_"): [stored(topic, table)]}) == [table]


def test_a_topic_names_its_table_while_the_lake_table_stores_none() -> None:
    """Tables of an earlier release store topics only. Topics without three parts have no table, such as heartbeats."""
    named = TableId("p", "shop", "public", "items")
    unnamed = [stored("p.public.items", TableId("", "", "", ""))]
    assert found("p.public.items", {"p_public_items": unnamed}) == [named]
    assert found("p.public.items", {}) == [named]
    assert found("__debezium-heartbeat.p", {}) == []


def test_tables_of_other_topics_and_databases_do_not_count() -> None:
    """Rows of flattened records may not name their database: then the topic counts."""
    other, partial = TableId("q", "shop", "public", "other"), TableId("p", "", "", "items")
    lake = {"p_public_items": [stored("q.public.other", other), stored("p.public.items", partial)]}
    assert found("p.public.items", lake) == [TableId("p", "shop", "public", "items")]
    elsewhere = replace(SHOP, dbname="elsewhere")
    assert found(ODD_TOPIC, {ODD_TOPIC.replace(".", "_"): [stored(ODD_TOPIC, ODD)]}, database=elsewhere) == [
        TableId("p", "elsewhere", "public", "Gr__en___Ma_e")
    ]


def test_the_stored_database_counts_before_the_order_of_databases() -> None:
    """The topic does not name its database."""
    first, second = MemoryRowSource(), MemoryRowSource()
    databases = [(replace(SHOP, dbname="first"), first), (SHOP, second)]
    tables = SourceTables(databases, BY_TOPIC.name, lambda _: [stored(ODD_TOPIC, ODD)])
    assert tables.of(ODD_TOPIC) == [(ODD, second)]
    assert SourceTables(databases, BY_TOPIC.name, lambda _: ()).of(ODD_TOPIC) == [
        (TableId("p", "first", "public", "Gr__en___Ma_e"), first)
    ]


def test_a_lake_table_that_is_named_after_its_source_table_is_found_by_the_operator() -> None:
    """Its name does not follow from the topic, and --table has it."""
    naming, lake = TableNaming("${source.table}"), {ODD.table: [stored(ODD_TOPIC, ODD)]}
    assert found(ODD_TOPIC, lake, naming, ["public.other", "public.Größen & Maße"]) == [ODD]
    assert found(ODD_TOPIC, lake, naming) == [TableId("p", "shop", "public", "Gr__en___Ma_e")]


def test_characters_above_the_first_plane_are_two_in_a_topic() -> None:
    """As Java replaces them."""
    assert [topic_form(name) for name in ("a-b.c_1", "ä b", "\U0001f40e")] == ["a-b.c_1", "__b", "__"]


def test_a_lake_table_of_several_source_tables_is_not_compared() -> None:
    """A repair would delete the rows of the others. A source that no record has named yet does not count."""
    items, others = TableId("p", "shop", "public", "items"), TableId("q", "shop", "public", "others")
    alone = [stored("p.public.items", items), stored("q.public.others", TableId("", "", "", ""))]
    refuse_shared_table("items", "p.public.items", items, alone)
    for both in ([*alone, stored("q.public.others", others)], [*alone, stored("p.public.items", others)]):
        with pytest.raises(ConfigError, match=r"several source tables \(public\.items, public\.others\)"):
            refuse_shared_table("items", "p.public.items", items, both)
