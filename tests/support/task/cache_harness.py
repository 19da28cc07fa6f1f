"""A column cache for tests; ``put``, ``get`` and ``drop`` are batches of one event each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from support.clock import Clock

from headrace.core.model.events import TableId
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.cache.column_cache import CacheBatch, ReselectColumnCache
from headrace.core.reselect.cache.rows import (
    CacheLimits,
    Hit,
    MemoryRowStore,
    Partition,
    Row,
    RowKey,
    RowStore,
    Stamp,
    StoreFailed,
)

TABLE = TableId("shop", "inventory", "public", "orders")
OTHER = TableId("shop", "inventory", "public", "items")
P0, P1 = Partition("orders", 0), Partition("orders", 1)
P = "__debezium_unavailable_value"


OpenRows = Callable[[CacheLimits], RowStore]
_open_rows: list[OpenRows] = [MemoryRowStore]


@contextmanager
def rows_in(open_rows: OpenRows) -> Iterator[None]:
    """Let ``make`` create caches on stores of ``open_rows`` until the context ends."""
    _open_rows.append(open_rows)
    try:
        yield
    finally:
        _open_rows.pop()


def make(clock: Clock | None = None, **limits: int) -> ReselectColumnCache:
    bounds = CacheLimits(**limits)
    cache = ReselectColumnCache(_open_rows[-1](bounds), bounds, clock or Clock(), Placeholder().is_form)
    cache.assign([P0, P1])
    return cache


def begin(
    cache: ReselectColumnCache, table: TableId = TABLE, key_schema: object = "int", **prints: object
) -> CacheBatch:
    return cache.begin(table, key_schema, prints)


def put(
    cache: ReselectColumnCache, key: str, offset: int, table: TableId = TABLE, position: bytes = b"", **cells: object
) -> None:
    batch = begin(cache, table)
    for column, value in cells.items():
        batch.for_row(key, Stamp(P0, offset, position)).put(column, value)  # type: ignore[arg-type]  # any cell value
    batch.publish()


def get(
    cache: ReselectColumnCache,
    key: str,
    offset: int,
    column: str = "big",
    partition: Partition = P0,
    position: bytes = b"",
) -> Hit | None:
    batch = begin(cache)
    hit = batch.for_row(key, Stamp(partition, offset, position)).get(column)
    batch.publish()
    return hit


def drop(cache: ReselectColumnCache, key: str, offset: int) -> None:
    batch = begin(cache)
    batch.for_row(key, Stamp(P0, offset)).drop()
    batch.publish()


class BreakableStore(MemoryRowStore):
    """A store whose ``get`` and ``drop`` raise StoreFailed while ``broken`` is set."""

    broken = False

    def drop(self, key: RowKey) -> None:
        if self.broken:
            raise StoreFailed
        super().drop(key)

    def get(self, key: RowKey) -> Row | None:
        if self.broken:
            raise StoreFailed
        return super().get(key)
