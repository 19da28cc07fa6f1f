"""The number of reselect statements, as the database counts them (pg_stat_statements)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from support.task.reselect_harness import TABLE, Event, Lake, P, u

from headrace.core.model.events import TableId
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace_connectors.sql import PostgresRowSource
from headrace_dev.postgres import Postgres

pytestmark = pytest.mark.stack

ROWS = 10_000
COUNT = """
SELECT calls, rows FROM pg_stat_statements JOIN pg_database d ON d.oid = dbid
WHERE datname = current_database() AND query LIKE '%JOIN ONLY "public"."orders"%' ORDER BY calls
"""


@pytest.fixture
def table(contrib_postgres: Postgres, unique: Callable[[str], str]) -> TableId:
    """A table of many rows with different values, in its own database."""
    database = unique("statements")
    contrib_postgres.create_database(database)
    contrib_postgres.execute(
        "CREATE EXTENSION pg_stat_statements; CREATE TABLE orders (id int PRIMARY KEY, big text, doc text); "
        "INSERT INTO orders SELECT n, 'big ' || n, 'doc ' || n FROM generate_series(0, 9999) n; ANALYZE orders",
        database,
    )
    return replace(TABLE, database=database)


@pytest.fixture
def options(contrib_postgres: Postgres, table: TableId) -> ReselectOptions:
    """Reselect options without a cache, with all keys of a batch in one statement."""
    where = DatabaseOptions("127.0.0.1", contrib_postgres.port, "postgres", "", table.database)
    return ReselectOptions(null_values=False, database=where, batch_max_keys=ROWS, batch_max_bytes=1 << 40)


@pytest.fixture
def lake(options: ReselectOptions, table: TableId) -> Iterator[Callable[[ReselectOptions], Lake]]:
    """Makes tables whose pipeline reselects from the database."""
    opened: list[PostgresRowSource] = []

    def make(given: ReselectOptions) -> Lake:
        opened.append(PostgresRowSource(given))
        return Lake(opened[-1], given, table=table)  # type: ignore[arg-type]  # any RowSource will do

    yield make
    for source in opened:
        source.close()


def selects(postgres: Postgres, table: TableId) -> list[tuple[int, int]]:
    """Calls and rows of each statement that read the table, from pg_stat_statements."""
    with postgres.connect(table.database) as connection:
        return [(int(calls), int(rows)) for calls, rows in connection.execute(COUNT).fetchall()]


def placeholders(**cells: str) -> list[Event]:
    """One event for each row of the table."""
    return [u(key, **cells) for key in range(ROWS)]


def test_one_select_for_ten_thousand_placeholders(
    contrib_postgres: Postgres, table: TableId, options: ReselectOptions, lake: Callable[[ReselectOptions], Lake]
) -> None:
    """10,000 events with placeholders for 10,000 keys in a batch need one statement, which returns each row once."""
    shop = lake(options)
    shop.batch(*placeholders(big=P, doc="x"))
    assert selects(contrib_postgres, table) == [(1, ROWS)]
    assert {shop.big(key) == f"big {key}" for key in range(ROWS)} == {True}


def test_a_statement_for_each_batch_and_column_set(
    contrib_postgres: Postgres, table: TableId, options: ReselectOptions, lake: Callable[[ReselectOptions], Lake]
) -> None:
    """Rows of a batch that need different columns share a statement; a batch with other columns uses another one."""
    shop = lake(options)
    halves = [u(key, big=P, doc="x") if key % 2 else u(key, big="y", doc=P) for key in range(ROWS)]
    shop.batch(*halves)
    shop.batch(*halves)
    assert selects(contrib_postgres, table) == [(2, 2 * ROWS)]
    shop.batch(*placeholders(big="y", doc=P))
    assert selects(contrib_postgres, table) == [(1, ROWS), (2, 2 * ROWS)]


def test_large_batches_are_split_as_configured(
    contrib_postgres: Postgres, table: TableId, options: ReselectOptions, lake: Callable[[ReselectOptions], Lake]
) -> None:
    """``reselect.batch.max.keys`` limits a statement: ten calls of the same one."""
    shop = lake(replace(options, batch_max_keys=ROWS // 10))
    shop.batch(*placeholders(big=P, doc="x"))
    assert selects(contrib_postgres, table) == [(10, ROWS)]


def test_the_cache_leaves_nothing_to_ask(
    contrib_postgres: Postgres, table: TableId, options: ReselectOptions, lake: Callable[[ReselectOptions], Lake]
) -> None:
    """The cache has the values of earlier events, so their rows need no statement."""
    shop = lake(replace(options, cache_enabled=True, cache_admission="always"))
    shop.batch(*placeholders(big="told"))
    shop.batch(*placeholders(big=P, doc="x"))
    assert selects(contrib_postgres, table) == []
