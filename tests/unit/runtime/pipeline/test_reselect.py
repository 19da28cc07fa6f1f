"""Tests of reselect with the column cache: upstream's cases by name, and stale reads of S1 to S34 and N."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.task.reselect_harness import (
    CACHE,
    DOUBT,
    NO_CACHE,
    NULLS,
    TABLE,
    Lake,
    P,
    c,
    catalog,
    database,
    r,
    row,
    u,
)

from headrace.core.batch.event_pairs import TooLarge
from headrace.core.merge.fold import fold
from headrace.core.model.catalog import Dialect, HandlingModes, SqlType
from headrace.core.model.errors import Fatal
from headrace.core.model.events import CellState
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import FIRST_GUESS

# -- upstream's ReselectColumnsPostProcessorCacheTest -----------------------------------------------------------------


def test_cache_disabled_queries_database_every_time() -> None:
    """Without the cache every placeholder queries the database."""
    lake = Lake(database(row(1, "A")), NO_CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert (lake.big(), lake.queries) == ("A", 2)


def test_cache_enabled_second_apply_served_from_cache() -> None:
    """A value that was read once is served from the cache."""
    lake = Lake(database(row(1, "A")), CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert (lake.big(), lake.queries) == ("A", 1)


def test_a_table_is_cached_after_one_of_its_rows_was_read_again() -> None:
    """With the default admission the second read of a row still queries the database, and no event is cached."""
    lake = Lake(database(row(1, "A"), row(2, "B")), replace(CACHE, cache_admission="reuse"))
    lake.each(u(1, big=P), u(2, big="B"))
    assert not lake.post.cache.take_counts()[0].rows
    lake.each(u(1, big=P), u(2, big=P))
    assert lake.queries == 3
    lake.each(u(1, big=P), u(1, big=P), u(2, big=P))
    assert (lake.big(), lake.queries) == ("A", 4)


def test_partial_hit_serves_query_and_modify_cached_columns_without_requery() -> None:
    """A query selects only the column that the cache does not have."""
    lake = Lake(database(row(1, "A", "D")), CACHE)
    lake.each(u(1, big="B", doc=None), u(1, big=P, doc=P))
    assert lake.source is not None
    assert [column.name for column in lake.source.requests[-1].columns] == ["doc"]
    assert lake.rows[1] == {"big": "B", "doc": "D"}


def test_modified_column_is_cached_and_served_to_later_placeholder_event() -> None:
    """A value of an event is cached, so that a later placeholder needs no query."""
    lake = Lake(database(), CACHE)
    lake.each(u(1, big="B"), u(1, big=P, doc="x"))
    assert (lake.big(), lake.queries) == ("B", 0)


def test_cache_entry_expires_after_ttl() -> None:
    """After ``reselect.cache.ttl.ms`` a placeholder queries the database again."""
    lake = Lake(database(row(1, "later")), replace(CACHE, cache_ttl_ms=1000))
    lake.batch(u(1, big="B"))
    lake.clock.now = 1.0
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("later", 1)


def test_different_keys_do_not_share_cache_entry() -> None:
    """A placeholder is not filled from the cache entry of another row."""
    lake = Lake(database(row(2, "two")), CACHE)
    lake.each(u(1, big="one"), u(2, big=P))
    assert lake.big(2) == "two"


def test_read_events_are_never_reselected() -> None:
    """A null of a snapshot read is a value, and is not read again."""
    lake = Lake(database(row(1, "A")), NULLS)
    lake.batch(r(1, big=None))
    assert (lake.big(), lake.queries) == (None, 0)


# -- number and size of queries ---------------------------------------------------------------------------------------


def test_batch_without_open_cells_is_returned_unchanged() -> None:
    """Without open cells and without a cache the same actions are returned."""
    lake = Lake(database(), NO_CACHE)
    actions = lake.resolve(c(1, big="A"), c(2, big=None))
    assert lake.post.resolve(actions).actions is actions
    assert lake.queries == 0


def test_one_select_for_a_batch() -> None:
    """A batch needs one SELECT for its distinct rows, with the columns that each row needs."""
    lake = Lake(database(row(1, "A", "D"), row(2, "B", "E")), NO_CACHE)
    lake.batch(u(1, big=P, doc="x"), u(2, big="y", doc=P), u(1, big=P, doc="z"))
    assert lake.queries == 1
    assert lake.source is not None
    assert lake.source.requests[0].needs.tolist() == [[True, False], [False, True]]
    assert lake.rows == {1: {"big": "A", "doc": "z"}, 2: {"big": "y", "doc": "E"}}


def test_large_requests_are_split() -> None:
    """``reselect.batch.max.keys`` limits the rows of a SELECT."""
    lake = Lake(database(*(row(key, f"v{key}") for key in range(5))), replace(NO_CACHE, batch_max_keys=2))
    lake.batch(*(u(key, big=P) for key in range(5)))
    assert lake.queries == 3
    assert [lake.big(key) for key in range(5)] == ["v0", "v1", "v2", "v3", "v4"]


def test_large_rows_are_read_in_smaller_selects() -> None:
    """``reselect.batch.max.bytes`` limits the size of a SELECT. The first result shows the size of the rows."""
    large = "x" * 40_000
    options = replace(NO_CACHE, batch_max_bytes=2 * FIRST_GUESS)
    lake = Lake(database(*(row(key, large) for key in range(6))), options)
    lake.batch(*(u(key, big=P) for key in range(6)))
    assert lake.source is not None
    assert [len(request) for request in lake.source.requests] == [2, 3, 1]
    assert {lake.big(key) for key in range(6)} == {large}


@pytest.mark.parametrize("divisible", [True, False])
def test_reads_of_a_divisible_batch_are_bounded(divisible: bool) -> None:
    """A divisible batch reads four times the limit at most, before it is divided. Other batches are read completely."""
    lake = Lake(database(*(row(key, "x" * 100) for key in range(100))), replace(NO_CACHE, batch_max_bytes=1000))
    actions = fold(lake._changes(tuple(u(key, big=P) for key in range(100)), 0))
    if divisible:
        with pytest.raises(TooLarge) as error:
            lake.post.resolve(actions, divisible=True)
        assert lake.metrics.seen["bytes_read",] == 4100
        assert error.value.parts == 7
    else:
        lake.post.resolve(actions)
        assert lake.metrics.seen["bytes_read",] == 10_000


def test_a_result_that_is_too_large_is_read_in_smaller_selects() -> None:
    """If rows have grown and a result exceeds the limit, the rows are read again in smaller SELECTs."""
    lake = Lake(database(*(row(key, "x") for key in range(40))), replace(NO_CACHE, batch_max_bytes=1000))
    lake.batch(*(u(key, big=P) for key in range(40)))
    assert lake.source is not None
    lake.source.set_rows(TABLE, *(row(key, "x" * 200) for key in range(40)))
    lake.source.requests.clear()
    lake.batch(*(u(key, big=P) for key in range(40)))
    assert [len(request) for request in lake.source.requests] == [40, *[5] * 8]
    assert lake.big() == "x" * 200


# -- stale reads ------------------------------------------------------------------------------------------------------


def test_deleted_row_is_removed_from_the_cache() -> None:
    """If the source does not have a row, the cache does not serve its cells any more (``reselect.md`` section 4.4)."""
    lake = Lake(database(), CACHE)
    lake.each(u(1, big="A", doc=None), u(1, big=P, doc=P), u(1, big=P, doc=None))
    assert lake.queries == 2


def test_unknown_null_mode_null_writes_it() -> None:
    """Without a database ``reselect.unknown.null.mode=null`` writes a doubtful null as null."""
    lake = Lake(None, replace(CACHE, unknown_null_mode="null"))
    lake.each(c(1, big="A"), u(1, big=DOUBT))
    assert lake.big() is None


def test_doubtful_null_of_a_deleted_row_keeps_the_value_of_the_batch() -> None:
    """A doubtful null after a value in the same batch keeps that value if the source does not have the row."""
    lake = Lake(database(), CACHE)
    lake.batch(c(1, big="A"), u(1, big=DOUBT))
    assert lake.big() == "A"


def test_cached_null_value_is_served_without_requery() -> None:
    """A null of Oracle with ``lob.enabled`` is cached, because events contain every change of a large object."""
    clob = SqlType(0, "SYS", "CLOB")
    source = database(row(1, "B"))
    known = replace(catalog(type=clob, attstorage="x"), dialect=Dialect.ORACLE)
    source.add(known, source.schema(known), [row(1, "B")])
    lake = Lake(source, replace(CACHE, modes=HandlingModes(lob_enabled=True)))
    lake.each(u(1, big=None), u(1, big=P))
    assert (lake.big(), lake.queries) == (None, 0)


def test_unproven_answers_are_not_cached() -> None:
    """With ``reselect.visibility.check=off`` a result is written but not cached."""
    lake = Lake(database(row(1, "A"), proven=False), CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert lake.queries == 2


def test_unproven_answers_replace_no_null() -> None:
    """A result of a server that may lag fills an omitted cell, but does not replace a null of the event."""
    lake = Lake(database(row(1, "old", "D"), proven=False), NULLS)
    lake.batch(u(1, big=None, doc=P))
    assert lake.rows[1] == {"big": None, "doc": "D"}


@pytest.mark.parametrize(("proven", "state"), [(True, None), (False, CellState.UNCHANGED)])
def test_only_a_proven_answer_shows_that_a_row_was_deleted(proven: bool, state: CellState | None) -> None:
    """With ``reselect.unresolved.insert.mode=auto`` a missing row gives a null only if the read is proven."""
    actions = Lake(database(proven=proven), NO_CACHE).resolve(c(1, big=P, doc="D"))
    (column,) = (each for each in actions.columns if each.name == "big")
    assert (None if column.states is None else column.states[0]) == state


def test_last_guard_stops_an_events_placeholder() -> None:
    """A placeholder that the decoder did not detect fails the batch before it reaches a table."""
    lake = Lake(None, CACHE)
    with pytest.raises(Fatal, match="unavailable value placeholder"):
        lake.resolve(c(1, big="__debezium_unavailable_value"))


# -- options ----------------------------------------------------------------------------------------------------------


def test_unavailable_values_false_never_queries() -> None:
    """With ``reselect.unavailable.values=false`` placeholders are filled from fold or cache, or keep stored values."""
    lake = Lake(database(row(1, "A")), replace(CACHE, unavailable_values=False))
    lake.each(c(1, big="B"), u(1, big=P))
    lake.post.cache.truncate(TABLE)
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("B", 0)


def test_source_reads_missing_rows_queries_new_rows_only() -> None:
    """With ``reselect.source.reads=missing-rows`` stored rows keep their values without a query."""
    lake = Lake(database(row(1, "A"), row(2, "B")), replace(NO_CACHE, source_reads="missing-rows"))
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.batch(u(1, big=P), c(2, big=P))
    assert (lake.big(1), lake.big(2)) == ("kept", "B")


def test_null_triggered_answers_replace_the_null() -> None:
    """With ``reselect.null.values`` the current value replaces a null, and is cached for later placeholders."""
    lake = Lake(database(row(1, "late")), NULLS)
    lake.each(u(1, big=None), u(1, big=P, doc="x"))
    assert lake.big() == "late"
    assert [column.name for request in lake.source.requests for column in request.columns] == ["big", "doc"]  # type: ignore[union-attr]  # a source is there


def test_null_of_a_snapshot_read_is_true() -> None:
    """A null of a snapshot read is not read again, whether an update before it is in the same batch or not."""
    split, whole = (Lake(database(row(1, "late", "D")), replace(NULLS, cache_enabled=False)) for _ in range(2))
    split.each(u(1, big="A", doc="D"), r(1, big=None, doc="D"))
    whole.batch(u(1, big="A", doc="D"), r(1, big=None, doc="D"))
    assert split.rows == whole.rows == {1: {"big": None, "doc": "D"}}
    assert split.queries == whole.queries == 0


def test_transaction_of_a_snapshot_read_is_not_checked() -> None:
    """A query does not wait for the transaction of a snapshot, which is always rolled back."""
    lake = Lake(database(row(1, "A")), NO_CACHE)
    lake.batch(r(1, big=P))
    assert lake.source is not None
    assert [request.transactions.tolist() for request in lake.source.requests] == [[-1]]
    assert lake.big() == "A"


def test_null_is_kept_if_the_row_was_deleted() -> None:
    """A null-triggered reselect that finds no row keeps the event's null."""
    lake = Lake(database(), NULLS)
    lake.each(c(1, big="A", doc="D"), u(1, big=None, doc="D"))
    assert lake.big() is None


def test_columns_that_are_not_selected_are_neither_read_nor_cached() -> None:
    """Columns that ``reselect.columns.include.list`` does not contain are neither read nor cached."""
    options = replace(CACHE, columns_include_list=r"public\.orders:doc")
    lake = Lake(database(row(1, "A", "D")), options)
    lake.rows[1] = {"big": "kept", "doc": "kept"}
    lake.batch(u(1, big=P, doc=P))
    assert lake.rows[1] == {"big": "kept", "doc": "D"}


def test_a_compacted_topic_is_not_cached() -> None:
    """A compacted topic can lack events, so every placeholder queries the database (``reselect.md`` section 3.4)."""
    options = ReselectOptions(null_values=False, cache_enabled=True, cache_admission="always")
    lake = Lake(database({"id": 1, "big": "A", "doc": "x"}), options, may_cache=lambda topic: topic != "orders")
    lake.each(c(1, big="A", doc="w"), u(1, big=P, doc="x"), u(1, big=P, doc="x"))
    assert lake.queries == 2


def test_columns_that_are_always_available_are_not_cached() -> None:
    """With REPLICA IDENTITY FULL every event has the value, so the cache does not store it."""
    lake = Lake(database(row(1, "A")), CACHE)
    assert lake.source is not None
    lake.source.add(catalog(recoverable=True), Schema("struct"), [row(1, "A")])
    lake.each(u(1, big="B"), u(1, big=P))
    assert lake.big() == "A"


def test_d6_altered_table_is_dropped_and_its_catalog_read_again() -> None:
    """After an ALTER TABLE the cache of the table is discarded, because a column can be dropped and added again."""
    source = database(row(1, "new"))
    lake = Lake(source, CACHE)
    lake.each(c(1, big="old", doc="x"), u(1, big=P, doc="y"))
    assert (lake.big(), lake.queries) == ("old", 0)
    before = lake.post.catalog.table(TABLE)
    source.add(catalog(attstorage="e"), Schema("struct"), [row(1, "new")])
    assert lake.post.catalog.table(TABLE) == before
    lake.post.catalog.discard(TABLE)
    lake.post.cache.alter(TABLE)
    assert lake.post.catalog.table(TABLE) != before
    lake.batch(u(1, big=P, doc="z"))
    assert (lake.big(), lake.queries) == ("new", 1)
    assert lake.metrics.seen["drops", "schema"] == 1


def test_resolved_columns_have_no_states() -> None:
    """A column whose cells are all values or nulls has no states, so that the writer needs no mask for it."""
    lake = Lake(database(row(1, "A")), CACHE)
    actions = lake.resolve(u(1, big=P), u(2, big=P, doc="x"))
    by_name = {column.name: column for column in actions.columns}
    assert by_name["doc"].states is None
    assert by_name["big"].states is not None
    assert by_name["big"].states.tolist() == [CellState.VALUE, CellState.UNCHANGED]


def test_replica_identity_that_makes_wrong_keys_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A replica identity that makes wrong keys is logged once per table, with the fix (``reselect.md`` section 11)."""
    lake = Lake(database(row(1, "A")), replace(NO_CACHE, catalog_refresh_ms=0))
    assert lake.source is not None
    by_index = replace(catalog(), replica_identity="i", identity_index="docs_by_region")
    lake.source.add(by_index, lake.source.schema(catalog()), [row(1, "A")])
    lake.each(u(1, big=P), u(1, big=P))
    [line] = [record.getMessage() for record in caplog.records if "REPLICA IDENTITY" in record.getMessage()]
    assert "docs_by_region" in line


def test_close_closes_the_source() -> None:
    """The post-processor closes its database."""
    lake = Lake(database(), CACHE)
    lake.post.close()
    assert lake.source is not None
    assert lake.source.closed
