"""The catalog entries that a task knows: when they are read again, and when an earlier one suffices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from unit.runtime.reselect_harness import NO_CACHE, TABLE, TEXT, Clock, catalog, database

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.runtime.pipeline.source_catalog import SourceCatalog
from headrace.runtime.pipeline.source_reader import NoMetrics, SourceReader
from headrace_connectors.memory import MemoryRowSource

BEFORE = catalog()
AFTER = catalog(not_null=True)
NARROW = Schema("struct", fields=(Field("big", TEXT),))


class Source(MemoryRowSource):
    """A database whose catalog counts its reads, and can fail."""

    reads = 0
    down = False

    def catalog(self, table: TableId) -> CatalogTable | None:
        self.reads += 1
        if self.down:
            raise Retriable("the database is down")
        return super().catalog(table)


@pytest.fixture
def source() -> Source:
    found = Source()
    found.add(BEFORE, database().schema(BEFORE))
    return found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tables(source: Source, clock: Clock) -> SourceCatalog:
    options = replace(NO_CACHE, errors_retry_timeout_ms=0)
    return SourceCatalog(SourceReader(source, options, NoMetrics(), clock), 1000, clock)


def test_an_entry_is_read_again_after_the_interval(source: Source, tables: SourceCatalog, clock: Clock) -> None:
    """Until then the database is not queried."""
    assert tables.table(TABLE) == BEFORE
    source.add(AFTER, NARROW)
    assert (tables.table(TABLE), source.reads) == (BEFORE, 1)
    clock.now = 1.0
    assert (tables.table(TABLE), source.reads) == (AFTER, 2)


def test_a_discarded_entry_is_read_again_at_once(source: Source, tables: SourceCatalog) -> None:
    """So it is after an altered table, and after a failed read."""
    tables.table(TABLE)
    source.add(AFTER, NARROW)
    tables.discard(TABLE)
    assert tables.table(TABLE) == AFTER


def test_an_entry_outlives_its_interval_while_the_database_is_down(
    source: Source, tables: SourceCatalog, clock: Clock
) -> None:
    """Without an earlier entry the error is raised."""
    source.down = True
    with pytest.raises(Retriable):
        tables.table(TABLE)
    source.down = False
    tables.table(TABLE)
    source.down, clock.now = True, 1.0
    assert tables.table(TABLE) == BEFORE


def test_the_schema_of_now_is_read_once_per_chunk(source: Source, tables: SourceCatalog) -> None:
    """An entry from before the chunk may be older than its records."""
    tables.begin_chunk()
    tables.schema_now(TABLE)
    source.add(AFTER, NARROW)
    assert (tables.schema_now(TABLE), source.reads) == (NARROW, 1)
    tables.begin_chunk()
    assert (tables.schema_now(TABLE), tables.schema_now(TABLE), source.reads) == (NARROW, NARROW, 2)
    assert tables.table(TABLE) == AFTER


def test_the_schema_of_now_is_never_an_earlier_one(source: Source, tables: SourceCatalog) -> None:
    """While the database is down, the chunk has to wait."""
    tables.table(TABLE)
    tables.begin_chunk()
    source.down = True
    with pytest.raises(Retriable):
        tables.schema_now(TABLE)


def test_without_a_database_nothing_is_known(clock: Clock) -> None:
    """Neither a table nor a schema."""
    tables = SourceCatalog(None, 1000, clock)
    assert (tables.table(TABLE), tables.schema(TABLE), tables.schema_now(TABLE)) == (None, None, None)
