"""Reselect and column cache together: upstream's cases by name, and the stale reads S1 to S34 and N that apply here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unit.runtime.reselect_harness import (
    DOUBT,
    TABLE,
    Lake,
    P,
    c,
    catalog,
    d,
    database,
    r,
    u,
)

from headrace.core.catalog import Dialect, HandlingModes, SqlType
from headrace.core.errors import Fatal, Retriable, TimedOut
from headrace.core.events import CellState
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.select_size import FIRST_GUESS
from headrace.core.schema import Schema
from headrace.core.unresolved import UnresolvedRows
from headrace.ports import Connections
from headrace.runtime.metrics import Metrics
from headrace.runtime.post_processor import ReselectColumnsPostProcessor

NO_CACHE = ReselectOptions(null_values=False)
CACHE = ReselectOptions(null_values=False, cache_enabled=True)
NULLS = ReselectOptions(null_values=True, cache_enabled=True, columns_include_list=".*")


def row(key: int, big: str | None, doc: str | None = None) -> dict[str, Any]:
    return {"id": key, "big": big, "doc": doc}


# -- upstream's ReselectColumnsPostProcessorCacheTest -----------------------------------------------------------------


def test_cache_disabled_queries_database_every_time() -> None:
    """Without the cache every placeholder asks the database."""
    lake = Lake(database(row(1, "A")), NO_CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert (lake.big(), lake.queries) == ("A", 2)


def test_cache_enabled_second_apply_served_from_cache() -> None:
    """What was read once is served from the cache."""
    lake = Lake(database(row(1, "A")), CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert (lake.big(), lake.queries) == ("A", 1)


def test_partial_hit_serves_query_and_modify_cached_columns_without_requery() -> None:
    """Only the column that the cache lacks is asked for."""
    lake = Lake(database(row(1, "A", "D")), CACHE)
    lake.each(u(1, big="B", doc=None), u(1, big=P, doc=P))
    assert lake.source is not None
    assert [column.name for column in lake.source.requests[-1].columns] == ["doc"]
    assert lake.rows[1] == {"big": "B", "doc": "D"}


def test_modified_column_is_cached_and_served_to_later_placeholder_event() -> None:
    """A real value in an event needs no query later."""
    lake = Lake(database(), CACHE)
    lake.each(u(1, big="B"), u(1, big=P, doc="x"))
    assert (lake.big(), lake.queries) == ("B", 0)


def test_cache_entry_expires_after_ttl() -> None:
    """After the time to live the database is asked again."""
    lake = Lake(database(row(1, "later")), replace(CACHE, cache_ttl_ms=1000))
    lake.batch(u(1, big="B"))
    lake.clock.now = 1.0
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("later", 1)


def test_different_keys_do_not_share_cache_entry() -> None:
    """Each row has its own cells."""
    lake = Lake(database(row(2, "two")), CACHE)
    lake.each(u(1, big="one"), u(2, big=P))
    assert lake.big(2) == "two"


def test_read_events_are_never_reselected() -> None:
    """Nulls of a snapshot are true."""
    lake = Lake(database(row(1, "A")), NULLS)
    lake.batch(r(1, big=None))
    assert (lake.big(), lake.queries) == (None, 0)


# -- what costs nothing -----------------------------------------------------------------------------------------------


def test_batch_without_open_cells_is_handed_through() -> None:
    """Without open cells and cache the actions are the very same."""
    lake = Lake(database(), NO_CACHE)
    actions = lake.resolve(c(1, big="A"), c(2, big=None))
    assert lake.post.resolve(actions) is actions
    assert lake.queries == 0


def test_one_select_for_a_batch() -> None:
    """A batch asks once, for distinct rows, each for what it needs."""
    lake = Lake(database(row(1, "A", "D"), row(2, "B", "E")), NO_CACHE)
    lake.batch(u(1, big=P, doc="x"), u(2, big="y", doc=P), u(1, big=P, doc="z"))
    assert lake.queries == 1
    assert lake.source is not None
    assert lake.source.requests[0].needs.tolist() == [[True, False], [False, True]]
    assert lake.rows == {1: {"big": "A", "doc": "z"}, 2: {"big": "y", "doc": "E"}}


def test_large_requests_are_split() -> None:
    """``reselect.batch.max.keys`` bounds a SELECT."""
    lake = Lake(database(*(row(key, f"v{key}") for key in range(5))), replace(NO_CACHE, batch_max_keys=2))
    lake.batch(*(u(key, big=P) for key in range(5)))
    assert lake.queries == 3
    assert [lake.big(key) for key in range(5)] == ["v0", "v1", "v2", "v3", "v4"]


def test_large_rows_are_asked_for_in_smaller_numbers() -> None:
    """``reselect.batch.max.bytes``: the first answer tells how large the rows are."""
    large = "x" * 40_000
    options = replace(NO_CACHE, batch_max_bytes=2 * FIRST_GUESS)
    lake = Lake(database(*(row(key, large) for key in range(6))), options)
    lake.batch(*(u(key, big=P) for key in range(6)))
    assert lake.source is not None
    assert [len(request) for request in lake.source.requests] == [2, 3, 1]
    assert {lake.big(key) for key in range(6)} == {large}


# -- stale reads ------------------------------------------------------------------------------------------------------


def test_row_that_is_gone_is_dropped_from_the_cache() -> None:
    """Section 4.4: once the source has no such row, none of its cells is served any more."""
    lake = Lake(database(), CACHE)
    lake.each(u(1, big="A", doc=None), u(1, big=P, doc=P), u(1, big=P, doc=None))
    assert lake.queries == 2


def test_unknown_null_mode_null_writes_it() -> None:
    """Without a database ``reselect.unknown.null.mode=null`` takes nulls at their word."""
    lake = Lake(None, replace(CACHE, unknown_null_mode="null"))
    lake.each(c(1, big="A"), u(1, big=DOUBT))
    assert lake.big() is None


def test_doubt_has_the_batch_as_last_resort() -> None:
    """A doubt after a value in one batch falls back on that value when the row is gone."""
    lake = Lake(database(), CACHE)
    lake.batch(c(1, big="A"), u(1, big=DOUBT))
    assert lake.big() == "A"


def test_cached_null_value_is_served_without_requery() -> None:
    """Oracle, where events tell of every change of a large object: there a null is a null."""
    clob = SqlType(0, "SYS", "CLOB")
    source = database(row(1, "B"))
    known = replace(catalog(type=clob, attstorage="x"), dialect=Dialect.ORACLE)
    source.add(known, source.schema(known), [row(1, "B")])
    lake = Lake(source, replace(CACHE, modes=HandlingModes(lob_enabled=True)))
    lake.each(u(1, big=None), u(1, big=P))
    assert (lake.big(), lake.queries) == (None, 0)


def test_unproven_answers_are_not_cached() -> None:
    """With ``reselect.visibility.check=off`` an answer is used but not remembered."""
    lake = Lake(database(row(1, "A"), proven=False), CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert lake.queries == 2


def test_last_guard_stops_an_events_placeholder() -> None:
    """A placeholder that decoding missed never reaches a table."""
    lake = Lake(None, CACHE)
    with pytest.raises(Fatal, match="unavailable value placeholder"):
        lake.resolve(c(1, big="__debezium_unavailable_value"))


# -- options ----------------------------------------------------------------------------------------------------------


def test_unavailable_values_false_never_asks() -> None:
    """Placeholders are filled from fold and cache, else kept."""
    lake = Lake(database(row(1, "A")), replace(CACHE, unavailable_values=False))
    lake.each(c(1, big="B"), u(1, big=P))
    lake.post.truncated(TABLE)
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("B", 0)


def test_source_reads_missing_rows_asks_for_new_rows_only() -> None:
    """``reselect.source.reads=missing-rows`` leaves standing rows to keep-target."""
    lake = Lake(database(row(1, "A"), row(2, "B")), replace(NO_CACHE, source_reads="missing-rows"))
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.batch(u(1, big=P), c(2, big=P))
    assert (lake.big(1), lake.big(2)) == ("kept", "B")


def test_null_triggered_answers_replace_the_null() -> None:
    """``reselect.null.values``: the latest state, which later placeholders find in the cache."""
    lake = Lake(database(row(1, "late")), NULLS)
    lake.each(u(1, big=None), u(1, big=P, doc="x"))
    assert lake.big() == "late"
    assert [column.name for request in lake.source.requests for column in request.columns] == ["big", "doc"]  # type: ignore[union-attr]  # a source is there


def test_null_stands_when_the_row_is_gone() -> None:
    """A null-triggered reselect that finds no row leaves the event's null."""
    lake = Lake(database(), NULLS)
    lake.each(c(1, big="A", doc="D"), u(1, big=None, doc="D"))
    assert lake.big() is None


def test_columns_that_are_not_selected_are_neither_read_nor_cached() -> None:
    """Only ``doc`` is on the list."""
    options = replace(CACHE, columns_include_list=r"public\.orders:doc")
    lake = Lake(database(row(1, "A", "D")), options)
    lake.rows[1] = {"big": "kept", "doc": "kept"}
    lake.batch(u(1, big=P, doc=P))
    assert lake.rows[1] == {"big": "kept", "doc": "D"}


def test_a_compacted_topic_is_not_cached() -> None:
    """Section 3.4: events of it may be missing, so the database is asked every time, whatever the switch says."""
    options = ReselectOptions(null_values=False, cache_enabled=True)
    lake = Lake(database({"id": 1, "big": "A", "doc": "x"}), options, may_cache=lambda topic: topic != "orders")
    lake.each(c(1, big="A", doc="w"), u(1, big=P, doc="x"), u(1, big=P, doc="x"))
    assert lake.queries == 2


def test_columns_that_are_never_left_out_are_not_cached() -> None:
    """With REPLICA IDENTITY FULL the log has every value, so nothing is worth remembering."""
    lake = Lake(database(row(1, "A")), CACHE)
    assert lake.source is not None
    lake.source.add(catalog(recoverable=True), Schema("struct"), [row(1, "A")])
    lake.each(u(1, big="B"), u(1, big=P))
    assert lake.big() == "A"


# -- errors -----------------------------------------------------------------------------------------------------------


def test_transient_errors_are_retried() -> None:
    """Within ``errors.retry.timeout`` the question is asked again."""
    lake = Lake(database(row(1, "A")), replace(CACHE, errors_retry_timeout_ms=60_000, errors_retry_delay_max_ms=1))
    assert lake.source is not None
    lake.source.failures += [Retriable("gone"), Retriable("gone")]
    lake.batch(u(1, big=P))
    assert lake.big() == "A"


def test_database_down_keeps_what_is_known_unchanged() -> None:
    """Where the source said "unchanged" the stored value is right without asking."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.source.failures.append(Retriable("gone"))
    lake.batch(u(1, big=P))
    assert lake.big() == "kept"


@pytest.mark.parametrize("event", [u(1, big=DOUBT), c(1, big=P)])
def test_database_down_loses_nothing(event: Any) -> None:
    """Where keeping may be wrong, or there is nothing to keep, the batch is tried again as a whole."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable):
        lake.resolve(event)


def test_refused_query_in_mode_warn_keeps() -> None:
    """A permanent error leaves the cells to keep-target."""
    lake = Lake(database(), CACHE)
    assert lake.source is not None
    lake.rows[1] = {"big": "kept", "doc": None}
    lake.source.failures.append(Fatal("no such column"))
    lake.batch(u(1, big=P))
    assert lake.big() == "kept"


def test_reads_of_the_current_state_are_counted() -> None:
    """``reselect_flashback_fallbacks_total{code}``: how often Oracle could not say what was at the events' time."""
    source = database(row(1, "A"))
    source.flashback_fallbacks = {"ORA-01555": 1}
    metrics = Metrics()
    lake = Lake(source, NO_CACHE)
    lake.post = ReselectColumnsPostProcessor(NO_CACHE, source, metrics=metrics.reselects("shop", 0))
    lake.batch(u(1, big=P))
    labels = {"connector": "shop", "task": "0", "table": "public.orders", "code": "ORA-01555"}
    assert metrics.registry.get_sample_value("reselect_flashback_fallbacks_total", labels) == 1.0


def test_mode_fail_stops_on_errors_and_missing_rows() -> None:
    """``reselect.error.handling.mode=fail``."""
    lake = Lake(database(), replace(CACHE, error_handling_mode="fail"))
    assert lake.source is not None
    with pytest.raises(Fatal, match="not in the source any more"):
        lake.resolve(u(1, big=P))
    lake.source.failures.append(Fatal("no such column"))
    with pytest.raises(Fatal, match="no such column"):
        lake.resolve(u(1, big=P))


DEAD_LETTERS = replace(CACHE, error_handling_mode="dlq", null_values=True)


@pytest.mark.parametrize("failure", [None, Fatal("no such column")])
def test_mode_dlq_names_what_the_database_did_not_give(failure: Fatal | None) -> None:
    """Rows that are gone, or a query that is refused for good; a null that is only looked up again stands."""
    lake = Lake(database(row(1, "A")), DEAD_LETTERS)
    assert lake.source is not None
    lake.source.failures += [failure] if failure is not None else []
    with pytest.raises(UnresolvedRows) as refused:
        lake.resolve(u(1, big=P, doc="x"), u(2, big=P, doc=DOUBT), u(3, big=None, doc="x"), u(4, big="x", doc="x"))
    lacking = {1: ("big", "doc")}
    assert refused.value.columns == (lacking if failure is None else {0: ("big",), **lacking})
    assert (str(failure) if failure is not None else "did not have them") in str(refused.value)


def test_mode_dlq_names_a_value_that_does_not_fit() -> None:
    """It cannot be written, and nothing else is known."""
    lake = Lake(database({"id": 1, "big": 5, "doc": "D"}), DEAD_LETTERS)
    with pytest.raises(UnresolvedRows) as refused:
        lake.resolve(u(1, big=P, doc=P))
    assert refused.value.columns == {0: ("big",)}


def test_mode_dlq_waits_for_a_database_that_is_down() -> None:
    """That is no fault of a record."""
    lake = Lake(database(row(1, "A")), DEAD_LETTERS)
    assert lake.source is not None
    lake.source.failures.append(Retriable("gone"))
    with pytest.raises(Retriable):
        lake.resolve(u(1, big=P))


def test_mode_dlq_lets_the_last_resort_stand() -> None:
    """A value that came with the batch before a doubtful null, and one that the row under the old key has."""
    lake = Lake(database(), DEAD_LETTERS)
    lake.rows[1] = {"big": "old", "doc": "old"}
    lake.batch(u(2, big="A", doc="x"), u(2, big=DOUBT, doc="y"))
    assert lake.rows[2] == {"big": "A", "doc": "y"}
    lake.batch(d(1), c(3, old=1, big=P, doc="z"))
    assert lake.rows[3] == {"big": "old", "doc": "z"}


def test_d6_altered_table_is_dropped_and_its_catalog_read_again() -> None:
    """A column that is dropped and added again has the old type and name, and nothing of its old values."""
    source = database(row(1, "new"))
    lake = Lake(source, CACHE)
    lake.each(c(1, big="old", doc="x"), u(1, big=P, doc="y"))
    assert (lake.big(), lake.queries) == ("old", 0)
    before = lake.post.table(TABLE)
    source.add(catalog(attstorage="e"), Schema("struct"), [row(1, "new")])
    assert lake.post.table(TABLE) == before
    lake.post.altered(TABLE)
    assert lake.post.table(TABLE) != before
    lake.batch(u(1, big=P, doc="z"))
    assert (lake.big(), lake.queries) == ("new", 1)
    assert lake.metrics.seen["drops", "schema"] == 1


def test_values_that_do_not_fit_stay_open() -> None:
    """A value that the column's type cannot hold is not used and not cached; the cell is kept."""
    lake = Lake(database({"id": 1, "big": 5, "doc": "D"}), CACHE)
    lake.rows[1] = {"big": "kept", "doc": "kept"}
    lake.batch(u(1, big=P, doc=P))
    assert lake.rows[1] == {"big": "kept", "doc": "D"}


def test_states_of_decided_columns_vanish() -> None:
    """A column whose cells are all values or nulls carries no states, so that the writer needs no mask for it."""
    lake = Lake(database(row(1, "A")), CACHE)
    actions = lake.resolve(u(1, big=P), u(2, big=P, doc="x"))
    by_name = {column.name: column for column in actions.columns}
    assert by_name["doc"].states is None
    assert by_name["big"].states is not None
    assert by_name["big"].states.tolist() == [CellState.VALUE, CellState.UNCHANGED]


def test_what_is_counted_about_queries() -> None:
    """Section 9: how each ended, what it brought, what decided which column's cells, what was not there any more."""
    lake = Lake(database(row(1, "AB")), replace(NO_CACHE, errors_retry_timeout_ms=60_000, errors_retry_delay_max_ms=1))
    assert lake.source is not None
    lake.source.failures += [TimedOut("slow"), Retriable("gone")]
    lake.batch(u(1, big=P))
    lake.batch(u(2, big=P))
    lake.source.failures.append(Fatal("no such column"))
    lake.batch(u(1, doc=P))
    seen = lake.metrics.seen
    ended = {result: seen["queries", result] for result in ("timeout", "transient", "ok", "not_found", "permanent")}
    assert ended == dict.fromkeys(ended, 1)
    assert (seen[("bytes_read",)], seen[("rows_not_found",)]) == (2, 1)
    assert (seen["cells", "unchanged", "big"], seen["resolved", "source", "big"]) == (2, 1)
    assert (seen["resolved", "target", "big"], seen["resolved", "target", "doc"]) == (1, 1)


def test_how_full_the_cache_is_and_what_was_evicted() -> None:
    """Section 9: rows, and those that went because of a bound."""
    lake = Lake(None, replace(CACHE, cache_max_size=2))
    lake.batch(*(u(key, big="x") for key in range(5)))
    lake.batch(u(9, doc="y"))
    assert lake.metrics.use.rows == 2
    assert lake.metrics.seen["drops", "evicted"] == 3
    assert lake.metrics.seen["writes", "event", "stored"] == 10


def test_what_the_fold_decides_is_counted() -> None:
    """Section 9: cells for which neither cache nor database is asked, since an event of the same batch has them."""
    lake = Lake(None, NO_CACHE)
    lake.batch(u(1, big="A", doc="x"), u(1, big=P, doc=P), u(2, big=P, doc="y"), u(3, big=P), d(3))
    seen = lake.metrics.seen
    assert (seen["resolved", "fold", "big"], seen["resolved", "fold", "doc"]) == (2, 1)
    assert (seen["cells", "unchanged", "big"], seen["resolved", "target", "big"]) == (1, 1)


def test_cells_that_pass_the_cache_by_are_counted() -> None:
    """Section 9: of new incarnations, and of columns or topics that are not cached; not where there is no cache."""
    lake = Lake(None, CACHE)
    lake.each(u(1, big="A"), c(1, big=P), u(1, big=P))
    assert lake.metrics.seen["requests", "bypassed"] == 1
    hidden = Lake(None, CACHE, may_cache=lambda topic: False)
    hidden.each(u(1, big="A"), u(1, big=P))
    assert hidden.metrics.seen["requests", "bypassed"] == 1
    none = Lake(None, NO_CACHE)
    none.each(u(1, big="A"), u(1, big=P))
    assert none.metrics.seen["requests", "bypassed"] == 0


def test_how_old_the_oldest_cached_value_is() -> None:
    """Section 9: looked for now and then, since all rows have to be looked at."""
    lake = Lake(None, CACHE)
    lake.batch(u(1, big="A"))
    lake.clock.now = 20.0
    lake.batch(u(2, big="B"))
    assert lake.metrics.use.oldest == 20_000
    lake.batch(d(1))
    lake.clock.now = 31.0
    lake.batch(u(3, big="C"))
    assert lake.metrics.use.oldest == 11_000


def test_connections_are_told_with_every_query() -> None:
    """Section 9: those that wait, those in use, and servers that are left alone."""
    lake = Lake(database(row(1, "A")), NO_CACHE)
    assert lake.source is not None
    lake.source.connected = Connections(2, 1, 1)
    lake.batch(u(1, big=P))
    assert lake.metrics.connected == Connections(2, 1, 1)


def test_position_that_falls_is_a_contradiction() -> None:
    """Section 9: events that arrive again below the position of what was cached."""
    lake = Lake(None, CACHE)
    lake.each(u(1, position=20, big="new"), u(1, position=10, big="old"), u(1, position=30, big="next"))
    assert lake.metrics.seen["contradictions", "position_regression"] == 1


def test_replica_identity_that_makes_wrong_keys_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Section 11: once a table, with the way out."""
    lake = Lake(database(row(1, "A")), replace(NO_CACHE, catalog_refresh_ms=0))
    assert lake.source is not None
    by_index = replace(catalog(), replica_identity="i", identity_index="docs_by_region")
    lake.source.add(by_index, lake.source.schema(catalog()), [row(1, "A")])
    lake.each(u(1, big=P), u(1, big=P))
    [line] = [record.getMessage() for record in caplog.records if "REPLICA IDENTITY" in record.getMessage()]
    assert "docs_by_region" in line


def test_close_lets_go_of_the_source() -> None:
    """Closing the post-processor closes the database."""
    lake = Lake(database(), CACHE)
    lake.post.close()
    assert lake.source is not None
    assert lake.source.closed
