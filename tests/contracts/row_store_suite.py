"""Contract of every row store of the column cache. A subclass provides ``open_rows``."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.core.reselect.cache.rows import CacheLimits, Cell, Origin, Partition, Row, RowKey, RowStore, Stamp

OpenRows = Callable[[CacheLimits], RowStore]
PARTITION = Partition("orders", 0)


def row(value: str | bytes | None = "A", column: str = "big", offset: int = 1) -> Row:
    """A row with one cell."""
    size = 0 if value is None else len(value)
    return {column: Cell(value, "print", Stamp(PARTITION, offset, b"p"), 1, Origin.EVENT, 5, 150 + size)}


class RowStoreSuite:
    """Inherit from it and provide the fixture ``open_rows``."""

    @pytest.fixture
    def open_rows(self) -> OpenRows:
        """Opens an empty store with these bounds."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_rows: OpenRows) -> RowStore:
        """An empty store with the default bounds."""
        return open_rows(CacheLimits())

    def test_row_comes_back_as_it_was(self, store: RowStore) -> None:
        """The store returns every part of every cell, and the columns in the order of their last use."""
        stored = {**row("text", "b"), **row(b"octets", "a"), **row(None, "c", 9)}
        store.put(RowKey(1, "k"), stored)
        found = store.get(RowKey(1, "k"))
        assert found == stored
        assert found is not None
        assert list(found) == ["b", "a", "c"]

    def test_row_that_is_not_there(self, store: RowStore) -> None:
        """Get returns None for an unknown row, and drop has no effect."""
        store.drop(RowKey(1, "k"))
        assert store.get(RowKey(1, "k")) is None
        assert len(store) == 0

    def test_put_replaces_the_row(self, store: RowStore) -> None:
        """Put replaces the complete row, which counts once."""
        store.put(RowKey(1, "k"), {**row("A", "a"), **row("B", "b")})
        store.put(RowKey(1, "k"), row("C", "a"))
        assert store.get(RowKey(1, "k")) == row("C", "a")
        assert len(store) == 1

    def test_dropped_row_is_gone(self, store: RowStore) -> None:
        """A dropped row is not found and uses no bytes."""
        store.put(RowKey(1, "k"), row())
        store.drop(RowKey(1, "k"))
        assert (store.get(RowKey(1, "k")), len(store), store.size, store.holds(1)) == (None, 0, 0, False)

    def test_tables_are_apart(self, store: RowStore) -> None:
        """Drop of a table keeps other tables; equal keys in two tables are two rows."""
        for table in (1, 2, 256):
            for key in ("", "k", "ü\x00"):
                store.put(RowKey(table, key), row(str(table)))
        assert set(store.keys(2)) == {RowKey(2, key) for key in ("", "k", "ü\x00")}
        assert store.drop_table(2) == 3
        assert [store.holds(table) for table in (1, 2, 256)] == [True, False, True]
        assert store.get(RowKey(2, "k")) is None
        assert store.get(RowKey(256, "k")) == row("256")
        assert store.drop_table(None) == 6
        assert list(store.keys(None)) == []

    def test_row_that_was_used_longest_ago_goes_first(self, open_rows: OpenRows) -> None:
        """The store evicts the least recently used row of all tables; a read counts as use."""
        store = open_rows(CacheLimits(max_rows=3))
        for table, key in ((1, "a"), (2, "b"), (1, "c")):
            store.put(RowKey(table, key), row())
        assert store.get(RowKey(1, "a")) is not None
        store.put(RowKey(2, "d"), row())
        assert set(store.keys(None)) == {RowKey(1, "a"), RowKey(1, "c"), RowKey(2, "d")}

    def test_bytes_are_bounded(self, open_rows: OpenRows) -> None:
        """The bound applies to the sum of all rows.

        A row larger than the bound is not stored, and drops the row it replaces.
        """
        store = open_rows(CacheLimits(max_bytes=50_000))
        for key in "abcdef":
            store.put(RowKey(1, key), row("x" * 10_000))
        assert store.size <= 50_000
        assert store.get(RowKey(1, "f")) is not None
        assert store.get(RowKey(1, "a")) is None
        store.put(RowKey(1, "f"), row("x" * 60_000))
        assert store.get(RowKey(1, "f")) is None

    def test_table_keeps_within_its_quota(self, open_rows: OpenRows) -> None:
        """S35: a hot table evicts its own rows."""
        store = open_rows(CacheLimits(max_table_bytes=25_000))
        store.put(RowKey(2, "other"), row())
        for key in range(20):
            store.put(RowKey(1, str(key)), row("x" * 10_000))
        assert len(store.keys(1)) == 2
        assert store.get(RowKey(2, "other")) is not None
