"""What reselect and column cache count (``reselect.md`` section 9)."""

from __future__ import annotations

from dataclasses import replace

from unit.runtime.reselect_harness import (
    CACHE,
    NO_CACHE,
    Lake,
    P,
    c,
    d,
    database,
    row,
    u,
)

from headrace.core.model.errors import Fatal, Retriable, TimedOut
from headrace.ports import Connections
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.pipeline.reselect import Reselect


def test_reads_of_the_current_state_are_counted() -> None:
    """``reselect_flashback_fallbacks_total{code}``: how often Oracle could not say what was at the events' time."""
    source = database(row(1, "A"))
    source.flashback_fallbacks = {"ORA-01555": 1}
    metrics = Metrics()
    lake = Lake(source, NO_CACHE)
    lake.post = Reselect(NO_CACHE, source, metrics=metrics.reselects("shop", 0))
    lake.batch(u(1, big=P))
    labels = {"connector": "shop", "task": "0", "table": "public.orders", "code": "ORA-01555"}
    assert metrics.registry.get_sample_value("reselect_flashback_fallbacks_total", labels) == 1.0


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
