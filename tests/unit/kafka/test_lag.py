"""The lag of a consumer group: records that it has not committed."""

from __future__ import annotations

from headrace.ports import TopicPartition
from headrace_connectors.kafka.lag import GroupLag

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_records_count_as_lag_until_they_are_committed() -> None:
    """The lag is measured from the committed offset, not from the fetch position."""
    lag = GroupLag()
    lag.begin({FIRST: 40})
    lag.read(FIRST, 40, 100)
    lag.set_ends({FIRST: 100, SECOND: 7}, {FIRST: 100, SECOND: 0})
    assert lag.now() == {FIRST: 60, SECOND: 7}
    lag.on_commit({FIRST: 90})
    assert lag.now() == {FIRST: 10, SECOND: 7}
    lag.on_commit({FIRST: 100})
    assert lag.now() == {FIRST: 0, SECOND: 7}


def test_a_group_without_offsets_begins_where_it_reads() -> None:
    """Without a committed offset the lag is measured from the first offset that was read."""
    lag = GroupLag()
    lag.begin({})
    lag.read(FIRST, 500, 510)
    lag.set_ends({FIRST: 520}, {FIRST: 510})
    assert lag.now() == {FIRST: 20}


def test_transaction_markers_are_no_lag() -> None:
    """Transaction markers behind the last committed record, which the fetch position has passed, are no lag."""
    lag = GroupLag()
    lag.begin({FIRST: 0})
    lag.read(FIRST, 0, 10)
    lag.on_commit({FIRST: 10})
    lag.set_ends({FIRST: 12}, {FIRST: 12})
    assert lag.now() == {FIRST: 0}


def test_the_end_of_an_assignment_clears_the_lag() -> None:
    """A revoked partition has no lag here; assigned again, its lag begins at the group's committed offset."""
    lag = GroupLag()
    lag.begin({FIRST: 0})
    lag.read(FIRST, 0, 10)
    lag.set_ends({FIRST: 10}, {FIRST: 10})
    lag.end()
    assert lag.now() == {}
    lag.begin({FIRST: 10})
    lag.set_ends({FIRST: 15}, {FIRST: 10})
    assert lag.now() == {FIRST: 5}
