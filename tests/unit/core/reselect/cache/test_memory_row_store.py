"""Rows of the column cache in memory pass the suite of row stores."""

from __future__ import annotations

from dataclasses import replace

import pytest
from contracts.row_store_suite import OpenRows, RowStoreSuite, row

from headrace.core.reselect.cache.rows import CacheLimits, MemoryRowStore, RowKey


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
