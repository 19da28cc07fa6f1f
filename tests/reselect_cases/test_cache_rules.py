"""Cases of the cache alone: partitions, offsets, positions, failures, bounds (``reselect.md`` section 6).

Every test is named after its case; ``take_out.py`` shows that it fails without its rule.
"""

from __future__ import annotations

import inspect
import time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from support.task.cache_harness import OTHER, P0, P1, TABLE, BreakableStore, Clock, begin, drop, get, make, put
from support.task.reselect_harness import Lake, database, u

from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn, SqlType
from headrace.core.model.events import Column, TableId
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Schema
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.cache.column_cache import ReselectColumnCache
from headrace.core.reselect.cache.rows import CacheLimits, Hit, MemoryRowStore, Origin, Stamp
from headrace.core.reselect.cached_cells import from_cache, put_answers
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rules import table_rules
from headrace.runtime.pipeline.reselect import Reselect

pytestmark = pytest.mark.usefixtures("cache_rows")


def test_s07_put_after_revocation_is_rejected() -> None:
    """S7: the cache rejects an answer that arrives after the revocation, now and under a later assignment."""
    cache = make()
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    cache.revoke([P0])
    cache.assign([P0])
    batch.publish()
    assert get(cache, "1", 5) is None


def test_s07_the_new_owner_s_value_stays_in_a_shared_store() -> None:
    """S7: worker 1 pauses in a query and is revoked; worker 2 puts B; worker 1 resumes and its A is rejected."""
    store, limits = MemoryRowStore(CacheLimits()), CacheLimits()
    first, second = (ReselectColumnCache(store, limits, Clock(), Placeholder().is_form) for _ in range(2))
    first.assign([P0])
    slow = begin(first)
    slow.for_row("1", Stamp(P0, 9)).put("big", "A", Origin.DB)
    first.revoke([P0])
    second.assign([P0])
    put(second, "1", 5, big="B")
    slow.publish()
    assert get(second, "1", 10) == Hit("B")
    assert first.counts["writes", Origin.DB, "generation"] == 1


def test_s08_slow_query_does_not_overwrite_a_later_event() -> None:
    """S8: an answer for event 1 that arrives after event 5 is rejected."""
    cache = make()
    slow = begin(cache)
    put(cache, "1", 5, big="B")
    slow.for_row("1", Stamp(P0, 1)).put("big", "A", Origin.DB)
    slow.publish()
    assert get(cache, "1", 6) == Hit("B")


def test_s11_entry_ahead_of_the_event_is_a_miss() -> None:
    """S11: the cache serves replayed events no values of later ones."""
    cache = make()
    put(cache, "1", 100, big="A")
    assert get(cache, "1", 60) is None
    assert get(cache, "1", 101) == Hit("A")


def test_s22_fingerprint_mismatch_is_a_miss() -> None:
    """S22, D6: the cached values of a column whose type changed, or that was dropped and added, are not served."""
    cache = make()
    batch = begin(cache, big="text 3")
    batch.for_row("1", Stamp(P0, 1)).put("big", "A")
    batch.publish()
    assert begin(cache, big="text 4").for_row("1", Stamp(P0, 2)).get("big") is None
    assert begin(cache, big="text 3").for_row("1", Stamp(P0, 2)).get("big") == Hit("A")


# -- S26: which keys are one row ---------------------------------------------------------------------------------------

TEXT, NUMERIC = Schema("string"), Schema("bytes", name="org.apache.kafka.connect.data.Decimal")
MILLIS = Schema("int64", name="org.apache.kafka.connect.data.Timestamp")


def caches(type_name: str, schema: Schema, *, typmod: int = -1, deterministic: bool = True, known: bool = True) -> bool:
    """Whether the cache accepts a table whose key has this type and wire form."""
    key_type = SqlType(1, "pg_catalog", type_name)
    big = CatalogColumn("big", 2, SqlType(25, "pg_catalog", "text"), attstorage="x")
    key = (KeyColumn("id", key_type, deterministic=deterministic),)
    catalog = CatalogTable(TABLE, "r", "d", (CatalogColumn("id", 1, key_type, typmod), big), key)
    columns = (Column("id", schema, pa.nulls(0)), Column("big", Schema("string", optional=True), pa.nulls(0)))
    options = ReselectOptions(cache_enabled=True, cache_admission="always")
    return table_rules(TABLE, columns, ("id",), options, catalog if known else None, has_source=known).caches


@pytest.mark.parametrize(
    ("type_name", "schema", "more"),
    [
        ("citext", TEXT, {}),
        ("text", TEXT, {"deterministic": False}),
        ("float8", Schema("double"), {}),
        ("numeric", TEXT, {}),
        ("numeric", Schema("double"), {}),
        ("timestamp", MILLIS, {}),
        ("timetz", TEXT, {}),
        ("interval", Schema("int64"), {}),
        ("jsonb", TEXT, {}),
    ],
)
def test_s26_keys_whose_texts_do_not_identify_rows_are_not_cached(
    type_name: str, schema: Schema, more: dict[str, Any]
) -> None:
    """S26: keys that are equal in the database with different texts, or different with equal texts, are not cached."""
    assert not caches(type_name, schema, **more)


@pytest.mark.parametrize(
    ("type_name", "schema", "typmod"),
    [("int8", Schema("int64"), -1), ("bpchar", TEXT, 14), ("numeric", NUMERIC, -1), ("timestamp", MILLIS, 3)],
)
def test_s26_other_keys_are_cached(type_name: str, schema: Schema, typmod: int) -> None:
    """S26: a row has one text."""
    assert caches(type_name, schema, typmod=typmod)


def test_s26_equal_keys_have_one_text_and_different_ones_never() -> None:
    """S26: 1, 1.0 and a decimal 1 are one row; the parts of a composite key are separated."""
    ones = [pa.array([1], pa.int32()), pa.array([Decimal("1.0")]), pa.array([Decimal("1")]), pa.array([1.0])]
    assert {canonical_keys([one])[0].as_py().removesuffix(".0") for one in ones[:3]} == {"=1"}
    pairs = [("a", "b,c"), ("a,1:b", "c"), ("", "ab"), ("ab", "")]
    texts = {canonical_keys([pa.array([left]), pa.array([right])])[0].as_py() for left, right in pairs}
    assert len(texts) == len(pairs)


def test_s26_without_a_catalog_texts_of_mysql_are_not_trusted() -> None:
    """S26: MySQL compares 'A' and 'a' as equal, and its events do not contain the collation."""
    mysql = TableId("shop", "shop", "", "orders")
    columns = (Column("id", TEXT, pa.nulls(0)), Column("big", Schema("string", optional=True), pa.nulls(0)))
    options = ReselectOptions(cache_enabled=True, cache_admission="always")
    assert not table_rules(mysql, columns, ("id",), options, None, has_source=False).caches
    assert table_rules(TABLE, columns, ("id",), options, None, has_source=False).caches


# -- S27 to S35 --------------------------------------------------------------------------------------------------------


def test_s27_entry_of_another_partition_is_a_miss() -> None:
    """S27: after the partition count grew, the key's new partition does not use the old one's entry."""
    cache = make()
    put(cache, "1", 1, big="A")
    assert get(cache, "1", 9, partition=P1) is None


def test_s27_topic_can_be_dropped() -> None:
    """S27: a changed partition count invalidates the topic."""
    cache = make()
    put(cache, "1", 1, big="A")
    cache.drop_topic("orders", "partitions")
    assert get(cache, "1", 2) is None


def test_s28_what_is_cached_shares_nothing_with_the_batch() -> None:
    """S28: changes of the buffers from which a value came, or to which it was copied, change no cached value."""
    buffer = np.array([1, 2, 3], np.int64)
    lists = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), pa.array(buffer))
    cache = make()
    batch = begin(cache)
    actions = Lake(database()).resolve(u(1, big="x"))
    put_answers(actions, "big", np.array([0]), lists, batch)
    batch.publish()
    buffer[:] = 0
    hit = get(cache, "=1", 9)
    assert hit is not None
    served = from_cache(lists.type, [hit.value])
    assert served.to_pylist() == [[1, 2, 3]]
    with pytest.raises(ValueError, match="read-only"):
        np.asarray(served.flatten())[0] = 7


def test_s29_row_whose_drop_failed_is_poisoned() -> None:
    """S29: a value whose drop failed is not served when the store works again; a new write makes the row valid."""
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


def test_s30_the_clock_is_monotonic() -> None:
    """S30: a wall clock that steps back would extend the life of values; the default clock is monotonic."""
    clock = inspect.signature(Reselect).parameters["clock"].default
    assert clock is time.monotonic
    assert time.get_clock_info("monotonic").monotonic


def test_s31_failed_batch_leaves_no_trace() -> None:
    """S31: a discarded batch drops the rows that it changed, and keeps the others."""
    cache = make()
    put(cache, "1", 1, big="A")
    put(cache, "2", 1, big="A2")
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 5)).put("big", "B")
    batch.discard()
    assert get(cache, "1", 6) is None
    assert get(cache, "2", 6) == Hit("A2")


def test_s35_quota_keeps_a_share_for_other_tables() -> None:
    """S35 is about fairness, not about right values: a hot table stays within its quota."""
    cache = make(max_table_bytes=2000, max_rows=10)
    put(cache, "1", 1, OTHER, big="O")
    for key in range(50):
        put(cache, str(key), key, big="x" * 600)
    assert begin(cache, OTHER).for_row("1", Stamp(P0, 5)).get("big") == Hit("O")
    assert cache.size < 4000


# -- N9 to N13 ---------------------------------------------------------------------------------------------------------


def test_n09_batch_in_flight_brings_nothing_older_than_a_lost_event() -> None:
    """N9: the event at 50 was not applied; a value of 40 that is published later is not stored, one of 60 is."""
    cache = make()
    put(cache, "0", 30, big="A")
    batch = begin(cache)
    batch.for_row("1", Stamp(P0, 40)).put("big", "A")
    batch.for_row("2", Stamp(P0, 60)).put("big", "C")
    cache.lose(P0, 50)
    batch.publish()
    assert [get(cache, key, 70) for key in "012"] == [None, None, Hit("C")]


def test_n11_zero_ttl_never_expires() -> None:
    """N11: with ``ttl.ms=0`` an entry does not expire."""
    clock = Clock()
    cache = make(clock, ttl=0)
    put(cache, "1", 1, big="A")
    clock.now = 10**15
    assert get(cache, "1", 2) == Hit("A")


def test_n12_no_hit_from_a_newer_position() -> None:
    """N12: a restarted connector sends lower positions with higher offsets; they get no newer value of the cache."""
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


def test_n13_key_schema_that_changed_and_changed_back_drops_the_table_each_time() -> None:
    """N13: another decimal mode changes the texts of keys, so each change of the mode invalidates the old entries."""
    cache = make()
    put(cache, "1", 1, big="A")
    begin(cache, key_schema="string").publish()
    assert len(cache) == 0
    begin(cache, key_schema="int").publish()
    assert get(cache, "1", 2) is None
