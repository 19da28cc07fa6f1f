"""Tests of the cached catalog entries of a task, and when they are read again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.task.reselect_harness import NO_CACHE, TABLE, TEXT, Clock, catalog, database

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.runtime.pipeline.source_catalog import SourceCatalog
from headrace.runtime.pipeline.source_reader import NoMetrics, SourceReader
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
