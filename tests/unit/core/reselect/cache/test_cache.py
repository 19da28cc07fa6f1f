"""The rules of the column cache (``reselect.md`` section 5.3), and the rows in memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contracts.row_store_suite import OpenRows, RowStoreSuite, row
from support.task.cache_harness import OTHER, P0, TABLE, Clock, begin, drop, get, make, put

from headrace.core.reselect.cache.rows import CacheLimits, Hit, MemoryRowStore, Origin, RowKey, Stamp

pytestmark = pytest.mark.usefixtures("cache_rows")


def test_get_returns_empty_on_miss() -> None:
    """A row that was never put is a miss."""
    assert get(make(), "1", 5) is None


def test_invalidate_removes_entry() -> None:
    """An invalidated column is a miss; other columns of the row stay cached."""
    cache = make()
    put(cache, "1", 1, big="A", doc="D")
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 2)).invalidate("big")
    batch.publish()
    assert get(cache, "1", 3) is None
    assert get(cache, "1", 3, "doc") == Hit("D")


def test_different_columns_and_rows_are_isolated() -> None:
    """A value is cached for its table, row and column only."""
    cache = make()
    put(cache, "1", 1, big="A")
    assert get(cache, "2", 5) is None
    assert get(cache, "1", 5, "doc") is None
    assert begin(cache, OTHER).for_row("1", Stamp(P0, 5)).get("big") is None


def test_null_values_are_cached_and_distinguished_from_miss() -> None:
    """A cached null is a hit."""
    cache = make()
    put(cache, "1", 1, big=None)
    assert get(cache, "1", 2) == Hit(None)


def test_key_schema_change_yields_miss() -> None:
    """N13: another key schema drops the table, also when it changes back."""
    cache = make()
    put(cache, "1", 1, big="A")
    begin(cache, key_schema="long").publish()
    assert get(cache, "1", 2) is None


def test_column_bound_evicts_lru_column_when_exceeded() -> None:
    """A row above ``max_columns`` evicts its least recently used column."""
    cache = make(max_columns=2)
    put(cache, "1", 1, a="1", b="2")
    assert get(cache, "1", 2, "a") == Hit("1")
    put(cache, "1", 3, c="3")
    assert get(cache, "1", 4, "b") is None
    assert get(cache, "1", 4, "a") == Hit("1")
    assert get(cache, "1", 4, "c") == Hit("3")


def test_entry_expires_after_ttl() -> None:
    """An entry expires when its TTL has passed since the put, by the cache's clock."""
    clock = Clock()
    cache = make(clock, ttl=100)
    put(cache, "1", 1, big="A")
    clock.now = 99
    assert get(cache, "1", 2) == Hit("A")
    clock.now = 100
    assert get(cache, "1", 2) is None
    assert len(cache) == 0


def test_truncate_rejects_reads_in_flight() -> None:
    """The cache rejects the answer of a query that began before a truncate."""
    cache = make()
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    cache.drop_table(TABLE, "truncate")
    batch.publish()
    assert get(cache, "1", 2) is None


def test_puts_are_refused_without_an_assignment() -> None:
    """The cache rejects puts for a partition that is not assigned to this worker."""
    cache = make()
    cache.revoke([P0])
    put(cache, "1", 1, big="A")
    assert len(cache) == 0


def test_late_event_does_not_overwrite_a_later_one() -> None:
    """Section 5.3 rule 1: a put from an event with a lower offset is rejected."""
    cache = make()
    put(cache, "1", 5, big="B")
    put(cache, "1", 3, big="A")
    assert get(cache, "1", 6) == Hit("B")


def test_drop_marker_outlives_slow_queries() -> None:
    """An answer for event 1 that arrives after the row was deleted at 5 is rejected."""
    cache = make()
    slow = begin(cache)
    put(cache, "1", 2, big="A")
    drop(cache, "1", 5)
    slow.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    slow.publish()
    assert get(cache, "1", 6) is None


def test_overlay_is_read_first_and_hidden_until_published() -> None:
    """A batch reads its own puts and drops; other batches read them after ``publish``."""
    cache = make()
    put(cache, "1", 1, big="A")
    batch = begin(cache)
    row = batch.for_row("1", Stamp(P0, 5))
    row.drop()
    assert row.get("big") is None
    row.put("big", "B")
    assert row.get("big") == Hit("B")
    assert get(cache, "1", 6) == Hit("A")
    batch.publish()
    assert get(cache, "1", 6) == Hit("B")


def test_bounds_of_rows_and_bytes() -> None:
    """Rows above ``max_rows`` or ``max_bytes`` evict the least recently used row; a larger value is not cached."""
    for cache in (make(max_rows=2), make(max_bytes=25_000)):
        put(cache, "1", 0, big="x" * 10_000)
        put(cache, "2", 1, big="x" * 10_000)
        assert get(cache, "1", 2) is not None
        put(cache, "3", 3, big="x" * 10_000)
        assert [get(cache, key, 9) is None for key in "123"] == [False, True, False]
    cache = make(max_value_bytes=3)
    put(cache, "1", 1, big="long")
    assert get(cache, "1", 9) is None


class TestMemoryRowStore(RowStoreSuite):
    """A ``MemoryRowStore`` passes the suite of row stores."""

    @pytest.fixture
    def open_rows(self) -> OpenRows:
        """Open an empty store."""
        return MemoryRowStore


def test_oldest_returns_the_oldest_stored_cell() -> None:
    """``oldest`` returns the lowest ``stored`` of the rows that are neither replaced, dropped nor evicted."""
    store = MemoryRowStore(CacheLimits(max_rows=2))
    assert store.oldest() is None
    for number, stored in enumerate((1, 2, 3)):
        cells = {name: replace(cell, stored=stored) for name, cell in row().items()}
        store.put(RowKey(1, f"k{number}"), cells)
    assert store.oldest() == 2
    store.put(RowKey(1, "k1"), row(offset=9))
    assert store.oldest() == 3
    store.drop_table(None)
    assert store.oldest() is None
