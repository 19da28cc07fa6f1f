"""Names of lake tables, and locations of their files, which may not be outside of the warehouse."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.model.events import TableId
from headrace.core.tables.naming import TableNaming, check_table_path, location_problems, path_problem, table_of_topic

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
    """A format's placeholders are replaced as in Debezium's JDBC sink; dots in the topic become underscores."""
    assert TableNaming(form).name("shop.public.items", TABLE) == name


def test_an_unknown_placeholder_is_refused_at_once() -> None:
    """An unknown placeholder is a configuration error whose message lists the known ones."""
    with pytest.raises(ConfigError, match=r"\$\{source.tabel\} is not known; use \$\{topic\}"):
        TableNaming("${source.tabel}")


OUTSIDE = ("", ".", "..", "../../etc", "/etc", "a/b", "a\\b", "a\nb", "a\x00", "orders__headrace_tombstones")


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_are_no_separate_folder_are_refused(name: str) -> None:
    """A namespace or table name is refused if its path leaves its folder or is that of a table of Headrace."""
    assert path_problem(name)
    for namespace, table in ((name, "items"), ("lake", name)):
        with pytest.raises(ConfigError):
            check_table_path(namespace, table)


@pytest.mark.parametrize("name", ["shop", "a.b", "..a", "Ümlaut $1", "a:b", "_x", "-"])
def test_other_names_are_accepted(name: str) -> None:
    """Other names are accepted, also with spaces and punctuation, since databases quote names."""
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
    """An invalid name from a source is an error that names the topic and the option to change."""
    with pytest.raises(ConfigError, match=r"topic shop\.items: .*; change collection.name.format") as caught:
        TableNaming(form).name("shop.items", table)
    assert caught.value.key == "collection.name.format"


@pytest.mark.parametrize("topic", ["../../etc", "a/b"])
def test_names_that_a_transform_chooses_are_checked(topic: str) -> None:
    """A topic name with a slash, as a transform may create it, is refused."""
    with pytest.raises(ConfigError, match="contains /"):
        TableNaming("${topic}").name(topic, TABLE)


@pytest.mark.parametrize("form", ["../${topic}", "/x", "", "a/${source.table}"])
def test_a_format_that_is_no_folder_name_is_refused_at_once(form: str) -> None:
    """A format that itself contains a slash or is empty is refused before any topic is read."""
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
def test_a_topic_name_contains_its_table(topic: str, table: TableId | None) -> None:
    """The last two parts of a topic's name are schema and table; other topics have no table."""
    assert table_of_topic(topic, "db") == table


PATHS = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path", "location")


@pytest.mark.parametrize("name", PATHS)
@pytest.mark.parametrize(
    ("warehouse", "location_value"),
    [
        ("/data/lake", "/etc"),
        ("/data/lake", "/data/lake"),
        ("/data/lake", "/data/lakes/x"),
        ("/data/lake", "/data/lake/../x"),
        ("/data/lake", "data/lake/x"),
        ("/data/lake", "s3://bucket/data/lake/x"),
        ("/data/lake", ""),
        ("s3a://bucket/lake", "s3a://other/lake/x"),
        ("s3a://bucket/lake", "s3://bucket/lake/x"),
        ("s3a://bucket/lake", "/lake/x"),
        (None, "x/../../etc"),
        (None, "/a/../etc"),
    ],
)
def test_locations_outside_of_the_warehouse_are_refused(name: str, warehouse: str | None, location_value: str) -> None:
    """A location on another server or in another folder, a relative path, and a path with ``..`` are refused."""
    assert list(location_problems({name: location_value}, warehouse)) == [name]


@pytest.mark.parametrize(
    ("warehouse", "location_value"),
    [
        ("/data/lake", "/data/lake/x/y"),
        ("/data/lake/", "file:///data/lake/x"),
        ("/", "/x"),
        ("s3a://bucket/lake", "s3a://bucket/lake/x"),
        (None, "s3://anywhere/x"),
    ],
)
def test_locations_in_the_warehouse_are_accepted(warehouse: str | None, location_value: str) -> None:
    """A location below the warehouse is accepted, with or without ``file://``."""
    assert location_problems({"write.data.path": location_value}, warehouse) == {}


def test_other_properties_are_accepted() -> None:
    """Properties that set no location are accepted, also if a column in their name is called "path"."""
    names = ("write.metadata.metrics.column.path", "write.object-storage.partitioned-paths", "write.format.default")
    assert location_problems(dict.fromkeys(names, "full"), "/data/lake") == {}


def test_a_location_provider_is_refused() -> None:
    """A location provider class is refused, because it could write anywhere."""
    assert location_problems({"write.location-provider.impl": "a.B"}, None)
