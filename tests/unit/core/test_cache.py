"""The contract of the reselect column cache (``reselect.md`` sections 5, 6 and 10)."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pytest

from headrace.core.cache import CacheBatch, MemoryReselectColumnCache, ReselectColumnCache
from headrace.core.cache_rows import (
    CacheLimits,
    Hit,
    MemoryRowStore,
    Origin,
    Partition,
    Row,
    RowKey,
    Stamp,
    StoreFailed,
)
from headrace.core.events import TableId
from headrace.core.unavailable import Placeholder

TABLE = TableId("shop", "inventory", "public", "orders")
OTHER = TableId("shop", "inventory", "public", "items")
P0, P1 = Partition("orders", 0), Partition("orders", 1)
P = "__debezium_unavailable_value"


class Clock:
    """Milliseconds that pass only when told to."""

    now = 0

    def __call__(self) -> int:
        return self.now


def make(clock: Clock | None = None, **limits: int) -> MemoryReselectColumnCache:
    cache = MemoryReselectColumnCache(CacheLimits(**limits), clock or Clock(), Placeholder().is_form)
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


def test_get_returns_empty_on_miss() -> None:
    """A row that was never put is a miss."""
    assert get(make(), "1", 5) is None


def test_invalidate_removes_entry() -> None:
    """An invalidated column is a miss, its neighbours stay."""
    cache = make()
    put(cache, "1", 1, big="A", doc="D")
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 2)).invalidate("big")
    batch.publish()
    assert get(cache, "1", 3) is None
    assert get(cache, "1", 3, "doc") == Hit("D")


def test_different_columns_and_rows_are_isolated() -> None:
    """Rows, columns and tables share nothing."""
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
    """The column that was used longest ago goes when a row has too many."""
    cache = make(max_columns=2)
    put(cache, "1", 1, a="1", b="2")
    assert get(cache, "1", 2, "a") == Hit("1")
    put(cache, "1", 3, c="3")
    assert get(cache, "1", 4, "b") is None
    assert get(cache, "1", 4, "a") == Hit("1")
    assert get(cache, "1", 4, "c") == Hit("3")


def test_entry_expires_after_ttl() -> None:
    """TTL counts from the put, on a monotonic clock that is read by nobody else (S30)."""
    clock = Clock()
    cache = make(clock, ttl=100)
    put(cache, "1", 1, big="A")
    clock.now = 99
    assert get(cache, "1", 2) == Hit("A")
    clock.now = 100
    assert get(cache, "1", 2) is None
    assert len(cache) == 0


def test_n11_zero_ttl_never_expires() -> None:
    """N11: ``ttl.ms=0`` is for ever."""
    clock = Clock()
    cache = make(clock, ttl=0)
    put(cache, "1", 1, big="A")
    clock.now = 10**15
    assert get(cache, "1", 2) == Hit("A")


def test_s2_delete_makes_every_later_get_a_miss() -> None:
    """S2: what a deleted row held is never served to the next row of that key."""
    cache = make()
    put(cache, "1", 1, big="A")
    drop(cache, "1", 2)
    assert get(cache, "1", 3) is None


def test_s3_truncate_drops_the_table_only() -> None:
    """S3: a truncate drops every row of the table, and no other table's."""
    cache = make()
    put(cache, "1", 1, big="A")
    put(cache, "1", 1, OTHER, big="O")
    cache.drop_table(TABLE, "truncate")
    assert get(cache, "1", 3) is None
    assert begin(cache, OTHER).for_row("1", Stamp(P0, 5)).get("big") == Hit("O")


def test_truncate_rejects_reads_in_flight() -> None:
    """A query that began before a truncate does not store its answer."""
    cache = make()
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    cache.drop_table(TABLE, "truncate")
    batch.publish()
    assert get(cache, "1", 2) is None


def test_s6_assignment_drops_entries_of_an_earlier_one() -> None:
    """S6: a partition that went away and came back starts empty."""
    cache = make()
    put(cache, "1", 1, big="A")
    cache.revoke([P0])
    cache.assign([P0])
    assert get(cache, "1", 5) is None


def test_s7_put_after_revocation_is_rejected() -> None:
    """S7: an answer that arrives after the partition went is not stored, now or under a later assignment."""
    cache = make()
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    cache.revoke([P0])
    cache.assign([P0])
    batch.publish()
    assert get(cache, "1", 5) is None


def test_puts_are_refused_without_an_assignment() -> None:
    """What is not ours is not cached."""
    cache = make()
    cache.revoke([P0])
    put(cache, "1", 1, big="A")
    assert len(cache) == 0


def test_s8_slow_query_does_not_overwrite_a_later_event() -> None:
    """S8: an answer for event 1 that arrives after event 5 is rejected."""
    cache = make()
    slow = begin(cache)
    put(cache, "1", 5, big="B")
    slow.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    slow.publish()
    assert get(cache, "1", 6) == Hit("B")


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


def test_s11_entry_ahead_of_the_event_is_a_miss() -> None:
    """S11: replayed events do not see what later ones put."""
    cache = make()
    put(cache, "1", 100, big="A")
    assert get(cache, "1", 60) is None
    assert get(cache, "1", 101) == Hit("A")


def test_n12_no_hit_from_a_newer_position() -> None:
    """N12: a restarted connector sends older positions under higher offsets; the newer value is not theirs."""
    cache = make()
    put(cache, "1", 10, position=b"5", big="new")
    assert get(cache, "1", 12, position=b"3") is None
    assert get(cache, "1", 14, position=b"6") == Hit("new")


def test_n12_put_whose_position_falls_drops_the_row() -> None:
    """N12: a put with a higher offset and a lower position stores nothing and drops the row."""
    cache = make()
    put(cache, "1", 10, position=b"5", big="new", doc="D")
    put(cache, "1", 12, position=b"3", big="old")
    assert get(cache, "1", 14, position=b"6") is None
    assert get(cache, "1", 14, "doc", position=b"6") is None


@pytest.mark.parametrize("form", [P, P.encode(), P.encode().hex()])
def test_s18_placeholders_are_refused(form: str | bytes) -> None:
    """S18, D4: no form of the placeholder is ever cached, and the old value is gone."""
    cache = make()
    put(cache, "1", 1, big="A")
    put(cache, "1", 2, big=form)
    assert get(cache, "1", 3) is None


def test_s18_placeholder_lists_are_refused() -> None:
    """S18: ``uuid[]`` placeholders as well."""
    cache = make()
    put(cache, "1", 1, big=pa.array([["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]]))
    assert get(cache, "1", 3) is None


def test_s22_fingerprint_mismatch_is_a_miss() -> None:
    """S22, D6: after a column was retyped, or dropped and added again, its cached values are not served."""
    cache = make()
    batch = begin(cache, big=("text", 3))
    batch.for_row("1", Stamp(P0, 1)).put("big", "A")
    batch.publish()
    assert begin(cache, big=("text", 4)).for_row("1", Stamp(P0, 2)).get("big") is None
    assert begin(cache, big=("text", 3)).for_row("1", Stamp(P0, 2)).get("big") == Hit("A")


def test_s27_entry_of_another_partition_is_a_miss() -> None:
    """S27: when the partition count was raised, the key's new partition does not see the old one's entry."""
    cache = make()
    put(cache, "1", 1, big="A")
    assert get(cache, "1", 9, partition=P1) is None


def test_s27_topic_can_be_dropped() -> None:
    """S27: a changed partition count drops the topic."""
    cache = make()
    put(cache, "1", 1, big="A")
    cache.drop_topic("orders", "partitions")
    assert len(cache) == 0


class BreakableStore(MemoryRowStore):
    """A store whose writes can be made to fail."""

    broken = False

    def drop(self, key: RowKey) -> None:
        if self.broken:
            raise StoreFailed
        super().drop(key)

    def get(self, key: RowKey) -> Row | None:
        if self.broken:
            raise StoreFailed
        return super().get(key)

    def keys(self, table: int | None) -> Collection[RowKey]:
        return super().keys(table)


def test_s29_row_whose_drop_failed_is_poisoned() -> None:
    """S29: a value that should have been dropped is not served after the store recovers; a new write heals the row."""
    store = BreakableStore(CacheLimits())
    cache = ReselectColumnCache(store, CacheLimits(), Clock(), Placeholder().is_form)
    cache.assign([P0])
    put(cache, "1", 1, big="A")
    store.broken = True
    drop(cache, "1", 2)
    assert get(cache, "1", 3) is None
    store.broken = False
    assert get(cache, "1", 3) is None
    put(cache, "1", 4, big="B")
    assert get(cache, "1", 5) == Hit("B")


def test_s31_failed_batch_leaves_no_trace() -> None:
    """S31: a discarded batch drops the rows that it touched, and the others stay."""
    cache = make()
    put(cache, "1", 1, big="A")
    put(cache, "2", 1, big="A2")
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 5)).put("big", "B")
    batch.discard()
    assert get(cache, "1", 6) is None
    assert get(cache, "2", 6) == Hit("A2")


def test_overlay_is_read_first_and_hidden_until_published() -> None:
    """Within a batch its own puts and drops count; other batches see them after the commit."""
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
    """The least recently used row goes first; a value beyond its bound is not cached."""
    cache = make(max_rows=2)
    for offset, key in enumerate("123"):
        put(cache, key, offset, big="A")
    assert [get(cache, key, 9) is None for key in "123"] == [True, False, False]
    cache = make(max_bytes=2000)
    for offset, key in enumerate("123"):
        put(cache, key, offset, big="x" * 600)
    assert [get(cache, key, 9) is None for key in "123"] == [True, False, False]
    cache = make(max_value_bytes=3)
    put(cache, "1", 1, big="long")
    assert get(cache, "1", 9) is None


def test_s35_quota_keeps_a_share_for_other_tables() -> None:
    """S35: a hot table stays within its quota."""
    cache = make(max_table_bytes=2000)
    put(cache, "1", 1, OTHER, big="O")
    for key in range(50):
        put(cache, str(key), key, big="x" * 600)
    assert begin(cache, OTHER).for_row("1", Stamp(P0, 5)).get("big") == Hit("O")
    assert cache.rows.size < 4000
