"""PostgreSQL as a row source: the suite, quoted names, visibility, and errors with their remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from contracts.row_source_suite import TABLE, TEXT, RowSourceSuite, request

from headrace.core.model.catalog import HandlingModes
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import RowRequest
from headrace.ports import Connections
from headrace_connectors.sql import PostgresRowSource, postgres_server
from headrace_dev.postgres import Postgres

pytestmark = pytest.mark.stack

SCHEMA = r"""
CREATE SCHEMA app;
CREATE TYPE app."Region" AS ENUM ('nord', 'süd, {x}\');
CREATE TABLE app."Orders" ("Id" int NOT NULL, region app."Region" NOT NULL, note text, blob bytea, price numeric(10,2),
  PRIMARY KEY ("Id", region));
INSERT INTO app."Orders" VALUES (1, 'nord', 'a ''quoted'' "note"', '\x00ff', 1.5), (2, 'nord', NULL, NULL, NULL),
  (2, 'süd, {x}\', '', '\x', -0.01);
CREATE TABLE app."we""ird 100%" ("k;1" text PRIMARY KEY, "v""1" text);
INSERT INTO app."we""ird 100%" VALUES ('a', 'found');
"""


@pytest.fixture(scope="module")
def database(stack_postgres: Postgres) -> str:
    """A database with the suite's table."""
    name = "row_source"
    stack_postgres.create_database(name)
    stack_postgres.execute(SCHEMA, name)
    return name


@pytest.fixture
def options(stack_postgres: Postgres, database: str) -> ReselectOptions:
    """The options of the superuser."""
    where = DatabaseOptions("127.0.0.1", stack_postgres.port, "postgres", "", database)
    return ReselectOptions(database=where, visibility_timeout_ms=200)


@pytest.fixture
def open_source(options: ReselectOptions) -> Iterator[Callable[[ReselectOptions], PostgresRowSource]]:
    """Makes row sources that are closed after the test."""
    opened: list[PostgresRowSource] = []

    def open_one(given: ReselectOptions) -> PostgresRowSource:
        opened.append(PostgresRowSource(given))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


Opener = Callable[[ReselectOptions], PostgresRowSource]


class TestPostgresRowSource(RowSourceSuite):
    """The suite on a real server. The key contains an enum in a schema that is not on the search path."""

    @pytest.fixture
    def source(self, options: ReselectOptions, open_source: Opener) -> PostgresRowSource:
        """A source that reads the suite's database."""
        return open_source(options)


def _text_request(table: TableId, key: str, value: str, column: str) -> RowRequest:
    keys = (Column(key, Schema("string"), pa.array([value])),)
    columns = (Column(column, TEXT, pa.array([], pa.string())),)
    return RowRequest(table, keys, columns, np.ones((1, 1), np.bool_), np.full(1, -1, np.int64))


def test_connections_are_told(options: ReselectOptions, open_source: Opener) -> None:
    """The count is 0 before the first use and after close; a used connection stays open for the next read."""
    source = open_source(options)
    assert source.connections() == Connections()
    source.catalog(TABLE)
    assert (source.connections().used, source.connections().left_alone) == (0, 0)
    assert source.connections().idle >= 1
    source.close()
    assert source.connections() == Connections()


def test_names_are_quoted_everywhere(options: ReselectOptions, open_source: Opener) -> None:
    """Names with quotes, spaces, percent signs and semicolons are read as names."""
    source = open_source(options)
    table = TableId("shop", options.database.dbname if options.database else "", "app", 'we"ird 100%')
    catalog = source.catalog(table)
    assert catalog is not None
    answer = source.fetch(catalog, _text_request(table, "k;1", "a", 'v"1'))
    assert answer.of_found(0) == ["found"]


def test_key_operators_come_from_the_index(
    contrib_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """A citext key finds its row in any case, although the type's operator is not on the search path."""
    contrib_postgres.execute(
        "CREATE SCHEMA ext; CREATE EXTENSION citext SCHEMA ext; CREATE TABLE app.ci (k ext.citext PRIMARY KEY, v text);"
        "INSERT INTO app.ci VALUES ('Straße', 'found')",
        database,
    )
    source = open_source(options)
    table = TableId("shop", database, "app", "ci")
    catalog = source.catalog(table)
    assert catalog is not None
    assert (catalog.key[0].operator_schema, catalog.key[0].operator) == ("ext", "=")
    assert source.fetch(catalog, _text_request(table, "k", "sTRAßE", "v")).found.tolist() == [True]


def test_many_columns_take_several_masks(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """One statement reads more columns than a mask has bits."""
    names = [f"c{number}" for number in range(130)]
    with stack_postgres.connect(database) as connection:
        connection.execute(f"CREATE TABLE app.wide (k text PRIMARY KEY, {', '.join(n + ' text' for n in names)})")  # type: ignore[arg-type]  # made of our own names
        connection.execute(f"INSERT INTO app.wide VALUES ('a', {', '.join(repr(n) for n in names)})")  # type: ignore[arg-type]  # made of our own names
    source = open_source(options)
    table = TableId("shop", database, "app", "wide")
    catalog = source.catalog(table)
    assert catalog is not None
    columns = tuple(Column(name, TEXT, pa.array([], pa.string())) for name in names)
    needs = np.array([[number % 3 == 0 for number in range(130)]])
    asked = replace(_text_request(table, "k", "a", "c0"), columns=columns, needs=needs)
    answer = source.fetch(catalog, asked)
    cells = [answer.of_found(number)[0] for number in range(130)]
    assert cells == [n if i % 3 == 0 else None for i, n in enumerate(names)]


def test_catalog_contains_what_may_be_omitted(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """Storage, replica identity, generated columns, domains and the order of the key come from the catalog."""
    stack_postgres.execute(
        "CREATE DOMAIN app.short AS varchar(5); "
        "CREATE TABLE app.facts (b int, a int, t text DEFAULT 'x', p text, s app.short, "
        "g int GENERATED ALWAYS AS (b + 1) STORED, PRIMARY KEY (a, b)); "
        "ALTER TABLE app.facts ALTER p SET STORAGE PLAIN",
        database,
    )
    source = open_source(options)
    table = TableId("shop", database, "app", "facts")
    catalog = source.catalog(table)
    assert catalog is not None
    assert [part.name for part in catalog.key] == ["a", "b"]
    assert [column.name for column in catalog.columns if column.omittable] == ["t", "s"]
    assert [column.name for column in catalog.columns if column.generated] == ["g"]
    assert [column.name for column in catalog.columns if column.has_default] == ["t", "g"]
    assert [member.name for member in source.schema(catalog).fields] == ["b", "a", "t", "p", "s", "g"]
    stack_postgres.execute("ALTER TABLE app.facts REPLICA IDENTITY FULL", database)
    again = source.catalog(table)
    assert again is not None
    assert not any(column.omittable for column in again.columns)
    assert again.fingerprint != catalog.fingerprint


def test_identity_index_beside_a_primary_key_is_known(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """REPLICA IDENTITY USING INDEX makes message keys unsuitable, unless it is the primary key's own index."""
    stack_postgres.execute(
        "CREATE TABLE app.indexed (k int CONSTRAINT indexed_key PRIMARY KEY, other int NOT NULL UNIQUE);"
        "ALTER TABLE app.indexed REPLICA IDENTITY USING INDEX indexed_other_key",
        database,
    )
    source, table = open_source(options), TableId("shop", database, "app", "indexed")
    wrong = source.catalog(table)
    assert wrong is not None
    assert (wrong.sends_wrong_keys, wrong.identity_index) == (True, "indexed_other_key")
    stack_postgres.execute("ALTER TABLE app.indexed REPLICA IDENTITY USING INDEX indexed_key", database)
    right = source.catalog(table)
    assert right is not None
    assert not right.sends_wrong_keys


def test_tables_that_no_publication_contains_are_known(
    stack_postgres: Postgres, options: ReselectOptions, open_source: Opener
) -> None:
    """A partition that is published under its root, the root of partitions that are not, and a table beside both.

    Without a slot, and with another plug-in's, nobody knows what is published.
    """
    assert options.database is not None
    stack_postgres.create_database("published")
    stack_postgres.execute(
        "CREATE TABLE root (id int PRIMARY KEY) PARTITION BY RANGE (id); CREATE TABLE plain (id int PRIMARY KEY); "
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (10); CREATE TABLE later (id int PRIMARY KEY); "
        "CREATE PUBLICATION captured FOR TABLE root, plain WITH (publish_via_partition_root = true)",
        "published",
    )
    source = open_source(replace(options, database=replace(options.database, dbname="published")))

    def unpublished() -> dict[str, bool]:
        """The tables that are not published; whether each is a partition."""
        names = ("root", "leaf", "plain", "later")
        entries = [source.catalog(TableId("shop", "published", "public", name)) for name in names]
        return {entry.table.table: entry.partition for entry in entries if entry is not None and not entry.published}

    assert unpublished() == {}
    with stack_postgres.connect("published") as session:  # the slots are those of the session
        session.execute("SELECT pg_create_logical_replication_slot('published_a', 'pgoutput', true)")
        assert unpublished() == {"leaf": True, "later": False}
        stack_postgres.execute("ALTER PUBLICATION captured SET (publish_via_partition_root = false)", "published")
        assert unpublished() == {"root": False, "later": False}
        session.execute("SELECT pg_create_logical_replication_slot('published_b', 'test_decoding', true)")
        assert unpublished() == {}


# -- visibility (``reselect.md`` section 7.2) -------------------------------------------------------------------------


def test_transaction_of_another_server_is_noticed(options: ReselectOptions, open_source: Opener) -> None:
    """The source waits for a transaction id that this server has not assigned yet; the error names the remedy."""
    source = open_source(options)
    catalog = source.catalog(TABLE)
    assert catalog is not None
    asked = replace(request([(1, "nord")], ["note"]), transactions=np.array([1_000_000_000]))
    with pytest.raises(Retriable, match=r"reselect\.visibility\.check=off"):
        source.fetch(catalog, asked)
    unchecked = open_source(replace(options, visibility_check=False))
    assert not unchecked.fetch(catalog, asked).proven


def test_aborted_transaction_means_a_wrong_server(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """Debezium captures only committed changes, so an aborted transaction belongs to another server."""
    with stack_postgres.connect(database) as writer:
        writer.execute("BEGIN")
        row = writer.execute("SELECT txid_current()").fetchone()
        writer.execute("ROLLBACK")
    source = open_source(options)
    catalog = source.catalog(TABLE)
    assert catalog is not None
    assert row is not None
    with pytest.raises(ConfigError, match="another server"):
        source.fetch(catalog, replace(request([(1, "nord")], ["note"]), transactions=np.array([row[0]])))


# -- errors -----------------------------------------------------------------------------------------------------------


def _as(options: ReselectOptions, user: str, password: str) -> ReselectOptions:
    assert options.database is not None
    return replace(options, database=replace(options.database, user=user, password=password))


@pytest.fixture(scope="module")
def reader(stack_postgres: Postgres, database: str) -> str:
    """A user with a password and no grants. Users belong to the server, so the database's name is its name."""
    user = f"{database}_reader"
    stack_postgres.execute(f"CREATE ROLE {user} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA app TO {user}", database)
    return user


def test_wrong_password_is_reported_without_the_password(
    options: ReselectOptions, reader: str, open_source: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong password is a fatal error; the message contains the user and not the password."""
    monkeypatch.setattr(postgres_server, "CONNECT_SECONDS", 2)  # for which a pool tries, and libpq's least
    source = open_source(_as(options, reader, "guess"))
    with pytest.raises(ConfigError, match="password authentication failed") as caught:
        source.check()
    assert "guess" not in str(caught.value)
    assert str(caught.value).count("password authentication failed") == 1  # libpq reports it with and without TLS
    assert "correct reselect.database.password" in str(caught.value)
    with pytest.raises(ConfigError, match="password authentication failed"):
        source.catalog(TABLE)


def test_missing_grant_is_in_the_message(options: ReselectOptions, reader: str, open_source: Opener) -> None:
    """The error contains the missing grant for a user that may not read the table."""
    source = open_source(_as(options, reader, "secret"))
    source.check()
    with pytest.raises(ConfigError, match=rf'GRANT SELECT ON "app"\."Orders" TO "{reader}"'):
        source.catalog(TABLE)


def test_unknown_database_and_closed_port(options: ReselectOptions, open_source: Opener) -> None:
    """A missing database is a fatal error; a server that is down is a retriable one."""
    assert options.database is not None
    with pytest.raises(ConfigError, match="does not exist"):
        open_source(replace(options, database=replace(options.database, dbname="nowhere"))).check()
    with pytest.raises(Retriable, match=r"cannot be reached: .*Connection refused.*Is the server running"):
        open_source(replace(options, database=replace(options.database, port=1))).check()


def test_broken_connections_are_replaced(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """After the server has closed the connections, the next read opens new ones and prepares its statements again."""
    source = open_source(options)
    catalog = source.catalog(TABLE)
    assert catalog is not None
    source.fetch(catalog, request([(1, "nord")], ["note"]))
    with stack_postgres.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'headrace-reselect'"
        )
    assert source.fetch(catalog, request([(1, "nord")], ["note"])).found.tolist() == [True]


def test_dropped_table_is_permanent(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """A statement that the server refuses is not retried."""
    stack_postgres.execute("CREATE TABLE app.brief (k text PRIMARY KEY, v text)", database)
    source = open_source(options)
    table = TableId("shop", database, "app", "brief")
    catalog = source.catalog(table)
    assert catalog is not None
    stack_postgres.execute("DROP TABLE app.brief", database)
    with pytest.raises(Fatal, match="42P01"):
        source.fetch(catalog, _text_request(table, "k", "a", "v"))


def test_keys_that_events_cut_are_refused(
    stack_postgres: Postgres, database: str, options: ReselectOptions, open_source: Opener
) -> None:
    """A microsecond key that events contain in milliseconds is an error, because a query would find no row."""
    stack_postgres.execute("CREATE TABLE app.by_time (at timestamp PRIMARY KEY, v text)", database)
    source = open_source(replace(options, modes=HandlingModes(time_precision="connect")))
    table = TableId("shop", database, "app", "by_time")
    catalog = source.catalog(table)
    assert catalog is not None
    key = Column(
        "at", Schema("int64", name="org.apache.kafka.connect.data.Timestamp"), pa.array([0], pa.timestamp("us"))
    )
    with pytest.raises(Fatal, match="do not contain the exact value"):
        source.fetch(catalog, replace(_text_request(table, "at", "", "v"), key=(key,)))


def test_a_table_is_read_in_parts_without_a_snapshot_between_them(
    options: ReselectOptions, open_source: Opener, stack_postgres: Postgres, database: str
) -> None:
    """Every row comes once, also behind pages that are empty, and with statistics of a table that was nearly empty.

    Between two parts no snapshot is open, for which vacuum would have to keep rows. Rows of a partitioned table come as
    well.
    """
    statements = """
        CREATE TABLE app.many (id int PRIMARY KEY, note text);
        INSERT INTO app.many VALUES (0, '');
        ANALYZE app.many;
        INSERT INTO app.many SELECT n, repeat('x', 100) FROM generate_series(1, 50000) AS n;
        DELETE FROM app.many WHERE id BETWEEN 20000 AND 30000;
        CREATE TABLE app.parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
        CREATE TABLE app.parted_1 PARTITION OF app.parted FOR VALUES FROM (0) TO (10);
        CREATE TABLE app.parted_2 PARTITION OF app.parted FOR VALUES FROM (10) TO (20);
        INSERT INTO app.parted SELECT generate_series(0, 19);
    """
    stack_postgres.execute(statements, database)
    source = open_source(options)
    snapshots = """
        SELECT count(*) FROM pg_stat_activity
        WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'
    """
    catalog = source.catalog(TableId("server", database, "app", "many"))
    assert catalog is not None
    pieces = source.scan_in_parts(catalog, source.schema(catalog).fields[:1])
    ids = [*next(pieces).values()[0]]
    assert len(ids) < 20_000
    with stack_postgres.connect(database) as connection:
        assert connection.execute(snapshots.encode()).fetchone() == (0,)
    ids += [id for part in pieces for id in part.values()[0]]
    assert ids == [*range(20_000), *range(30_001, 50_001)]
    parted = source.catalog(TableId("server", database, "app", "parted"))
    assert parted is not None
    found = [id for part in source.scan_in_parts(parted, source.schema(parted).fields) for id in part.values()[0]]
    assert sorted(found) == list(range(20))
