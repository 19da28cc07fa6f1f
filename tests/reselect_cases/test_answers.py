"""Cases of answers of the database and its snapshots: a later state, a missing row, a null, another type.

Every test is named after its case; ``take_out.py`` shows that it fails without its rule. ``P`` is the placeholder, "q"
in a sentence is a query.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.task.reselect_harness import (
    CACHE,
    DOUBT,
    TABLE,
    Lake,
    P,
    c,
    catalog,
    d,
    database,
    r,
    row,
    u,
)

from headrace.config.reselect import reselect_options
from headrace.core.model.schema import Field, Schema


def test_s12_newer_answer_converges() -> None:
    """S12: q may return a later state; the next events set the state of their time, and the row is right at the end."""
    lake = Lake(database(row(1, "v3")), CACHE)
    seen = []
    for event in (u(1, big=P), u(1, big="v2"), u(1, big=P), u(1, big="v3"), u(1, big=P)):
        lake.batch(event)
        seen.append(lake.big())
    assert seen == ["v3", "v2", "v2", "v3", "v3"]


def test_s13_row_gone_keeps_the_stored_value() -> None:
    """S13: the row is missing in the source: keep the stored value, cache nothing; the delete follows."""
    lake = Lake(database(row(1, "A")), CACHE)
    lake.batch(c(1, big="A"))
    lake.post.cache.truncate(TABLE)
    assert lake.source is not None
    lake.source.set_rows(TABLE)
    lake.each(u(1, big=P), u(1, big=P))
    assert (lake.big(), lake.queries) == ("A", 2)
    lake.batch(d(1))
    assert lake.rows == {}


def test_s14_a_new_row_under_the_old_key_answers() -> None:
    """S14: the new row's value may appear before its events arrive; after them the table is right."""
    lake = Lake(database(row(2, "new")), CACHE)
    lake.rows[2] = {"big": "old", "doc": None}
    lake.batch(u(2, big=P))
    assert lake.big(2) in ("old", "new")
    lake.each(d(2), c(2, big="new"))
    assert lake.big(2) == "new"


def test_s14_a_table_that_keeps_history_takes_no_later_value() -> None:
    """S14: a history would keep the value of another row forever, so there is no query and no cache entry."""
    options = reselect_options(
        {"insert.mode": "insert", "reselect.cache.enabled": "true", "reselect.cache.admission": "always"}
    )
    lake = Lake(database(row(2, "new")), options)
    lake.rows[2] = {"big": "old", "doc": None}
    lake.each(u(2, big="A"), u(2, big=P))
    assert lake.queries == 0
    assert not options.caches


def test_s17_snapshot_read_refreshes_the_cache() -> None:
    """S17: after a gap a snapshot supplies the value that the events did not."""
    lake = Lake(database(), CACHE)
    lake.each(u(1, big="A"), r(1, big="B"), u(1, big=P))
    assert (lake.big(), lake.queries) == ("B", 0)


@pytest.mark.parametrize("table", [TABLE, None])
def test_s17_begin_of_a_snapshot_invalidates_the_cache(table: Any) -> None:
    """S17: rows that the snapshot has not read yet may have changed without an event.

    ``table`` None is a snapshot of all tables.
    """
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    lake.post.cache.begin_snapshot(table)
    lake.batch(u(1, big=P))
    assert lake.big() == "B"


def test_s19_null_that_may_hide_a_value() -> None:
    """S19: the null is queried, never taken from the cache, never cached; without a database the stored value stays."""
    lake = Lake(database(row(1, "A")), CACHE)
    lake.each(c(1, big="A"), u(1, big=DOUBT))
    assert (lake.big(), lake.queries) == ("A", 1)
    alone = Lake(None, CACHE)
    alone.each(c(1, big="A"), u(1, big=DOUBT))
    assert alone.big() == "A"


def test_s19_doubt_of_a_null_that_was_written() -> None:
    """S19: the database confirms the null; the cache does not serve the earlier value afterwards."""
    lake = Lake(database(row(1, None)), CACHE)
    lake.each(c(1, big="A"), u(1, big=DOUBT))
    assert lake.big() is None
    assert lake.source is not None
    lake.source.set_rows(TABLE)
    lake.each(c(1, big="A"), u(1, big=DOUBT), u(1, big=P))
    assert lake.queries == 3


def test_s21_key_and_value_changed_in_one_statement() -> None:
    """S21: the header would carry the old value, so the database is queried by the new key first."""
    lake = Lake(database(row(8, "changed")), CACHE)
    lake.batch(c(7, big="A"))
    lake.batch(d(7), c(8, old=7, big=P))
    assert lake.big(8) == "changed"


def test_s22_retyped_column_is_queried_again() -> None:
    """S22, D6: after a column is dropped and added again its cached values are invalid."""
    lake = Lake(database(row(1, None)), replace(CACHE, catalog_refresh_ms=1000))
    lake.batch(u(1, big="A"))
    lake.clock.now = 2.0
    assert lake.source is not None
    text = Schema("string", optional=True)
    fields = (Field("id", Schema("int32")), Field("big", text), Field("doc", text))
    altered = catalog()
    columns = tuple(replace(column, number=column.number + 10) for column in altered.columns)
    lake.source.add(replace(altered, columns=columns), Schema("struct", fields=fields), [row(1, "fresh")])
    lake.batch(u(1, big=P))
    assert lake.big() == "fresh"
