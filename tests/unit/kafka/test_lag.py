"""The lag of a group: what it has not committed."""

from __future__ import annotations

from headrace.ports import TopicPartition
from headrace_connectors.kafka.lag import GroupLag

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


def test_what_is_read_counts_until_it_is_committed() -> None:
    """The fetch position is at the end while the writer hangs."""
    lag = GroupLag()
    lag.begin({FIRST: 40})
    lag.read(FIRST, 40, 100)
    lag.measured({FIRST: 100, SECOND: 7}, {FIRST: 100, SECOND: 0})
    assert lag.now() == {FIRST: 60, SECOND: 7}
    lag.committed({FIRST: 90})
    assert lag.now() == {FIRST: 10, SECOND: 7}
    lag.committed({FIRST: 100})
    assert lag.now() == {FIRST: 0, SECOND: 7}


def test_a_group_without_offsets_begins_where_it_reads() -> None:
    """Retention may have removed what lies before."""
    lag = GroupLag()
    lag.begin({})
    lag.read(FIRST, 500, 510)
    lag.measured({FIRST: 520}, {FIRST: 510})
    assert lag.now() == {FIRST: 20}


def test_what_is_no_record_does_not_count() -> None:
    """Markers of transactions behind the last record are passed by the fetch position alone."""
    lag = GroupLag()
    lag.begin({FIRST: 0})
    lag.read(FIRST, 0, 10)
    lag.committed({FIRST: 10})
    lag.measured({FIRST: 12}, {FIRST: 12})
    assert lag.now() == {FIRST: 0}


def test_an_assignment_leaves_nothing_behind() -> None:
    """A partition that has moved has no lag here, and comes back with the group's offset."""
    lag = GroupLag()
    lag.begin({FIRST: 0})
    lag.read(FIRST, 0, 10)
    lag.measured({FIRST: 10}, {FIRST: 10})
    lag.end()
    assert lag.now() == {}
    lag.begin({FIRST: 10})
    lag.measured({FIRST: 15}, {FIRST: 10})
    assert lag.now() == {FIRST: 5}
