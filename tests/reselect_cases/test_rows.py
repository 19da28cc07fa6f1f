"""Cases of ``reselect.md`` section 6 as the history of a row: events, a database, the row at the end.

Every test is named after its case; ``take_out.py`` shows that it fails without its rule. ``P`` is the placeholder, "q"
in a sentence is a query.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.task.reselect_harness import (
    CACHE,
    GONE,
    HOLLOW,
    NO_CACHE,
    NULLS,
    TABLE,
    TEXT_TYPE,
    Lake,
    P,
    c,
    catalog,
    d,
    database,
    row,
    u,
)

from headrace.config.reselect import reselect_options
from headrace.core.model.catalog import KeyColumn
from headrace.core.model.errors import Fatal, Retriable
from headrace.core.model.events import CellState
from headrace.core.reselect.options import ReselectOptions

# -- nulls, deletes, truncates, key changes ----------------------------------------------------------------------------


def test_s01_null_overwrites_the_cached_value() -> None:
    """S1, D1: after SET NULL the old value is used neither for the null nor for a later placeholder."""
    lake = Lake(database(row(1, None)), NULLS)
    lake.each(u(1, big="A"), u(1, big=None))
    assert lake.big() is None
    lake.batch(u(1, big=P, doc="x"))
    assert lake.big() is None


def test_s01_null_is_written_without_a_database() -> None:
    """S1: without a reachable database the null is written, and the cached value is not served again."""
    lake = Lake(database(), NULLS)
    assert lake.source is not None
    lake.batch(u(1, big="A"))
    lake.source.failures.append(Retriable("away"))
    lake.batch(u(1, big=None))
    assert lake.big() is None
    alone = Lake(None, CACHE)
    alone.each(c(1, big="A"), u(1, big=None), u(1, big=P))
    assert alone.big() is None


@pytest.mark.parametrize(("cell", "expected"), [(None, None), (P, "now")])
def test_s02_deleted_row_is_not_served_to_the_next(cell: str | None, expected: str | None) -> None:
    """S2, D2: delete and insert under the same key."""
    lake = Lake(database(row(1, "now")), CACHE)
    lake.each(u(1, big="A"), d(1), c(1, big=cell))
    assert lake.big() == expected


@pytest.mark.parametrize("gone", [[d(1), c(1, big=P)], [c(1, big=P)], [d(1)]])
def test_s02_what_was_dropped_stays_dropped(gone: list[Any]) -> None:
    """S2: after a new row with an unknown value, no older value is served to later events."""
    lake = Lake(None, CACHE)
    lake.each(u(1, big="A"), *gone, u(1, big=P))
    assert lake.big() == HOLLOW


@pytest.mark.parametrize("arrives", [True, False])
def test_s03_truncate_or_a_skipped_one(arrives: bool) -> None:
    """S3: an insert gets no value from before a truncate, whether the truncate arrived or not."""
    lake = Lake(database(row(1, "now")), CACHE)
    lake.batch(u(1, big="A"))
    if arrives:
        lake.post.cache.truncate(TABLE)
        lake.batch(u(1, big=P))
        assert lake.big() == "now"
    lake.batch(c(1, big=None))
    assert lake.big() is None


def test_s04_moved_row_gets_no_value_of_the_row_that_was_there() -> None:
    """S4: row 2 was cached and deleted, row 1 moves to 2: q by the new key; its answer is cached for later events."""
    lake = Lake(database(row(2, "A")), CACHE)
    lake.each(u(2, big="B"), d(2), u(1, big="A"), d(1), c(2, big=P), u(2, big=P))
    assert lake.big(2) == "A"


def test_s04_moved_row_carries_over_by_header() -> None:
    """S4: without a database, the value comes from row 1 by the header, never from the deleted row."""
    lake = Lake(database(), CACHE)
    lake.each(u(2, big="B"), d(2), c(1, big="A"))
    lake.batch(d(1), c(2, old=1, big=P))
    lake.batch(u(2, big=P))
    assert lake.big(2) == "A"


def test_s04_without_header_and_database_nothing_is_served() -> None:
    """S4: the cell of a moved row whose value is unknown stays open, now and later."""
    lake = Lake(None, CACHE)
    lake.each(u(2, big="B"), d(2), d(1), c(2, big=P))
    assert lake.big(2) == HOLLOW
    lake.batch(u(2, big=P))
    assert lake.big(2) == HOLLOW


def test_s05_key_given_to_a_new_row() -> None:
    """S5: after a row moved away, the next row with its key has its own value.

    This holds even if the delete is in another partition.
    """
    lake = Lake(database(row(1, "new")), CACHE)
    lake.each(u(1, big="A"), d(1), c(1, big="new"), u(1, big=P))
    assert lake.big() == "new"
    alone = Lake(None, CACHE)
    alone.each(u(1, big="A"), c(1, big=P), u(1, big=P))
    assert alone.big() == HOLLOW


# -- partitions and topics ---------------------------------------------------------------------------------------------


def test_s06_partition_that_came_back_is_queried_again() -> None:
    """S6: another worker may have read newer values between the assignments."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    lake.post.cache.revoke([("orders", 0)])
    lake.post.cache.assign([("orders", 0)])
    lake.batch(u(1, big=P))
    assert lake.big() == "B"


def test_s09_offsets_that_were_set_invalidate_the_partition() -> None:
    """S9: offsets altered, slot lost, retention expired: each begins an assignment, and the events before it are
    unknown.
    """
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    lake.post.cache.assign([("orders", 0)])
    lake.batch(u(1, big=P))
    assert lake.big() == "B"


def test_s10_compacted_topic_is_not_cached() -> None:
    """S10: compaction may have removed the event that changed the value."""
    lake = Lake(database(row(1, "B")), CACHE, may_cache=lambda topic: topic != "orders")
    lake.each(u(1, big="A"), u(1, big=P))
    assert lake.big() == "B"


# -- limits ------------------------------------------------------------------------------------------------------------


def test_s23_changes_that_no_event_shows() -> None:
    """S23, a limit: after FLASHBACK TABLE or the like, only the time to live or a ``c`` ends the old value."""
    lake = Lake(database(row(1, "B")), replace(CACHE, cache_ttl_ms=1000))
    lake.each(u(1, big="A"), u(1, big=P))
    assert lake.big() == "A"
    lake.clock.now = 1.0
    lake.batch(u(1, big=P))
    assert lake.big() == "B"
    lake.each(u(1, big="A"), c(1, big="entered"), u(1, big=P))
    assert lake.big() == "entered"


@pytest.mark.parametrize("skipped", ["c", "t,u", "d"])
def test_s24_declared_filter_turns_the_cache_off(skipped: str) -> None:
    """S24: events that the source connector skips would change the cache; if they are not declared, this is a limit."""
    given = {
        "skipped.operations": skipped,
        "reselect.cache.enabled": "true",
        "reselect.cache.admission": "always",
        "reselect.null.values": "false",
    }
    lake = Lake(database(row(1, "B")), reselect_options(given))
    lake.each(u(1, big="A"), u(1, big=P))
    assert lake.big() == "B"
    assert reselect_options({**given, "skipped.operations": "t"}).caches


def test_s25_rows_that_share_a_message_key_share_no_value() -> None:
    """S25, D3: the key of the messages is not the primary key: q by the message key, and no cache."""
    lake = Lake(database(row(1, "A", "a"), row(1, "B", "b")), CACHE)
    assert lake.source is not None
    by_doc = replace(catalog(), key=(KeyColumn("doc", TEXT_TYPE),))
    lake.source.add(by_doc, lake.source.schema(catalog()), [row(1, "A", "a"), row(1, "B", "b")])
    lake.each(u(1, doc="a", big="A"), u(1, doc="b", big=P))
    assert lake.big() == "B"


def test_s25_identity_can_be_declared() -> None:
    """S25:

    ``reselect.key.columns`` names the identity of a row; ``reselect.use.event.key`` queries by the message key.
    """
    rows = [row(1, "A", "a"), row(1, "B", "b")]
    declared = Lake(database(*rows), replace(CACHE, key_columns=r"public\.orders:doc"))
    declared.batch(u(1, doc="b", big=P))
    assert declared.big() == "B"
    by_message = Lake(database(*rows), replace(CACHE, key_columns=r"public\.orders:doc", use_event_key=True))
    by_message.rows[1] = {"big": "kept", "doc": "b"}
    by_message.batch(u(1, doc="b", big=P))
    assert by_message.big() == "kept"  # two rows match the message key, so neither is used


def test_s25_row_whose_identity_was_omitted_is_not_queried() -> None:
    """S25, section 1.4: a null or a placeholder identifies no row, so there is no query."""
    lake = Lake(database(row(1, "A", "a")), replace(NO_CACHE, key_columns=r"public\.orders:doc"))
    lake.rows[1] = {"big": "kept", "doc": "a"}
    lake.each(u(1, doc=None, big=P), u(1, doc=P, big=P))
    assert (lake.big(), lake.queries) == ("kept", 0)


def test_s25_equal_keys_of_merged_topics_share_no_entry() -> None:
    """S25: the tables of two shards in one topic are two tables in the cache."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    assert lake.source is not None
    shard = replace(TABLE, database="inventory2")
    lake.source.add(replace(catalog(), table=shard), lake.source.schema(catalog()), [row(1, "B")])
    lake.table = shard
    lake.batch(u(1, big=P))
    assert lake.big() == "B"


def test_s31_failed_batch_is_repeated_without_its_own_traces() -> None:
    """S31: the cache drops the values of a failed batch, and the retry writes the same table."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    lake.resolve(u(1, big="X"))
    lake.post.cache.discard(TABLE)
    lake.batch(u(1, big=P))
    assert lake.big() == "B"


def test_s32_value_and_placeholder_in_one_batch() -> None:
    """S32: the fold has the value; there is no query."""
    lake = Lake(database(), CACHE)
    lake.batch(u(1, big="B"), u(1, big=P, doc="x"))
    assert (lake.rows[1], lake.queries) == ({"big": "B", "doc": "x"}, 0)


def test_s34_hits_are_used_when_the_row_is_missing() -> None:
    """S34, D7: a cached column is used although the row is missing; the other column is kept."""
    lake = Lake(database(), CACHE)
    lake.batch(u(1, big="B", doc=None))
    lake.rows[1] = {"big": "old", "doc": "kept"}
    lake.batch(u(1, big=P, doc=P))
    assert (lake.rows[1], lake.queries) == ({"big": "B", "doc": "kept"}, 1)


# -- new incarnations, contradictions, lost events ---------------------------------------------------------------------


def test_n05_nothing_is_kept_from_a_soft_deleted_row() -> None:
    """N5: the row is still in the table, but it is a deleted one."""
    lake = Lake(None, CACHE, soft_delete=True)
    lake.each(c(1, big="A"), d(1))
    assert lake.rows[1]["big"] == "A"
    lake.batch(c(1, big=P))
    assert lake.big() == HOLLOW


def test_n06_new_row_in_the_batch_of_the_delete() -> None:
    """N6: the new row keeps no cell of the old one; a cell is null if the source has no row any more."""
    lake = Lake(database(row(1, "now")), CACHE)
    lake.batch(c(1, big="A"))
    lake.batch(d(1), c(1, big=P))
    assert lake.big() == "now"
    gone = Lake(database(), CACHE)
    gone.batch(c(1, big="A"))
    gone.batch(d(1), c(1, big=P))
    assert gone.big() is None


def test_n06_without_a_source_the_cell_stays_open() -> None:
    """N6: nothing proves that the row is missing, so the writer applies the policy."""
    lake = Lake(None, CACHE)
    lake.batch(c(1, big=P))
    assert lake.big() == HOLLOW


def test_n07_key_change_carries_the_old_rows_value() -> None:
    """N7: both halves are in one batch and row 2 is missing in the source: the value comes from row 1."""
    lake = Lake(database(), CACHE)
    lake.batch(c(1, big="A"))
    lake.batch(d(1), c(2, old=1, big=P))
    assert lake.rows == {2: {"big": "A", "doc": None}}


def test_n07_a_column_that_was_dropped_is_not_carried() -> None:
    """N7: the key change's schema lacks a column that a later one has again: the stored old row does not supply it."""
    lake = Lake(options=ReselectOptions())
    lake.batch(c(1, big="A", doc="x"))
    actions = lake.resolve(d(1), c(2, old=1, big=GONE, doc=P), u(2, big=P, doc=P))
    states = {column.name: column.states[1] for column in actions.columns if column.states is not None}
    assert states == {"big": CellState.UNCHANGED, "doc": CellState.CARRIED}


def test_n08_cached_null_is_not_served_on_postgresql() -> None:
    """N8: a placeholder after a null means that an event was lost; the database is queried, and a metric counts it."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.each(u(1, big=None), u(1, big=P))
    assert (lake.big(), lake.queries) == ("B", 1)
    assert lake.metrics.seen["contradictions", "null_then_placeholder"] == 1


def test_n09_lost_event_invalidates_what_was_cached_before() -> None:
    """N9: an event of the partition went to the dead letter queue; then q."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    lake.post.cache.lose("orders", 0, lake.offset)
    lake.offset += 1
    lake.batch(u(1, big=P))
    assert lake.big() == "B"


def test_n12_re_emitted_events_converge() -> None:
    """N12: lower positions with higher offsets get no newer value and are not cached; the row is right at the end."""
    lake = Lake(database(row(1, "v2")), CACHE)
    lake.each(u(1, position=10, big="v1"), u(1, position=20, big="v2"))
    lake.batch(u(1, position=11, big=P))
    lake.batch(u(1, position=21, big=P))
    assert (lake.big(), lake.queries) == ("v2", 2)


def test_n14_source_value_that_equals_the_placeholder() -> None:
    """N14: a value from the database that equals the placeholder is a value; it is written, counted and not cached."""
    placeholder = "__debezium_unavailable_value"
    lake = Lake(database(row(1, placeholder)), CACHE)
    lake.each(u(1, big=P), u(1, big=P))
    assert (lake.big(), lake.queries) == (placeholder, 2)
    assert lake.metrics.seen[("source_equals_placeholder",)] == 2


def test_n14_an_event_s_placeholder_is_no_value() -> None:
    """N14, section 2.4 rule 6: a placeholder that no query resolved is never written."""
    lake = Lake(None, CACHE)
    with pytest.raises(Fatal, match="unavailable value placeholder"):
        lake.resolve(c(1, big="__debezium_unavailable_value"))
    assert lake.metrics.seen[("guard",)] == 1
