"""Names of lake tables."""

from __future__ import annotations

import pytest

from headrace.core.errors import ConfigError
from headrace.core.events import TableId
from headrace.core.naming import TableNaming, table_of_topic

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
