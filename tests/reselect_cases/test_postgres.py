"""S15, S16, N1, N2 and N4 on real servers: an answer is valid only if its snapshot includes the event.

See ``reselect.md`` section 7.2.

Every test is named after its case; ``take_out.py`` shows that it fails without its rule.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, Retriable
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import RowRequest
from headrace_connectors.sql import PostgresRowSource
from headrace_dev.postgres import Postgres
from headrace_dev.server import wait_until

pytestmark = pytest.mark.stack

INT, TEXT = Schema("int32"), Schema("string", optional=True)
Opener = Callable[[ReselectOptions], PostgresRowSource]


@pytest.fixture
def table(stack_postgres: Postgres, unique: Callable[[str], str]) -> TableId:
    """A table whose only row contains ``v3``, in its own database."""
    database = unique("visibility")
    stack_postgres.create_database(database)
    stack_postgres.execute(
        "CREATE TABLE docs (id int PRIMARY KEY, big text); INSERT INTO docs VALUES (1, 'v3')", database
    )
    return TableId("shop", database, "public", "docs")


@pytest.fixture
def primary(stack_postgres: Postgres, table: TableId) -> ReselectOptions:
    """Options to read the primary, with a short wait for a transaction that is not visible."""
    where = DatabaseOptions("127.0.0.1", stack_postgres.port, "postgres", "", table.database)
    return ReselectOptions(database=where, visibility_timeout_ms=200)


@pytest.fixture
def replica(stack_standby: Postgres, stack_postgres: Postgres, primary: ReselectOptions) -> Iterator[ReselectOptions]:
    """Options to read only the standby, which has replayed the primary, and replays again after the test."""
    wait_until(lambda: caught_up(stack_postgres, stack_standby), "standby that has caught up")
    assert primary.database is not None
    where = replace(primary.database, hostname=f"127.0.0.1:{stack_standby.port}")
    yield replace(primary, database=where, read_from="replica")
    stack_standby.execute("SELECT pg_wal_replay_resume()")


@pytest.fixture
def both(stack_postgres: Postgres, replica: ReselectOptions) -> ReselectOptions:
    """Options to read the standby if it can prove the answer, and else the primary."""
    assert replica.database is not None
    hosts = f"127.0.0.1:{stack_postgres.port},{replica.database.hostname}"
    return replace(replica, database=replace(replica.database, hostname=hosts))


@pytest.fixture
def open_source() -> Iterator[Opener]:
    """Makes row sources that are closed after the test."""
    opened: list[PostgresRowSource] = []

    def open_one(options: ReselectOptions) -> PostgresRowSource:
        opened.append(PostgresRowSource(options))
        return opened[-1]

    yield open_one
    for source in opened:
        source.close()


def caught_up(primary: Postgres, standby: Postgres) -> bool:
    """Whether the standby has replayed the complete log of the primary."""
    with primary.connect() as here, standby.connect() as there:
        written = here.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        there_too = there.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", written).fetchone()
    return there_too == (True,)


def catalog_of(source: PostgresRowSource, table: TableId) -> CatalogTable:
    found = source.catalog(table)
    assert found is not None
    return found


def big_of_row_1(table: TableId, transaction: int) -> RowRequest:
    """A request for ``big`` of row 1 for an event of ``transaction``; events contain 32 bits of its id."""
    key = (Column("id", INT, pa.array([1], pa.int32())),)
    big = (Column("big", TEXT, pa.array([], pa.string())),)
    return RowRequest(table, key, big, np.ones((1, 1), np.bool_), np.array([transaction & 0xFFFFFFFF], np.int64))


def read(source: PostgresRowSource, table: TableId, transaction: int) -> object:
    """The value of the answer."""
    return source.fetch(catalog_of(source, table), big_of_row_1(table, transaction)).of_found(0)[0]


def set_big(connection: psycopg.Connection[tuple[object, ...]], value: str) -> int:
    """Update row 1 and return the id of the transaction."""
    connection.execute("UPDATE docs SET big = %s WHERE id = 1", (value,))
    row = connection.execute("SELECT txid_current()").fetchone()
    assert row is not None
    return int(str(row[0]))


def set_big_in_one(postgres: Postgres, table: TableId, value: str) -> int:
    """The same in a separate transaction, which is committed on return."""
    with postgres.connect(table.database) as writer, writer.transaction():
        return set_big(writer, value)


def test_s15_replica_that_is_behind_is_not_trusted(
    stack_postgres: Postgres, stack_standby: Postgres, table: TableId, replica: ReselectOptions, open_source: Opener
) -> None:
    """S15: an answer of a standby that has not replayed the event's transaction is refused; a later one is not."""
    source = open_source(replica)
    assert read(source, table, set_big_in_one_and_wait(stack_postgres, stack_standby, table, "v4")) == "v4"
    stack_standby.execute("SELECT pg_wal_replay_pause()")
    transaction = set_big_in_one(stack_postgres, table, "v5")
    with pytest.raises(Retriable, match="does not know transaction"):
        read(source, table, transaction)
    stack_standby.execute("SELECT pg_wal_replay_resume()")
    patient = open_source(replace(replica, visibility_timeout_ms=20_000))
    assert read(patient, table, transaction) == "v5"


def set_big_in_one_and_wait(primary: Postgres, standby: Postgres, table: TableId, value: str) -> int:
    """The same, and wait until the standby has replayed it."""
    transaction = set_big_in_one(primary, table, value)
    wait_until(lambda: caught_up(primary, standby), "standby that has caught up")
    return transaction


def test_s15_the_primary_answers_for_a_replica_that_is_behind(
    stack_postgres: Postgres, stack_standby: Postgres, table: TableId, both: ReselectOptions, open_source: Opener
) -> None:
    """S15: with the primary in the list, the primary answers what the standby cannot prove."""
    stack_standby.execute("SELECT pg_wal_replay_pause()")
    assert read(open_source(both), table, set_big_in_one(stack_postgres, table, "v5")) == "v5"


def test_s15_without_a_transaction_id_only_the_primary_counts(
    stack_postgres: Postgres,
    stack_standby: Postgres,
    table: TableId,
    replica: ReselectOptions,
    both: ReselectOptions,
    open_source: Opener,
) -> None:
    """S15: only the primary answers for an event without a transaction id; the answer is not cached.

    Without it, it fails.
    """
    stack_standby.execute("SELECT pg_wal_replay_pause()")
    set_big_in_one(stack_postgres, table, "v5")
    source = open_source(both)
    asked = replace(big_of_row_1(table, 1), transactions=np.array([-1]))
    answer = source.fetch(catalog_of(source, table), asked)
    assert (answer.of_found(0), answer.proven) == (["v5"], False)
    alone = open_source(replica)
    with pytest.raises(Fatal, match="list the primary"):
        alone.fetch(catalog_of(alone, table), asked)


def test_a_standby_is_no_primary(
    stack_standby: Postgres, primary: ReselectOptions, replica: ReselectOptions, open_source: Opener
) -> None:
    """Without ``reselect.read.from=replica`` a standby is refused at start, and the message names the option."""
    assert primary.database is not None
    only_standby = replace(primary, database=replace(primary.database, port=stack_standby.port))
    with pytest.raises(ConfigError, match=r"is a standby.*reselect\.read\.from=replica"):
        open_source(only_standby).check()
    open_source(replica).check()


def test_s16_transaction_in_progress_is_waited_for(
    stack_postgres: Postgres, table: TableId, primary: ReselectOptions, open_source: Opener
) -> None:
    """S16: nothing is read while the event's transaction is not visible; then its value is."""
    impatient, source = open_source(primary), open_source(replace(primary, visibility_timeout_ms=20_000))
    with stack_postgres.connect(table.database) as writer:
        writer.execute("BEGIN")
        transaction = set_big(writer, "B")
        with pytest.raises(Retriable, match="not visible"):
            read(impatient, table, transaction)
        answers: list[object] = []
        reading = threading.Thread(target=lambda: answers.append(read(source, table, transaction)))
        reading.start()
        writer.execute("COMMIT")
        reading.join(20)
    assert answers == ["B"]


@pytest.fixture
def in_progress(
    stack_postgres: Postgres, stack_standby: Postgres, table: TableId, replica: ReselectOptions
) -> Iterator[tuple[psycopg.Connection[tuple[object, ...]], int]]:
    """A writer and the id of its transaction: the standby has replayed its row's record, but not its commit."""
    with stack_postgres.connect(table.database) as writer:
        writer.execute("BEGIN")
        transaction = set_big(writer, "B")
        stack_postgres.execute("SELECT txid_current()")  # a commit of another session, which flushes the log
        wait_until(lambda: caught_up(stack_postgres, stack_standby), "standby that has caught up")
        yield writer, transaction


def test_n01_replayed_row_is_not_yet_committed(
    stack_postgres: Postgres,
    stack_standby: Postgres,
    table: TableId,
    replica: ReselectOptions,
    open_source: Opener,
    in_progress: tuple[psycopg.Connection[tuple[object, ...]], int],
) -> None:
    """N1: a standby that has replayed the row's record, but not the commit after it, is refused."""
    writer, transaction = in_progress
    source = open_source(replica)
    with pytest.raises(Retriable, match="not visible yet"):
        read(source, table, transaction)
    writer.execute("COMMIT")
    wait_until(lambda: caught_up(stack_postgres, stack_standby), "standby that has caught up")
    assert read(source, table, transaction) == "B"


def test_n02_the_snapshot_of_a_standby_is_not_queried(
    stack_standby: Postgres,
    table: TableId,
    replica: ReselectOptions,
    open_source: Opener,
    in_progress: tuple[psycopg.Connection[tuple[object, ...]], int],
) -> None:
    """N2: a standby's snapshot reports a transaction in progress as visible; the status of the transaction is right."""
    _, transaction = in_progress
    with stack_standby.connect(table.database) as reader:
        said = reader.execute("SELECT txid_visible_in_snapshot(%s, txid_current_snapshot())", (transaction,)).fetchone()
        shown = reader.execute("SELECT big FROM docs").fetchone()
    assert (said, shown) == ((True,), ("v3",))
    with pytest.raises(Retriable, match="not visible yet"):
        read(open_source(replica), table, transaction)


def test_n04_row_security_is_refused(
    stack_postgres: Postgres,
    table: TableId,
    primary: ReselectOptions,
    open_source: Opener,
    unique: Callable[[str], str],
) -> None:
    """N4: rows hidden by row security would look deleted, so the table is refused with the remedy."""
    user = unique("hidden_from")
    with stack_postgres.connect(table.database) as connection:
        for statement in (
            "CREATE ROLE {} LOGIN PASSWORD 'secret'",
            "GRANT SELECT ON docs TO {}",
            "ALTER TABLE docs ENABLE ROW LEVEL SECURITY",
        ):
            connection.execute(sql.SQL(statement).format(sql.Identifier(user)))
    assert primary.database is not None
    as_user = replace(primary, database=replace(primary.database, user=user, password="secret"))
    with pytest.raises(ConfigError, match="row security hides rows"):
        open_source(as_user).catalog(table)
