"""Tests of the router of several databases, which is one row source."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.task.reselect_harness import TABLE, Lake, P, catalog, database, u

from headrace.config.reselect import reselect_options
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.ports import Connections
from headrace.runtime.pipeline.database_router import DatabaseRouter
from headrace_dev.memory import MemoryRowSource

SHOP, CRM = DatabaseOptions("a", dbname="inventory"), DatabaseOptions("b", dbname="crm")


def holding(table: TableId, big: str) -> MemoryRowSource:
    """Return a database whose table has one row with this value."""
    source = database()
    source.add(replace(catalog(), table=table), source.schema(catalog()), [{"id": 1, "big": big, "doc": None}])
    return source


def test_a_table_is_read_from_the_database_of_its_events() -> None:
    """The router reads each of two tables of the same name from the database of its events."""
    other = replace(TABLE, database="crm")
    router = DatabaseRouter([(CRM, holding(other, "of crm")), (SHOP, holding(TABLE, "of shop"))])
    options = ReselectOptions(null_values=False)
    shop, crm = Lake(router, options), Lake(router, options, table=other)  # type: ignore[arg-type] # any RowSource
    shop.batch(u(1, big=P))
    crm.batch(u(1, big=P))
    assert (shop.big(), crm.big()) == ("of shop", "of crm")


def test_the_source_name_distinguishes_databases_of_one_name() -> None:
    """``source.name`` limits a database to one source connector. Without it the database name alone is compared."""
    named = replace(SHOP, source_name="eu")
    assert named.holds(replace(TABLE, name="eu"))
    assert not named.holds(replace(TABLE, name="us"))
    assert SHOP.holds(replace(TABLE, name="us"))
    assert replace(SHOP, source_db="stock").holds(replace(TABLE, database="stock"))


def test_table_of_no_database_is_not_read() -> None:
    """A table of no configured database has no catalog entry, and a read of its schema fails."""
    router = DatabaseRouter([(CRM, holding(TABLE, "of crm"))])
    assert router.catalog(TABLE) is None
    with pytest.raises(Fatal, match="none of reselect"):
        router.schema(catalog())


def test_check_and_close_include_all_databases() -> None:
    """The check fails if one database is unavailable. The router closes all databases."""
    shop, crm = holding(TABLE, ""), holding(TABLE, "")
    router = DatabaseRouter([(SHOP, shop), (CRM, crm)])
    crm.failures.append(Retriable("away"))
    with pytest.raises(Retriable, match="away"):
        router.check()
    router.close()
    assert shop.closed
    assert crm.closed


def test_connections_of_all_databases_are_added_up() -> None:
    """The router reports the sum of the connections of all databases, for one gauge per task."""
    shop, crm = holding(TABLE, ""), holding(TABLE, "")
    shop.connected, crm.connected = Connections(1, 2, 0), Connections(3, 0, 1)
    assert DatabaseRouter([(SHOP, shop), (CRM, crm)]).connections() == Connections(4, 2, 1)


def test_databases_are_named_in_the_configuration() -> None:
    """Options with a database's name override the options without a name, which apply to all databases."""
    options = reselect_options(
        {
            "reselect.databases": "shop, crm",
            "reselect.database.user": "reader",
            "reselect.database.shop.hostname": "a",
            "reselect.database.shop.dbname": "inventory",
            "reselect.database.crm.hostname": "b",
            "reselect.database.crm.dbname": "crm",
            "reselect.database.crm.user": "other",
            "reselect.database.crm.source.name": "eu",
        }
    )
    assert [(each.hostname, each.user, each.source_name) for each in options.databases] == [
        ("a", "reader", ""),
        ("b", "other", "eu"),
    ]


def test_a_named_database_needs_a_hostname() -> None:
    """The error of a named database without a hostname names the option."""
    with pytest.raises(ConfigError, match="hostname") as caught:
        reselect_options({"reselect.databases": "shop", "reselect.database.shop.dbname": "x"})
    assert caught.value.key == "reselect.database.shop.hostname"
