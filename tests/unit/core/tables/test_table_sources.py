"""A lake table has one source table, unless ``primary.key.fields`` distinguishes the rows of several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.model.errors import Fatal
from headrace.core.model.events import RowVersion, TableId, Truncate
from headrace.core.tables.table_sources import TableSource, TableSources, rivals

ORDERS = TableId("eu", "shop", "public", "orders")
WITHOUT_SOURCE = TableId("", "", "", "eu.public.orders")


@pytest.mark.parametrize("other", [TableId("us", "shop", "public", "orders"), TableId("eu", "shop", "public", "old")])
def test_a_second_source_is_refused(other: TableId) -> None:
    """A second server or source table is refused; the message names both sources and the options to set."""
    sources = TableSources(shared=False)
    sources.admit("lake.orders", ORDERS, "eu.orders")
    sources.admit("lake.orders", ORDERS, "eu.orders.2")
    sources.admit("lake.others", other, "us.orders")
    with pytest.raises(Fatal) as refused:
        sources.admit("lake.orders", other, "us.orders")
    words = ("lake.orders: ", "eu.shop.public.orders", ".".join((other.name, "shop", "public", other.table)))
    assert all(word in str(refused.value) for word in (*words, "collection.name.format", "primary.key.fields"))


def test_several_sources_may_share_a_table_whose_key_the_operator_names() -> None:
    """With a key that the operator sets, several sources may write to one table."""
    sources = TableSources(shared=True)
    sources.admit("lake.orders", ORDERS, "eu.orders")
    sources.admit("lake.orders", TableId("us", "shop", "public", "orders"), "us.orders")


def test_a_tombstone_without_a_source_is_no_other_source() -> None:
    """A tombstone without a source, as it may arrive first after a restart, is accepted for any source."""
    sources = TableSources(shared=False)
    sources.admit("lake.orders", WITHOUT_SOURCE, "eu.orders")
    sources.admit("lake.orders", ORDERS, "eu.orders")
    sources.admit("lake.orders", WITHOUT_SOURCE, "eu.orders")


@pytest.mark.parametrize("merged", [True, False])
def test_the_truncate_of_one_of_several_sources_is_refused(merged: bool) -> None:
    """A truncate of a table with several sources is refused; if transforms merge topics, also with one known source."""
    sources = TableSources(shared=True, merged=merged)
    truncate = Truncate(ORDERS, RowVersion(b"1", "eu.orders", 0, 7, 0))
    sources.admit("lake.orders", ORDERS, "eu.orders")
    sources.admit_truncate("lake.orders", truncate, "eu.orders", 9)
    if not merged:
        sources.admit_truncate("lake.orders", truncate, "orders", 9)
        sources.admit("lake.orders", TableId("us", "shop", "public", "orders"), "us.orders")
    with pytest.raises(Fatal, match=r"lake.orders: eu.orders-0@7 truncates eu.shop.public.orders.*skipped"):
        sources.admit_truncate("lake.orders", truncate, "orders", 9)


def test_a_truncate_without_a_position_needs_a_topic_of_one_partition() -> None:
    """A truncate without a position in a topic of several partitions is refused, because nothing orders it."""
    sources = TableSources(shared=False)
    truncate = Truncate(ORDERS, RowVersion(b"", "eu.orders", 1, 7, 0))
    sources.admit_truncate("lake.orders", truncate, "eu.orders", 1)
    with pytest.raises(Fatal, match=r"lake.orders: eu.orders-1@7 .* has 3 partitions.*PATCH.*skipped"):
        sources.admit_truncate("lake.orders", truncate, "eu.orders", 3)


SHOP = TableSource("shop", "connect-shop", "eu.orders", ORDERS)
UNNAMED = TableSource("shop", "connect-shop", "eu.orders", TableId("", "", "", "eu.orders"))
_OTHER_ROWS = TableId("us", "shop", "public", "orders")


@pytest.mark.parametrize(
    ("stored", "alone", "shared"),
    [
        (SHOP, True, True),
        (UNNAMED, True, True),
        (replace(SHOP, topic="eu.orders.2"), True, True),  # the source table's rows in two topics
        (replace(SHOP, table=_OTHER_ROWS), False, True),
        (replace(UNNAMED, topic="us.orders"), False, True),  # flattened records do not name their table
        (replace(SHOP, connector="renamed"), True, True),  # in the same group: one of both reads a topic
        (replace(SHOP, connector="other", group="connect-other"), False, False),
        (replace(UNNAMED, connector="other", group="connect-other"), False, False),
        (replace(SHOP, connector="other", group="connect-other", topic="eu.orders.2"), False, True),
        (replace(SHOP, connector="other", group="", topic="us.orders", table=_OTHER_ROWS), False, True),
        (replace(SHOP, connector="other", group=""), False, False),
    ],
)
def test_who_else_may_write_a_table(stored: TableSource, alone: bool, shared: bool) -> None:
    """Another source needs keys that are unique across all; a topic that another connector writes is refused always."""
    for source in (SHOP, replace(SHOP, group="")):
        if stored.group == SHOP.group and stored.connector != SHOP.connector and not source.group:
            continue  # without a group, a renamed connector is another one
        assert rivals([stored], source, shared=False) == ([] if alone else [stored])
        assert rivals([stored], source, shared=True) == ([] if shared else [stored])
