"""Oracle as a row source, against a fake at python-oracledb's contract (``tests/fake_oracle``)."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from decimal import Decimal

import pytest
from contracts.row_source_suite import TABLE, RowSourceSuite
from fake_oracle import sql
from fake_oracle.driver import FakeDriver
from fake_oracle.server import OracleColumn, OracleServer, OracleTable
from unit.sql.oracle_tables import DATABASE, NOTE, ORDERS_KEY, orders_request, orders_server, request, row_source

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import UNREADABLE
from headrace.ports import Connections
from headrace_connectors.sql import OracleRowSource, oracle_catalog
from headrace_connectors.sql.oracle_scan import CURRENT_SCN
from headrace_connectors.sql.oracle_server import ROLE
from headrace_connectors.sql.oracle_session import SETTINGS

ORDER = {"Id": Decimal(1), "region": "nord", "blob": None, "price": None}


class TestOracleRowSource(RowSourceSuite):
    """The suite of row sources; Oracle's large objects have no empty value where they may be null."""

    empty_text = None
    empty_octets = None

    @pytest.fixture
    def source(self) -> OracleRowSource:
        """A source whose table holds the suite's rows."""
        return row_source(orders_server())


@pytest.fixture
def server() -> OracleServer:
    """A server whose order 1 has a note as of SCN 110, and another one as of SCN 120."""
    server = orders_server()
    for note in ("first", "second"):
        server.commit("app", "Orders", {**ORDER, "note": note})
    return server


def catalog_of(source: OracleRowSource, table: TableId = TABLE) -> CatalogTable:
    catalog = source.catalog(table)
    assert catalog is not None
    return catalog


# -- as of SCN --------------------------------------------------------------------------------------------------------


def test_rows_are_read_as_of_their_commit(server: OracleServer) -> None:
    """S12: the value that the event's transaction left, not a later one."""
    source = row_source(server)
    answer = source.fetch(catalog_of(source), orders_request(110))
    assert answer.values[0] == ["first"]
    assert answer.proven


def test_batch_reads_as_of_its_highest_commit(server: OracleServer) -> None:
    """One read for all rows: what every event's transaction is in."""
    source = row_source(server)
    answer = source.fetch(catalog_of(source), orders_request(110, 120, 110))
    assert answer.values[0] == ["second"] * 3


def test_without_commit_scn_the_current_state_is_read_and_not_proven(server: OracleServer) -> None:
    """An event that does not say when it was committed may be newer than any SCN of the others."""
    source = row_source(server)
    answer = source.fetch(catalog_of(source), orders_request(110, -1))
    assert answer.values[0] == ["second"] * 2
    assert not answer.proven


def test_scn_and_keys_are_never_literals(server: OracleServer) -> None:
    """DBZ-7479: a statement with a literal is another cursor each time."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.statements.clear()
    for scn in (110, 120):
        source.fetch(catalog, orders_request(scn))
    (first, binds), (second, _) = server.statements
    assert first == second
    assert binds["scn"] == 110
    assert not re.search("nord|110", first)


@pytest.mark.parametrize(("keys", "slots"), [(1, [1]), (2, [8]), (9, [64]), (65, [512]), (513, [512, 1])])
def test_numbers_of_keys_are_padded(server: OracleServer, keys: int, slots: list[int]) -> None:
    """A table and column set make four statements at most, each for a number of keys; every row is answered."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.statements.clear()
    answer = source.fetch(catalog, orders_request(*[120] * keys))
    assert [text.count("FROM DUAL") for text, _ in server.statements] == slots
    assert answer.values[0] == ["second"] * keys


@pytest.mark.parametrize("code", ["ORA-01555", "ORA-22924", "ORA-01466", "ORA-08180", "ORA-08181"])
@pytest.mark.parametrize("where", ["execute", "fetch"])
def test_current_state_is_read_where_the_past_is_gone(server: OracleServer, code: str, where: str) -> None:
    """Undo, large objects, DDL: counted by code; the failure may come while a large object is read (D5)."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.statements.clear()
    server.failures.append((where, f"{code}: cannot be read"))
    answer = source.fetch(catalog, orders_request(110))
    assert answer.values[0] == ["second"]
    assert answer.flashback_fallbacks == {code: 1}
    assert [("AS OF SCN" in text) for text, _ in server.statements][-1] is False
    assert answer.proven


def test_fallback_quotes_as_the_first_read_does(server: OracleServer) -> None:
    """dbz#1750: mixed-case names are found in the fallback too; the two statements differ in the SCN only."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.statements.clear()
    server.failures.append(("fetch", "ORA-01555: snapshot too old"))
    source.fetch(catalog, orders_request(110))
    (flashback, _), (current, _) = server.statements
    assert flashback.replace(" AS OF SCN :scn", "") == current


def test_standby_behind_the_commit_is_no_answer(server: OracleServer) -> None:
    """N3: its current state would be older than the event, so the read is tried again."""
    server.role = "PHYSICAL STANDBY"
    source = row_source(server, read_from="replica")
    source.check()
    with pytest.raises(Retriable, match="ORA-08181"):
        source.fetch(catalog_of(source), orders_request(130))


def test_primary_answers_for_a_standby_that_is_behind(server: OracleServer) -> None:
    """N3: ``hostname`` lists both; events without a commit SCN are never asked of a standby."""
    standby = orders_server()
    standby.role = "PHYSICAL STANDBY"
    database = replace(DATABASE, hostname="standby, primary")
    options = ReselectOptions(database=database, read_from="replica")
    source = OracleRowSource(options, FakeDriver(server, standby=standby))
    catalog = catalog_of(source)
    for scn in (120, -1):
        assert source.fetch(catalog, orders_request(scn)).values[0] == ["second"]
    assert len([text for text, _ in standby.statements if "FROM DUAL" in text]) == 1


def test_standby_alone_cannot_answer_without_scn(server: OracleServer) -> None:
    """Its current state may be older than the event; waiting does not help."""
    server.role = "PHYSICAL STANDBY"
    source = row_source(server, read_from="replica")
    with pytest.raises(Fatal, match="list the primary"):
        source.fetch(catalog_of(source), orders_request(-1))


def test_after_a_switchover_the_other_server_answers(server: OracleServer) -> None:
    """The role is asked of every new connection."""
    old = orders_server()
    old.role = "PHYSICAL STANDBY"
    database = replace(DATABASE, hostname="old, new")
    source = OracleRowSource(ReselectOptions(database=database), FakeDriver(server, old=old))
    source.check()
    assert source.fetch(catalog_of(source), orders_request(120)).values[0] == ["second"]


def test_long_columns_do_not_spoil_the_others() -> None:
    """A LONG may stand in no expression (ORA-00997), so it is not asked for; the cell stays open."""
    server = OracleServer()
    columns = (
        OracleColumn("ID", "NUMBER", 9, 0),
        OracleColumn("OLD", "LONG"),
        OracleColumn("DOC", "CLOB", length=4000),
    )
    server.add(OracleTable("APP", "T", columns, ("ID",)), [{"ID": Decimal(1), "OLD": "x", "DOC": "d"}])
    source = row_source(server)
    catalog = catalog_of(source, TableId("ora", "SHOP", "APP", "T"))
    text = Schema("string", True)
    answer = source.fetch(catalog, request(catalog.table, {"ID": (Schema("int32"), [1])}, {"OLD": text, "DOC": text}))
    assert answer.values[0][0] is UNREADABLE
    assert answer.values[1] == ["d"]
    assert '"OLD"' not in server.statements[-1][0]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["ORA-00942", "ORA-00904", "ORA-01031"])
def test_permanent_errors_are_refusals(server: OracleServer, code: str) -> None:
    """``reselect.md`` section 4.4: repeating them is of no use."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.failures.append(("execute", f"{code}: nord is not to be shown"))
    with pytest.raises(Fatal, match=code) as refused:
        source.fetch(catalog, orders_request(110))
    assert "nord" not in str(refused.value)


@pytest.mark.parametrize("code", ["ORA-03113", "ORA-03114", "ORA-03135", "ORA-12541", "ORA-01089"])
def test_lost_connection_is_dropped_with_its_statements(server: OracleServer, code: str) -> None:
    """dbz#2204: the next read has another connection."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=DATABASE), driver)
    catalog = catalog_of(source)
    server.failures.append(("execute", f"{code}: end-of-file on communication channel"))
    with pytest.raises(Retriable):
        source.fetch(catalog, orders_request(110))
    assert source.fetch(catalog, orders_request(110)).values[0] == ["first"]
    (pool,) = driver.pools
    assert (pool.made, pool.dropped, pool.busy) == (2, 1, 0)


def test_time_out_keeps_the_connection(server: OracleServer) -> None:
    """A call that took too long is tried again on the same connection."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=DATABASE), driver)
    catalog = catalog_of(source)
    server.failures.append(("fetch", "DPY-4024: call timeout of 30000 ms exceeded"))
    with pytest.raises(Retriable):
        source.fetch(catalog, orders_request(110))
    assert (driver.pools[0].dropped, driver.pools[0].busy) == (0, 0)


def test_connections_are_told(server: OracleServer) -> None:
    """None before they are needed and after they are closed; one that was used waits for the next."""
    source = row_source(server)
    assert source.connections() == Connections()
    source.catalog(TABLE)
    assert source.connections() == Connections(idle=1)
    source.close()
    assert source.connections() == Connections()


def test_dead_database_is_left_alone(server: OracleServer) -> None:
    """``reselect.md`` section 7.4: after some failures no connection is tried for a while."""
    source = row_source(server)
    server.failures += [("connect", "DPY-6005: cannot connect to database")] * 9
    for _ in range(9):
        with pytest.raises(Retriable):
            source.catalog(TABLE)
    assert len(server.failures) == 4
    assert source.connections() == Connections(left_alone=1)


def test_key_of_several_rows_does_not_disturb_the_connection(server: OracleServer) -> None:
    """A refusal that is ours gives the connection back."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=DATABASE), driver)
    catalog = catalog_of(source)
    server.commit("app", "Orders", ORDER, ORDER)
    with pytest.raises(Fatal, match="several rows"):
        source.fetch(catalog, orders_request(130))
    assert driver.pools[0].busy == 0


# -- start ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["ORA-01017", "ORA-28000", "ORA-28001", "ORA-01045", "DPY-3001"])
def test_wrong_settings_are_told_at_start(server: OracleServer, code: str) -> None:
    """A password, an account, an encryption that thin mode has not."""
    server.failures.append(("connect", f"{code}: refused"))
    with pytest.raises(ConfigError, match=code):
        row_source(server).check()


def test_a_closed_port_is_retried(server: OracleServer) -> None:
    """The task retries a connection that the real driver reports as refused."""
    database = replace(DATABASE, hostname="127.0.0.1", port=1)
    with pytest.raises(Retriable, match=r"127[.]0[.]0[.]1:1 "):
        OracleRowSource(ReselectOptions(database=database)).check()


def test_standby_is_refused_as_primary(server: OracleServer) -> None:
    """A standby answers for the past only."""
    server.role = "PHYSICAL STANDBY"
    with pytest.raises(ConfigError, match="standby"):
        row_source(server).check()


def test_old_server_is_refused() -> None:
    """Collations are in the dictionary since 12.2."""
    with pytest.raises(ConfigError, match=r"12[.]2"):
        row_source(OracleServer(version="12.1.0.2.0")).check()


def test_missing_flashback_grant_is_told_with_its_remedy(server: OracleServer) -> None:
    """Without it every read of the past would fail, one by one."""
    server.tables["app", "Orders"].may_flashback = False
    with pytest.raises(ConfigError, match=re.escape('GRANT SELECT, FLASHBACK ON "app"."Orders" TO "READER"')):
        row_source(server).catalog(TABLE)


def test_table_without_past_is_no_missing_grant(server: OracleServer) -> None:
    """A table made a moment ago has no state to look back at."""
    server.tables["app", "Orders"].too_young = True
    assert row_source(server).catalog(TABLE) is not None


def test_table_that_may_not_be_seen_is_logged(server: OracleServer, caplog: pytest.LogCaptureFixture) -> None:
    """The dictionary does not tell it from one that is not there."""
    server.tables["app", "Orders"].may_select = False
    with caplog.at_level(logging.WARNING):
        assert row_source(server).catalog(TABLE) is None
    assert "app.Orders does not exist, or the user may not SELECT from it" in caplog.text


def test_session_is_what_the_texts_rely_on(server: OracleServer) -> None:
    """UTC, the Gregorian calendar, binary comparison; bounded in time, connections and statements."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=replace(DATABASE, pool_max_size=3)), driver)
    catalog_of(source)
    connection = driver.pools[0].acquire()
    assert connection.settings == [SETTINGS]
    assert connection.call_timeout == 30_000
    assert (driver.parameters[-1]["max"], driver.parameters[-1]["min"]) == (3, 0)
    assert driver.parameters[-1]["service_name"] == "SHOP"


# -- the dictionary ---------------------------------------------------------------------------------------------------


def test_names_are_exact(server: OracleServer) -> None:
    """Case makes another table: ORDERS is not Orders."""
    server.add(OracleTable("app", "ORDERS", (OracleColumn("ID", "NUMBER", 9, 0),), ("ID",)))
    source = row_source(server)
    assert [column.name for column in catalog_of(source, replace(TABLE, table="ORDERS")).columns] == ["ID"]
    assert len(catalog_of(source).columns) == 5


def test_key_is_the_primary_key_in_its_order(server: OracleServer) -> None:
    """DBZ-7729: the identity comes from the dictionary, not from the message key."""
    catalog = catalog_of(row_source(server))
    assert ([part.name for part in catalog.key], catalog.primary_key) == (["Id", "region"], True)


def test_without_primary_key_a_unique_index_that_is_never_null_counts() -> None:
    """The one whose columns may be null does not identify a row."""
    columns = (OracleColumn("A", "NUMBER", 9, 0, not_null=True), OracleColumn("B", "NUMBER", 9, 0))
    server = OracleServer()
    server.add(OracleTable("APP", "T", columns, unique={"I1": ("B",), "I2": ("A",)}))
    catalog = catalog_of(row_source(server), TableId("ora", "SHOP", "APP", "T"))
    assert ([part.name for part in catalog.key], catalog.primary_key) == (["A"], False)


def test_ddl_changes_the_fingerprint(server: OracleServer) -> None:
    """``LAST_DDL_TIME``: a column that was dropped and made again looks the same otherwise."""
    source = row_source(server)
    before = catalog_of(source)
    server.tables["app", "Orders"].ddl_time = "2024-01-02 00:00:00"
    assert catalog_of(source).fingerprint != before.fingerprint


def test_case_insensitive_collation_of_a_key_is_known() -> None:
    """Keys that are equal to the database must not be two rows of the cache."""
    server = OracleServer()
    server.add(OracleTable("APP", "T", (OracleColumn("K", "VARCHAR2", collation="BINARY_CI", length=9),), ("K",)))
    assert not catalog_of(row_source(server), TableId("ora", "SHOP", "APP", "T")).key[0].deterministic


@pytest.mark.parametrize("statement", [*oracle_catalog.STATEMENTS, ROLE, CURRENT_SCN])
def test_statements_are_oracles(statement: str) -> None:
    """sqlglot's Oracle dialect reads every statement of the dictionary; those of tables pass it in every other test."""
    assert sql.parse(statement) is not None


def test_lost_key_column_is_refused(server: OracleServer) -> None:
    """A table whose key column was dropped since."""
    source = row_source(server)
    catalog = catalog_of(source)
    asked = request(TABLE, {"gone": (Schema("int32"), [1]), **ORDERS_KEY}, NOTE)
    with pytest.raises(Fatal, match="gone"):
        source.fetch(catalog, asked)
