"""Tests of the source database of a task: cached catalog entries, and several databases as one row source."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.task.reselect_harness import NO_CACHE, TABLE, TEXT, Clock, Lake, P, catalog, database, u

from headrace.config.reselect import reselect_options
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.ports import Connections
from headrace.runtime.pipeline.source_database import DatabaseRouter, NoMetrics, SourceCatalog, SourceReader
from headrace_dev.memory import MemoryRowSource

BEFORE = catalog()
AFTER = catalog(not_null=True)
NARROW = Schema("struct", fields=(Field("big", TEXT),))


class CountingSource(MemoryRowSource):
    """A database that counts the reads of its catalog, and that can fail."""

    reads = 0
    down = False

    def catalog(self, table: TableId) -> CatalogTable | None:
        self.reads += 1
        if self.down:
            raise Retriable("the database is down")
        return super().catalog(table)


@pytest.fixture
def source() -> CountingSource:
    found = CountingSource()
    found.add(BEFORE, database().schema(BEFORE))
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tables(source: CountingSource, clock: Clock) -> SourceCatalog:
    options = replace(NO_CACHE, errors_retry_timeout_ms=0)
    return SourceCatalog(SourceReader(source, options, NoMetrics(), clock), 1000, clock)


def test_an_entry_is_read_again_after_the_interval(source: CountingSource, tables: SourceCatalog, clock: Clock) -> None:
    """An entry is read again after the refresh interval. Before that the database is not queried."""
    assert tables.table(TABLE) == BEFORE
    source.add(AFTER, NARROW)
    assert (tables.table(TABLE), source.reads) == (BEFORE, 1)
    clock.now = 1.0
    assert (tables.table(TABLE), source.reads) == (AFTER, 2)


def test_a_discarded_entry_is_read_again_at_once(source: CountingSource, tables: SourceCatalog) -> None:
    """An entry that was discarded after an ALTER TABLE or a failed read is read again at once."""
    tables.table(TABLE)
    source.add(AFTER, NARROW)
    tables.discard(TABLE)
    assert tables.table(TABLE) == AFTER


def test_an_entry_outlives_its_interval_while_the_database_is_down(
    source: CountingSource, tables: SourceCatalog, clock: Clock
) -> None:
    """If the database is down, an expired entry is used. Without an earlier entry the error is raised."""
    source.down = True
    with pytest.raises(Retriable):
        tables.table(TABLE)
    source.down = False
    tables.table(TABLE)
    source.down, clock.now = True, 1.0
    assert tables.table(TABLE) == BEFORE


def test_the_current_schema_is_read_once_per_chunk(source: CountingSource, tables: SourceCatalog) -> None:
    """The current schema is read once per chunk, because an earlier entry can be older than the chunk's records."""
    tables.begin_chunk()
    tables.schema_now(TABLE)
    source.add(AFTER, NARROW)
    assert (tables.schema_now(TABLE), source.reads) == (NARROW, 1)
    tables.begin_chunk()
    assert (tables.schema_now(TABLE), tables.schema_now(TABLE), source.reads) == (NARROW, NARROW, 2)
    assert tables.table(TABLE) == AFTER


def test_the_current_schema_is_never_an_earlier_one(source: CountingSource, tables: SourceCatalog) -> None:
    """If the database is down, the read of the current schema fails instead of returning an earlier one."""
    tables.table(TABLE)
    tables.begin_chunk()
    source.down = True
    with pytest.raises(Retriable):
        tables.schema_now(TABLE)


def test_without_a_database_there_are_no_entries(clock: Clock) -> None:
    """Without a database the catalog returns neither a table nor a schema."""
    tables = SourceCatalog(None, 1000, clock)
    assert (tables.table(TABLE), tables.schema(TABLE), tables.schema_now(TABLE)) == (None, None, None)


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
