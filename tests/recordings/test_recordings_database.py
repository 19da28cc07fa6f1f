"""The recordings with their database for reselect: cells sent as null or as the placeholder are right as well.

The database has the end state, as for a sink that lags behind. Only values that Debezium cannot represent differ
(``differences.WIRE``); for JSON without schemas the types come from the catalog.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from recordings.comparison import compared_tables, expectation, problems, records_of, rows_of
from recordings.database import load
from recordings.images import key_fields
from recordings.records import VARIANTS, Variant, batches, variant
from recordings.replay import Chunk, Replay, reselect_options

from headrace_connectors.sql import PostgresRowSource
from headrace_dev.postgres import Postgres

SHORT_FORM = ("a", "b36", "c2", "c5")
"""``make soak`` has the others, which ``test_recordings_memory.py`` has without a database as well."""

Databases = Callable[[Variant], dict[str, str]]


@pytest.fixture(scope="module")
def databases(contrib_postgres: Postgres) -> Databases:
    """Loads the end state of a variant's database on first use; returns reselect's options for it."""
    loaded: dict[str, str] = {}

    def options(of: Variant) -> dict[str, str]:
        name = of.dump_file.stem.replace("-", "_")
        if name not in loaded:
            contrib_postgres.create_database(name)
            with contrib_postgres.connect(name) as connection:
                load(connection, of)
            loaded[name] = name
        return {
            "reselect.database.hostname": "127.0.0.1",
            "reselect.database.port": str(contrib_postgres.port),
            "reselect.database.user": "postgres",
            "reselect.database.dbname": name,
        }

    return options


@pytest.mark.stack
@pytest.mark.parametrize("size", [10_000, 7, 1], ids=["one batch", "sevens", "single events"])
@pytest.mark.parametrize(
    "name", [name if name in SHORT_FORM else pytest.param(name, marks=pytest.mark.long) for name in VARIANTS]
)
def test_every_table(databases: Databases, name: str, size: int) -> None:
    """All tables equal the dump, including omitted cells, for any size of batches."""
    of = variant(name)
    source = PostgresRowSource(reselect_options(of, databases(of)))
    found = {}
    try:
        for table in compared_tables(of):
            replay, records = Replay(of, table, source, cached=size == 7), records_of(table, of)
            replay.deliver([Chunk(piece) for piece in batches(records, range(0, len(records), size))])
            replay.finish()
            fields = key_fields(records, of)
            want = expectation(table, of, fields, typed=True)
            found[table.name] = problems(want, rows_of(replay.content(), fields), reselected=True)
    finally:
        source.close()
    assert {table: lines for table, lines in found.items() if lines} == {}
