"""``headrace doctor`` on a real PostgreSQL: each bad state is found, and the good state is silent."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

import pytest
from psycopg import sql

from headrace.core.doctor.clocks import source_findings
from headrace.core.doctor.findings import Finding, Severity, by_harm
from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.runtime.pipeline.source_database import DatabaseRouter
from headrace_connectors.sql import PostgresRowSource, postgres_doctor
from headrace_dev.postgres import Postgres
from headrace_dev.server import wait_until

pytestmark = pytest.mark.stack

TABLES = """
CREATE TABLE orders (id int PRIMARY KEY, note text);
CREATE PUBLICATION shop FOR TABLE orders;
"""
NUMBERS = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server of this module: slots and settings concern all databases."""
    root = tmp_path_factory.mktemp("doctor")
    for folder in (root, *root.parents[:3]):
        folder.chmod(0o755)
    server = Postgres(root)
    server.start()
    yield server
    server.stop()


@pytest.fixture
def database(server: Postgres) -> Iterator[str]:
    """A database with a published table. Its slots are removed after the test."""
    name = f"doctor_{next(NUMBERS)}"
    server.create_database(name)
    server.execute(TABLES, name)
    yield name
    with server.connect(name) as connection:
        slots = "SELECT slot_name, active_pid FROM pg_replication_slots WHERE database = current_database()"
        for slot, pid in connection.execute(slots).fetchall():
            if pid:
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            wait_until(lambda slot=slot: dropped(server, name, slot), "end of the slot's reader", 10)


def dropped(server: Postgres, database: str, slot: str) -> bool:
    """Drop a slot, unless something reads it."""
    with server.connect(database) as connection:
        drop = (
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %s AND NOT active"
        )
        return bool(connection.execute(drop, (slot,)).fetchall())


@pytest.fixture
def find(server: Postgres, database: str) -> Callable[..., list[Finding]]:
    """Returns the findings about a table, as a user sees them."""

    def find(table: str = "orders", user: str = "postgres", password: str = "", **options: bool | str) -> list[Finding]:
        where = DatabaseOptions("127.0.0.1", server.port, user, password, database)
        source = PostgresRowSource(ReselectOptions(database=where, **options))
        try:
            return by_harm(source.findings([TableId("shop", database, "public", table)]))
        finally:
            source.close()

    return find


@contextmanager
def read_slot(server: Postgres, database: str) -> Iterator[None]:
    """A slot that something reads, as Debezium does."""
    create_slot(server, database)
    program = server._binaries / "pg_recvlogical"
    options = ["-o", "proto_version=1", "-o", "publication_names=shop"]
    command = [program, "-d", server.dsn(database), "-S", database, "--start", "-f", "/dev/null", *options]
    reader = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        active = sql.SQL("SELECT active FROM pg_replication_slots WHERE slot_name = {}").format(database)

        def is_active() -> bool:
            with server.connect() as connection:
                return connection.execute(active).fetchone() == (True,)

        wait_until(is_active, "reader of the slot", 20)
        yield
    finally:
        reader.terminate()
        reader.communicate()


def create_slot(server: Postgres, database: str) -> None:
    with server.connect(database) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (database,))


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


def test_a_good_source_is_silent(server: Postgres, database: str, find: Callable[..., list[Finding]]) -> None:
    with read_slot(server, database):
        assert find() == []


def test_the_clock_of_the_server(server: Postgres, database: str) -> None:
    """It is this machine's; so the clock of the worker is changed."""
    options = DatabaseOptions("127.0.0.1", server.port, "postgres", "", database)
    source = PostgresRowSource(ReselectOptions(database=options))
    try:
        assert list(source_findings(source.clock(time.time))) == []
        [finding] = source_findings(source.clock(lambda: time.time() + 90))
        assert (finding.rule, finding.severity) == ("worker-clock-source", Severity.WARNING)
        assert "90.0 s behind" in finding.evidence
    finally:
        source.close()


def test_slots_for_the_metrics(server: Postgres, database: str) -> None:
    """A slot is active while something reads it; a connector with several databases has the slots of all."""
    options = DatabaseOptions("127.0.0.1", server.port, "postgres", "", database)
    source = PostgresRowSource(ReselectOptions(database=options))
    slots = DatabaseRouter([(options, source)]).slots
    try:
        assert slots() == []
        with read_slot(server, database):
            [slot] = slots()
            assert (slot.name, slot.active, slot.retained >= 0) == (database, True, True)
            assert database in slot.where
        wait_until(lambda: [slot.active for slot in slots()] == [False], "end of the slot's reader", 20)
    finally:
        source.close()


def test_a_slot_that_nothing_reads(server: Postgres, database: str, find: Callable[..., list[Finding]]) -> None:
    """The message says what ends it: the disk, or the limit."""
    create_slot(server, database)
    [finding] = find()
    assert (finding.rule, finding.severity) == ("source-slot-inactive", Severity.WARNING)
    assert "until the disk of the server is full" in finding.consequence
    assert f"pg_drop_replication_slot('{database}')" in finding.remedy
    server.reload({"max_slot_wal_keep_size": "'64MB'"})
    try:
        assert "until it has 64 MiB (max_slot_wal_keep_size)" in find()[0].consequence
    finally:
        server.reload({"max_slot_wal_keep_size": "-1"})


def test_a_slot_whose_log_was_removed(server: Postgres, database: str, find: Callable[..., list[Finding]]) -> None:
    create_slot(server, database)
    server.reload({"max_slot_wal_keep_size": "'1MB'"})
    try:
        for _ in range(3):  # a file of the log is removed at the checkpoint after the one that fills it
            server.execute("SELECT pg_switch_wal(); CHECKPOINT", database)
            server.execute("INSERT INTO orders SELECT g, repeat('x', 100) FROM generate_series(1, 200000) g", database)
            server.execute("TRUNCATE orders; SELECT pg_switch_wal(); CHECKPOINT", database)
        assert rules(find()) == ["source-slot-lost"]
        assert find()[0].severity is Severity.ERROR
    finally:
        server.reload({"max_slot_wal_keep_size": "-1"})


def test_a_slot_that_is_far_behind(
    server: Postgres, database: str, find: Callable[..., list[Finding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_doctor, "MUCH_LOG", -1)
    with read_slot(server, database):
        assert rules(find()) == ["source-slot-behind"]


def test_a_log_without_the_changes_of_rows(
    server: Postgres, database: str, find: Callable[..., list[Finding]], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.reload({"wal_level": "replica"})
    server.stop()
    server.start()
    try:
        assert rules(find()) == ["source-wal-level"]
        assert "wal_level is replica" in find()[0].evidence
    finally:
        server.reload({"wal_level": "logical"})
        server.stop()
        server.start()


def test_a_table_that_no_publication_has(server: Postgres, database: str, find: Callable[..., list[Finding]]) -> None:
    """The remedy works."""
    server.execute('CREATE TABLE "Items" (id int PRIMARY KEY)', database)
    with read_slot(server, database):
        [finding] = find("Items")
        assert (finding.rule, finding.severity) == ("table-unpublished", Severity.ERROR)
        with server.connect(database) as connection:
            connection.execute(sql.SQL(finding.remedy.partition(";")[0]))
        assert find("Items") == []


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ("ALTER TABLE orders REPLICA IDENTITY NOTHING", "table-without-identity"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "table-without-identity"),
        (
            "ALTER TABLE orders DROP CONSTRAINT orders_pkey; ALTER TABLE orders REPLICA IDENTITY FULL",
            "table-without-key",
        ),
        (
            "ALTER TABLE orders ALTER note SET NOT NULL; CREATE UNIQUE INDEX other ON orders (note); "
            "ALTER TABLE orders REPLICA IDENTITY USING INDEX other",
            "table-identity-index",
        ),
        ("DROP TABLE orders", "table-missing"),
    ],
    ids=["nothing", "default-without-key", "full-without-key", "index", "dropped"],
)
def test_tables(server: Postgres, database: str, find: Callable[..., list[Finding]], change: str, rule: str) -> None:
    server.execute(change, database)
    assert rules(find()) == [rule]


@pytest.mark.parametrize(
    ("column", "rule"),
    [
        ("tsquery", "table-column-absent"),
        ("int4multirange", "table-column-absent"),
        ("money[]", "table-column-absent"),
        ("positive[]", "table-column-absent"),
        ("pair", "table-column-absent"),
        ("interval", "table-intervals-approximated"),
    ],
)
def test_columns(server: Postgres, database: str, find: Callable[..., list[Finding]], column: str, rule: str) -> None:
    """The finding names the column."""
    server.execute("CREATE DOMAIN positive AS int CHECK (value > 0); CREATE TYPE pair AS (a int, b int)", database)
    with server.connect(database) as connection:
        connection.execute(sql.SQL(f"ALTER TABLE orders ADD COLUMN odd {column}"))  # type: ignore[arg-type]
    [finding] = find()
    assert (finding.rule, finding.severity) == (rule, Severity.WARNING)
    assert finding.evidence.startswith("columns odd")


def test_values_that_nothing_reads_again(server: Postgres, database: str, find: Callable[..., list[Finding]]) -> None:
    """With REPLICA IDENTITY FULL events contain them."""
    for options in ({"source_reads": "none"}, {"source_reads": "missing-rows"}, {"unavailable_values": False}):
        [finding] = find(**options)
        assert (finding.rule, finding.evidence.partition(";")[0]) == ("table-values-omitted", "columns note")
    server.execute("ALTER TABLE orders REPLICA IDENTITY FULL", database)
    assert find(source_reads="none") == []


@pytest.fixture(params=[True, False], ids=["with primary", "alone"])
def find_of_standby(
    stack_postgres: Postgres, stack_standby: Postgres, unique: Callable[[str], str], request: pytest.FixtureRequest
) -> Iterator[tuple[str, Callable[[], list[Finding]]]]:
    """A database, and what returns the findings if reselect reads its standby.

    Of a standby alone, slots and ``wal_level`` are not checked.
    """
    name = unique("standby")
    stack_postgres.create_database(name)
    stack_postgres.execute(TABLES, name)
    hosts = f"127.0.0.1:{stack_standby.port}" + (f",127.0.0.1:{stack_postgres.port}" if request.param else "")
    options = DatabaseOptions(hosts, 5432, "postgres", "", name)
    source = PostgresRowSource(ReselectOptions(database=options, read_from="replica", visibility_timeout_ms=1000))
    wait_until(lambda: caught_up(stack_postgres, stack_standby), "standby that has replayed everything", 30)
    yield name, lambda: list(source.findings([TableId("shop", name, "public", "orders")]))
    source.close()


def test_a_standby_that_is_behind(
    stack_postgres: Postgres, stack_standby: Postgres, find_of_standby: tuple[str, Callable[[], list[Finding]]]
) -> None:
    """Good as long as it has replayed what it got."""
    name, found = find_of_standby
    wait_until(lambda: found() == [], "standby that is not behind", 30)  # the primary writes into its log by itself
    stack_standby.execute("SELECT pg_wal_replay_pause()")
    try:
        stack_postgres.execute("INSERT INTO orders SELECT g FROM generate_series(1, 100) g", name)
        wait_until(lambda: rules(found()) == ["source-standby-behind"], "lag of more than a second", 30)
    finally:
        stack_standby.execute("SELECT pg_wal_replay_resume()")


@pytest.mark.parametrize("find_of_standby", [False], ids=["alone"], indirect=True)
def test_a_standby_that_gets_no_log(
    stack_standby: Postgres, find_of_standby: tuple[str, Callable[[], list[Finding]]]
) -> None:
    """It does not look behind, because it has replayed all that it got."""
    _, found = find_of_standby
    stack_standby.execute("ALTER SYSTEM SET primary_slot_name = 'nothing'")
    stack_standby.execute("SELECT pg_reload_conf()")
    try:
        evidence = ["it receives no log from its primary"]
        wait_until(lambda: [finding.evidence for finding in found()] == evidence, "standby without a log", 30)
    finally:
        stack_standby.execute("ALTER SYSTEM RESET primary_slot_name")
        stack_standby.execute("SELECT pg_reload_conf()")
    wait_until(lambda: found() == [], "standby that gets the log again", 60)


def caught_up(primary: Postgres, standby: Postgres) -> bool:
    with primary.connect() as here, standby.connect() as there:
        written = here.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        replayed = there.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone()
    return replayed == (True,)


def test_a_user_that_may_not_read_all_rows(server: Postgres, database: str, find: Callable[..., list[Finding]]) -> None:
    """Without a grant, and with row-level security."""
    server.execute("DROP ROLE IF EXISTS reader; CREATE ROLE reader LOGIN PASSWORD 'secret'", database)
    assert rules(find(user="reader", password="secret")) == ["table-unreadable"]
    server.execute("GRANT SELECT ON orders TO reader", database)
    assert find(user="reader", password="secret") == []
    server.execute("ALTER TABLE orders ENABLE ROW LEVEL SECURITY", database)
    assert rules(find(user="reader", password="secret")) == ["table-unreadable"]
