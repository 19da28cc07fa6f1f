"""Tests of the metrics of reselect and column cache (``reselect.md`` section 9)."""

from __future__ import annotations

from dataclasses import replace

from support.task.reselect_harness import (
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
    """``reselect_flashback_fallbacks_total{code}`` counts reads that Oracle could not return as of the event's SCN."""
    source = database(row(1, "A"))
    source.flashback_fallbacks = {"ORA-01555": 1}
    metrics = Metrics()
    lake = Lake(source, NO_CACHE)
    lake.post = Reselect(NO_CACHE, source, metrics=metrics.reselects("shop", 0))
    lake.batch(u(1, big=P))
    labels = {"connector": "shop", "task": "0", "table": "public.orders", "code": "ORA-01555"}
    assert metrics.complete().get_sample_value("reselect_flashback_fallbacks_total", labels) == 1.0


def test_metrics_of_queries() -> None:
    """The metrics count results of queries, bytes read, resolved cells by column, and missing rows (section 9)."""
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


def test_metrics_of_cached_and_evicted_rows() -> None:
    """The metrics count cached rows, and rows that were evicted because of a limit (section 9)."""
    lake = Lake(None, replace(CACHE, cache_max_size=2))
    lake.batch(*(u(key, big="x") for key in range(5)))
    lake.batch(u(9, doc="y"))
    assert lake.metrics.use.rows == 2
    assert lake.metrics.seen["drops", "evicted"] == 3
    assert lake.metrics.seen["writes", "event", "stored"] == 10


def test_cells_that_the_fold_resolves_are_counted() -> None:
    """The metrics count cells that another event of the same batch resolves (section 9)."""
    lake = Lake(None, NO_CACHE)
    lake.batch(u(1, big="A", doc="x"), u(1, big=P, doc=P), u(2, big=P, doc="y"), u(3, big=P), d(3))
    seen = lake.metrics.seen
    assert (seen["resolved", "fold", "big"], seen["resolved", "fold", "doc"]) == (2, 1)
    assert (seen["cells", "unchanged", "big"], seen["resolved", "target", "big"]) == (1, 1)


def test_cells_that_bypass_the_cache_are_counted() -> None:
    """The metrics count cells of inserted rows and of topics without a cache, unless the cache is off (section 9)."""
    lake = Lake(None, CACHE)
    lake.each(u(1, big="A"), c(1, big=P), u(1, big=P))
    assert lake.metrics.seen["requests", "bypassed"] == 1
    hidden = Lake(None, CACHE, may_cache=lambda topic: False)
    hidden.each(u(1, big="A"), u(1, big=P))
    assert hidden.metrics.seen["requests", "bypassed"] == 1
    none = Lake(None, NO_CACHE)
    none.each(u(1, big="A"), u(1, big=P))
    assert none.metrics.seen["requests", "bypassed"] == 0


def test_the_age_of_the_oldest_cached_value() -> None:
    """The metrics contain the age of the oldest cached value, which is measured periodically (section 9)."""
    lake = Lake(None, CACHE)
    lake.batch(u(1, big="A"))
    lake.clock.now = 20.0
    lake.batch(u(2, big="B"))
    assert lake.metrics.use.oldest == 20_000
    lake.batch(d(1))
    lake.clock.now = 31.0
    lake.batch(u(3, big="C"))
    assert lake.metrics.use.oldest == 11_000


def test_connections_are_reported_with_every_query() -> None:
    """The metrics contain idle and used connections, and servers that are not queried (section 9)."""
    lake = Lake(database(row(1, "A")), NO_CACHE)
    assert lake.source is not None
    lake.source.connected = Connections(2, 1, 1)
    lake.batch(u(1, big=P))
    assert lake.metrics.connected == Connections(2, 1, 1)


def test_position_that_falls_is_a_contradiction() -> None:
    """The metrics count events whose position is below that of the cached value (section 9)."""
    lake = Lake(None, CACHE)
    reported: list[str] = []
    lake.post._on_contradiction = lambda topic, table, kind: reported.append(kind)
    lake.each(u(1, position=20, big="new"), u(1, position=10, big="old"), u(1, position=30, big="next"))
    assert lake.metrics.seen["contradictions", "position_regression"] == 1
    assert reported == ["position_regression"]
