"""What reselect has done for a table, beside its metrics."""

from __future__ import annotations

from dataclasses import replace

from support.task.reselect_harness import CACHE, TABLE, Lake, P, database, row, u

from headrace.core.connect.table_activity import ReselectUse


def test_the_totals_of_a_table_are_those_of_the_metrics() -> None:
    """One call counts both; rows that a SELECT did not find are a part of those that were requested."""
    lake = Lake(database(row(1, "A")), CACHE)
    lake.each(u(1, big=P), u(1, big=P), u(2, big=P))
    use, seen = lake.post.use_of([TABLE]), lake.metrics.seen
    assert use is not None
    assert (use.rows, use.missing, use.queries) == (2, 1, {"ok": 1, "not_found": 1})
    assert use.cells == {
        step: seen["resolved", step, "big"]
        for step in ("cache", "source", "target", "unresolved", "fold", "carry")
        if seen["resolved", step, "big"]
    }
    assert use.cells["cache"] == use.cells["source"] == 1
    assert use.cache["hit"] == seen["requests", "hit"] == 1


def test_a_table_without_reselect_has_no_totals() -> None:
    """Neither has one that another table's reads do not concern."""
    lake = Lake(database(row(1, "A")), CACHE)
    lake.batch(u(1, big="x"))
    other = replace(TABLE, table="other")
    assert lake.post.use_of([other]) is None
    lake.batch(u(1, big=P))
    assert isinstance(lake.post.use_of([TABLE, other]), ReselectUse)
