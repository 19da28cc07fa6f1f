"""The row source for Oracle, against a fake of python-oracledb (``tests/fake_oracle``)."""

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
from support.clock import Clock
from support.sources.oracle_tables import DATABASE, NOTE, ORDERS_KEY, orders_request, orders_server, request, row_source

from headrace.core.doctor.clocks import source_findings
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import UNREADABLE
from headrace.ports import Connections
from headrace_connectors.sql import OracleRowSource, oracle_catalog
from headrace_connectors.sql.oracle import CLOCK
from headrace_connectors.sql.oracle_server import ROLE, SETTINGS
from headrace_connectors.sql.oracle_tables import CURRENT_SCN

ORDER = {"Id": Decimal(1), "region": "nord", "blob": None, "price": None}


class TestOracleRowSource(RowSourceSuite):
    """The suite of row sources; an empty large object of a nullable column is null in Oracle."""

    empty_text = None
    empty_octets = None

    @pytest.fixture
    def source(self) -> OracleRowSource:
        """Return a source whose table holds the suite's rows."""
        return row_source(orders_server())


@pytest.fixture
def server() -> OracleServer:
    """Return a server whose order 1 has one note as of SCN 110 and another as of SCN 120."""
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
    """The source reads the value as of the event's commit SCN, not a later one (S12)."""
    source = row_source(server)
    answer = source.fetch(catalog_of(source), orders_request(110))
    assert answer.values[0] == ["first"]
    assert answer.proven


def test_batch_reads_as_of_its_highest_commit(server: OracleServer) -> None:
    """A request is one read as of the highest commit SCN of its events."""
    source = row_source(server)
    answer = source.fetch(catalog_of(source), orders_request(110, 120, 110))
    assert answer.values[0] == ["second"] * 3


def test_without_commit_scn_the_current_state_is_read_and_not_proven(server: OracleServer) -> None:
    """A request with an event without a commit SCN reads the current state, which is not proven."""
    source = row_source(server)
    answer = source.fetch(catalog_of(source), orders_request(110, -1))
    assert answer.values[0] == ["second"] * 2
    assert not answer.proven


def test_scn_and_keys_are_never_literals(server: OracleServer) -> None:
    """SCNs and keys are binds, so that statements share one cursor (DBZ-7479)."""
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
    """Keys are padded to 1, 8, 64 or 512 slots, and every row is returned."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.statements.clear()
    answer = source.fetch(catalog, orders_request(*[120] * keys))
    assert [text.count("FROM DUAL") for text, _ in server.statements] == slots
    assert answer.values[0] == ["second"] * keys


@pytest.mark.parametrize("code", ["ORA-01555", "ORA-22924", "ORA-01466", "ORA-08180", "ORA-08181"])
@pytest.mark.parametrize("where", ["execute", "fetch"])
def test_current_state_is_read_if_flashback_fails(server: OracleServer, code: str, where: str) -> None:
    """The source reads the current state after an error of execution or fetch (D5), and counts it by code."""
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
    """The statement for the current state differs from the flashback query only in AS OF SCN (dbz#1750)."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.statements.clear()
    server.failures.append(("fetch", "ORA-01555: snapshot too old"))
    source.fetch(catalog, orders_request(110))
    (flashback, _), (current, _) = server.statements
    assert flashback.replace(" AS OF SCN :scn", "") == current


def test_a_standby_behind_the_commit_is_retried(server: OracleServer) -> None:
    """A standby that has not applied the commit raises Retriable, because its current state is older (N3)."""
    server.role = "PHYSICAL STANDBY"
    source = row_source(server, read_from="replica")
    source.check()
    with pytest.raises(Retriable, match="ORA-08181"):
        source.fetch(catalog_of(source), orders_request(130))


def test_primary_answers_for_a_standby_that_is_behind(server: OracleServer) -> None:
    """The primary is queried if the standby has not applied the commit or an event has no commit SCN (N3)."""
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
    """A standby without a primary raises Fatal for events without a commit SCN."""
    server.role = "PHYSICAL STANDBY"
    source = row_source(server, read_from="replica")
    with pytest.raises(Fatal, match="list the primary"):
        source.fetch(catalog_of(source), orders_request(-1))


def test_after_a_switchover_the_other_server_answers(server: OracleServer) -> None:
    """The source queries the role of each new connection and uses the server that is the primary."""
    old = orders_server()
    old.role = "PHYSICAL STANDBY"
    database = replace(DATABASE, hostname="old, new")
    source = OracleRowSource(ReselectOptions(database=database), FakeDriver(server, old=old))
    source.check()
    assert source.fetch(catalog_of(source), orders_request(120)).values[0] == ["second"]


def test_long_columns_are_unreadable() -> None:
    """A LONG column, which no expression can contain (ORA-00997), is not selected and its cell is UNREADABLE."""
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
def test_permanent_errors_are_fatal(server: OracleServer, code: str) -> None:
    """An error that a retry cannot resolve raises Fatal without the values of the message."""
    source = row_source(server)
    catalog = catalog_of(source)
    server.failures.append(("execute", f"{code}: nord is not to be shown"))
    with pytest.raises(Fatal, match=code) as refused:
        source.fetch(catalog, orders_request(110))
    assert "nord" not in str(refused.value)


@pytest.mark.parametrize("code", ["ORA-03113", "ORA-03114", "ORA-03135", "ORA-12541", "ORA-01089"])
def test_a_lost_connection_is_dropped(server: OracleServer, code: str) -> None:
    """A lost connection is dropped from the pool, and the next read opens another one (dbz#2204)."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=DATABASE), driver)
    catalog = catalog_of(source)
    server.failures.append(("execute", f"{code}: end-of-file on communication channel"))
    with pytest.raises(Retriable):
        source.fetch(catalog, orders_request(110))
    assert source.fetch(catalog, orders_request(110)).values[0] == ["first"]
    (pool,) = driver.pools
    assert (pool.made, pool.dropped, pool.busy) == (2, 1, 0)


def test_a_call_timeout_keeps_the_connection(server: OracleServer) -> None:
    """A call that exceeds its timeout raises Retriable and returns its connection to the pool."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=DATABASE), driver)
    catalog = catalog_of(source)
    server.failures.append(("fetch", "DPY-4024: call timeout of 30000 ms exceeded"))
    with pytest.raises(Retriable):
        source.fetch(catalog, orders_request(110))
    assert (driver.pools[0].dropped, driver.pools[0].busy) == (0, 0)


def test_connections_are_reported(server: OracleServer) -> None:
    """The source reports no connection before the first query and after ``close``, and an idle one between."""
    source = row_source(server)
    assert source.connections() == Connections()
    source.catalog(TABLE)
    assert source.connections() == Connections(idle=1)
    source.close()
    assert source.connections() == Connections()


def test_an_unreachable_database_opens_the_circuit_breaker(server: OracleServer) -> None:
    """The source tries no connection for a while after repeated failures (``reselect.md`` section 7.4)."""
    source = row_source(server)
    server.failures += [("connect", "DPY-6005: cannot connect to database")] * 9
    for _ in range(9):
        with pytest.raises(Retriable):
            source.catalog(TABLE)
    assert len(server.failures) == 4
    assert source.connections() == Connections(left_alone=1)


def test_a_key_of_several_rows_returns_the_connection(server: OracleServer) -> None:
    """A key that selects several rows raises Fatal and returns the connection to the pool."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=DATABASE), driver)
    catalog = catalog_of(source)
    server.commit("app", "Orders", ORDER, ORDER)
    with pytest.raises(Fatal, match="several rows"):
        source.fetch(catalog, orders_request(130))
    assert driver.pools[0].busy == 0


# -- start ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["ORA-01017", "ORA-28000", "ORA-28001", "ORA-01045", "DPY-3001"])
def test_wrong_settings_are_config_errors_at_start(server: OracleServer, code: str) -> None:
    """A wrong password, a locked account and encryption that thin mode does not support raise ConfigError."""
    server.failures.append(("connect", f"{code}: refused"))
    with pytest.raises(ConfigError, match=code):
        row_source(server).check()


def test_a_closed_port_is_retried(server: OracleServer) -> None:
    """A refused TCP connection of the real driver raises Retriable."""
    database = replace(DATABASE, hostname="127.0.0.1", port=1)
    with pytest.raises(Retriable, match=r"127[.]0[.]0[.]1:1 "):
        OracleRowSource(ReselectOptions(database=database)).check()


def test_standby_is_refused_as_primary(server: OracleServer) -> None:
    """``check`` refuses a standby if ``read_from`` is not replica."""
    server.role = "PHYSICAL STANDBY"
    with pytest.raises(ConfigError, match="standby"):
        row_source(server).check()


def test_old_server_is_refused() -> None:
    """A server before 12.2 is refused, because its dictionary has no collations."""
    with pytest.raises(ConfigError, match=r"12[.]2"):
        row_source(OracleServer(version="12.1.0.2.0")).check()


def test_a_missing_flashback_grant_is_a_config_error(server: OracleServer) -> None:
    """The error contains the GRANT statement that the operator has to execute."""
    server.tables["app", "Orders"].may_flashback = False
    with pytest.raises(ConfigError, match=re.escape('GRANT SELECT, FLASHBACK ON "app"."Orders" TO "READER"')):
        row_source(server).catalog(TABLE)


def test_a_new_table_is_no_missing_grant(server: OracleServer) -> None:
    """A table that is too new for a flashback query is not reported as a missing grant."""
    server.tables["app", "Orders"].too_young = True
    assert row_source(server).catalog(TABLE) is not None


def test_an_inaccessible_table_is_logged(server: OracleServer, caplog: pytest.LogCaptureFixture) -> None:
    """A table without the SELECT privilege has no catalog, and a warning names both possible causes."""
    server.tables["app", "Orders"].may_select = False
    with caplog.at_level(logging.WARNING):
        assert row_source(server).catalog(TABLE) is None
    assert "app.Orders does not exist, or the user may not SELECT from it" in caplog.text


def test_session_settings(server: OracleServer) -> None:
    """A session has the required NLS and time zone settings, a call timeout and a bounded pool."""
    driver = FakeDriver(server)
    source = OracleRowSource(ReselectOptions(database=replace(DATABASE, pool_max_size=3)), driver)
    catalog_of(source)
    connection = driver.pools[0].acquire()
    assert connection.settings == [SETTINGS]
    assert connection.call_timeout == 30_000
    assert (driver.parameters[-1]["max"], driver.parameters[-1]["min"]) == (3, 0)
    assert driver.parameters[-1]["service_name"] == "SHOP"


# -- the dictionary ---------------------------------------------------------------------------------------------------


def test_table_names_are_case_sensitive(server: OracleServer) -> None:
    """The tables ORDERS and Orders have different catalogs."""
    server.add(OracleTable("app", "ORDERS", (OracleColumn("ID", "NUMBER", 9, 0),), ("ID",)))
    source = row_source(server)
    assert [column.name for column in catalog_of(source, replace(TABLE, table="ORDERS")).columns] == ["ID"]
    assert len(catalog_of(source).columns) == 5


def test_key_is_the_primary_key_in_its_order(server: OracleServer) -> None:
    """The key columns are those of the primary key in the dictionary, in its order (DBZ-7729)."""
    catalog = catalog_of(row_source(server))
    assert ([part.name for part in catalog.key], catalog.primary_key) == (["Id", "region"], True)


def test_without_primary_key_a_not_null_unique_index_is_used() -> None:
    """A unique index is the key if its columns are NOT NULL."""
    columns = (OracleColumn("A", "NUMBER", 9, 0, not_null=True), OracleColumn("B", "NUMBER", 9, 0))
    server = OracleServer()
    server.add(OracleTable("APP", "T", columns, unique={"I1": ("B",), "I2": ("A",)}))
    catalog = catalog_of(row_source(server), TableId("ora", "SHOP", "APP", "T"))
    assert ([part.name for part in catalog.key], catalog.primary_key) == (["A"], False)


def test_ddl_changes_the_fingerprint(server: OracleServer) -> None:
    """The fingerprint contains LAST_DDL_TIME, because a column that was dropped and added again looks the same."""
    source = row_source(server)
    before = catalog_of(source)
    server.tables["app", "Orders"].ddl_time = "2024-01-02 00:00:00"
    assert catalog_of(source).fingerprint != before.fingerprint


def test_a_case_insensitive_key_is_not_deterministic() -> None:
    """A key column with a case-insensitive collation is marked, so that the cache does not store a row twice."""
    server = OracleServer()
    server.add(OracleTable("APP", "T", (OracleColumn("K", "VARCHAR2", collation="BINARY_CI", length=9),), ("K",)))
    assert not catalog_of(row_source(server), TableId("ora", "SHOP", "APP", "T")).key[0].deterministic


@pytest.mark.parametrize("statement", [*oracle_catalog.STATEMENTS, ROLE, CLOCK, CURRENT_SCN])
def test_statements_are_valid_oracle_sql(statement: str) -> None:
    """sqlglot's Oracle dialect parses every statement that queries the dictionary, the role or the SCN."""
    assert sql.parse(statement) is not None


def test_the_clock_of_the_server(server: OracleServer) -> None:
    """It is compared with that of this machine, for ``headrace doctor``."""
    here = server.time.timestamp()
    same = row_source(server).clock(Clock(here))
    assert list(source_findings(same)) == []
    [finding] = source_findings(row_source(server).clock(Clock(here + 90)))
    assert finding.evidence == "its clock is 90.0 s behind that of this machine"
    assert 'database "SHOP" at db.example:1521' in finding.subject


def test_a_dropped_key_column_is_fatal(server: OracleServer) -> None:
    """A request with a key column that the table no longer has raises Fatal."""
    source = row_source(server)
    catalog = catalog_of(source)
    requested = request(TABLE, {"gone": (Schema("int32"), [1]), **ORDERS_KEY}, NOTE)
    with pytest.raises(Fatal, match="gone"):
        source.fetch(catalog, requested)


# -- rotation of passwords --------------------------------------------------------------------------------------------


def test_next_connection_uses_the_present_password(server: OracleServer) -> None:
    """After a refused login, the next pool has the present password; the refused one is not sent again."""
    passwords = ["first"]
    database = replace(DATABASE, read_password=lambda: passwords[-1])
    source = OracleRowSource(ReselectOptions(database=database), FakeDriver(server))
    server.password = "first"
    catalog_of(source)
    server.password = "second"
    server.failures.append(("execute", "ORA-03113: end-of-file on communication channel"))
    with pytest.raises(Retriable):
        catalog_of(source)
    for _ in range(3):
        with pytest.raises(Retriable, match="Earlier connections were accepted"):
            catalog_of(source)
    assert server.logins == ["first", "first"]
    passwords.append("second")
    assert catalog_of(source).table == TABLE
    assert server.logins == ["first", "first", "second"]


def test_first_wrong_password_is_permanent(server: OracleServer) -> None:
    """A login that was never accepted raises ConfigError, and is sent once: a repetition locks Oracle's accounts."""
    server.password = "other"
    source = row_source(server)
    for _ in range(3):
        with pytest.raises(ConfigError, match="ORA-01017"):
            source.check()
    assert server.logins == ["secret"]
