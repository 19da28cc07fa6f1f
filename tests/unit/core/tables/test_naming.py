"""Names of lake tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.tables.naming import TableNaming, check_table_path, path_problem, table_of_topic

TABLE = TableId("shop", "db", "public", "items")


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("${topic}", "shop_public_items"),
        ("${source.schema}_${source.table}", "public_items"),
        ("x.${source.db}", "x_db"),
    ],
)
def test_formats_fill_in_topic_and_source(form: str, name: str) -> None:
    """As Debezium's JDBC sink does; dots become underscores."""
    assert TableNaming(form).name("shop.public.items", TABLE) == name


def test_an_unknown_place_is_refused_at_once() -> None:
    """The message lists what can be used."""
    with pytest.raises(ConfigError, match=r"\$\{source.tabel\} is not known; use \$\{topic\}"):
        TableNaming("${source.tabel}")


OUTSIDE = ("", ".", "..", "../../etc", "/etc", "a/b", "a\\b", "a\nb", "a\x00", "orders__headrace_tombstones")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_are_no_folder_of_their_own_are_refused(name: str) -> None:
    """Of a namespace and of a table: such a path leads elsewhere, or to Headrace's own tables."""
    assert path_problem(name)
    for namespace, table in ((name, "items"), ("lake", name)):
        with pytest.raises(ConfigError):
            check_table_path(namespace, table)


@pytest.mark.parametrize("name", ["shop", "a.b", "..a", "Ümlaut $1", "a:b", "_x", "-"])
def test_other_names_are_free(name: str) -> None:
    """Databases quote whatever people call their tables."""
    check_table_path(name, name)


@pytest.mark.parametrize(
    ("form", "table"),
    [
        ("${source.table}", replace(TABLE, table="../../etc")),
        ("${source.schema}_${source.table}", replace(TABLE, schema="a/b")),
        ("${source.table}", replace(TABLE, table="")),
        ("${source.table}", replace(TABLE, table="orders__headrace_tombstones")),
    ],
)
def test_names_that_a_source_chooses_are_checked(form: str, table: TableId) -> None:
    """The message names the topic, and what to change."""
    with pytest.raises(ConfigError, match=r"topic shop\.items: .*; change collection.name.format") as caught:
        TableNaming(form).name("shop.items", table)
    assert caught.value.key == "collection.name.format"


@pytest.mark.parametrize("topic", ["../../etc", "a/b"])
def test_names_that_a_transform_chooses_are_checked(topic: str) -> None:
    """A router may make any text of a topic's name."""
    with pytest.raises(ConfigError, match="contains /"):
        TableNaming("${topic}").name(topic, TABLE)


@pytest.mark.parametrize("form", ["../${topic}", "/x", "", "a/${source.table}"])
def test_a_format_that_leads_elsewhere_is_refused_at_once(form: str) -> None:
    """Whatever takes the places."""
    with pytest.raises(ConfigError, match=r"collection\.name\.format"):
        TableNaming(form)


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("shop.public.item", TableId("shop", "db", "public", "item")),
        ("eu.shop.public.item", TableId("eu.shop", "db", "public", "item")),
        ("__debezium-heartbeat.shop", None),
        ("shop..item", None),
        ("item", None),
    ],
)
def test_a_topic_tells_its_table(topic: str, table: TableId | None) -> None:
    """The last two parts are schema and table; other topics have none."""
    assert table_of_topic(topic, "db") == table
