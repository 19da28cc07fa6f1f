"""Tests of the column cache that the tables of a task share."""

from __future__ import annotations

from support.task.reselect_harness import CACHE, NO_CACHE, TABLE, Lake, P, database, row, u


def test_the_entries_of_a_batch_are_published_with_its_commit() -> None:
    """The entries of a batch are published with its commit, and discarded if the batch was not written."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.resolve(u(1, big="A"))
    lake.post.cache.discard(TABLE)
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("B", 1)
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("B", 1)


def test_without_the_option_no_batch_has_an_overlay() -> None:
    """Without ``reselect.cache.enabled`` no value is cached, and no cache metric is reported."""
    lake = Lake(database(row(1, "A")), NO_CACHE)
    lake.batch(u(1, big=P))
    use, counts = lake.post.cache.take_counts()
    assert (use.rows, sum(counts.values())) == (0, 0)
    assert not any(counter == "writes" for counter, *_ in lake.metrics.seen)


def test_an_excluded_topic_is_neither_cached_nor_read() -> None:
    """Cells of an excluded topic keep the stored value, without a query and without the cache."""
    lake = Lake(database(row(1, "B")), CACHE)
    lake.batch(u(1, big="A"))
    lake.post.exclude_topic(lake.topic)
    lake.rows[1]["big"] = "stored"
    lake.batch(u(1, big=P))
    assert (lake.big(), lake.queries) == ("stored", 0)


def test_outcomes_are_taken_once() -> None:
    """The outcomes of the cache are returned once, because several tables report those of one cache."""
    lake = Lake(database(), CACHE)
    lake.batch(u(1, big="A"))
    assert lake.post.cache.take_counts()[1]
    assert not +lake.post.cache.take_counts()[1]
