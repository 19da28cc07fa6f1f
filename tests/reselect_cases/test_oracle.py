"""Cases of Oracle: large objects that change without an event, and standbys (``reselect.md`` sections 2.3 and 7.3).

Every test is named after its case; ``take_out.py`` shows that it fails without its rule. N3 needs an Oracle standby:
here a fake of the driver's interface answers like one.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from contracts.row_source_suite import TABLE as ORDERS
from fake_oracle.driver import FakeDriver
from support.sources.oracle_tables import DATABASE, orders_request, orders_server, row_source
from support.task.reselect_harness import CACHE, Lake, P, c, catalog, database, r, u

from headrace.core.model.catalog import Dialect, HandlingModes, SqlType
from headrace.core.model.errors import Retriable
from headrace.core.reselect.options import ReselectOptions
from headrace_connectors.sql import OracleRowSource
from headrace_dev.memory import MemoryRowSource

LOB_ENABLED = replace(CACHE, modes=HandlingModes(lob_enabled=True))


def clobs(big: str | None) -> MemoryRowSource:
    """An Oracle database whose table has one row with this CLOB."""
    rows = [{"id": 1, "big": big, "doc": None}]
    source = database(*rows)
    clob = SqlType(0, "SYS", "CLOB")
    known = replace(catalog(type=clob, attstorage="x"), dialect=Dialect.ORACLE)
    source.add(known, source.schema(known), rows)
    return source


def test_s01b_null_of_an_insert_is_not_remembered() -> None:
    """S1b: without ``lob.enabled`` an insert has a null for every CLOB; a later placeholder queries the database."""
    lake = Lake(clobs("A"), CACHE)
    lake.each(c(1, big=None), u(1, big=P))
    assert (lake.big(), lake.queries) == ("A", 1)


def test_s01b_with_lob_enabled_a_null_is_one() -> None:
    """S1b: with it every change has an event, so the null is a value and needs no query."""
    lake = Lake(clobs("never asked for"), LOB_ENABLED)
    lake.each(c(1, big=None), u(1, big=P))
    assert (lake.big(), lake.queries) == (None, 0)


def test_s20_large_object_that_changed_without_an_event() -> None:
    """S20: the column is not cached, so that the next event of the row gets the changed value."""
    lake = Lake(clobs("B"), CACHE)
    lake.each(r(1, big="A"), u(1, big=P))
    assert lake.big() == "B"
    told = Lake(clobs("B"), LOB_ENABLED)
    told.each(r(1, big="A"), u(1, big=P))
    assert (told.big(), told.queries) == ("A", 0)


def test_n03_standby_behind_the_commit_is_no_answer() -> None:
    """N3: its state would be older than the event, so the read is retried there or sent to the primary."""
    server, standby = orders_server(), orders_server()
    server.commit("app", "Orders", {"Id": Decimal(1), "region": "nord", "note": "now", "blob": None, "price": None})
    standby.role = "PHYSICAL STANDBY"
    alone = row_source(standby, read_from="replica")
    asked = orders_request(server.scn)
    known = alone.catalog(ORDERS)
    assert known is not None
    with pytest.raises(Retriable, match="ORA-08181"):
        alone.fetch(known, asked)
    both = replace(DATABASE, hostname="standby, primary")
    source = OracleRowSource(ReselectOptions(database=both, read_from="replica"), FakeDriver(server, standby=standby))
    assert source.fetch(known, asked).values[0] == ["now"]
