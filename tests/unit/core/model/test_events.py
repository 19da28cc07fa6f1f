"""``outranks`` decides which of two changes of one row wins (``merge.md`` section 2)."""

from __future__ import annotations

from support.records.change_events import version

from headrace.core.model.events import UNVERSIONED, outranks, succeed


def test_positions_decide_where_there_are_any() -> None:
    """A higher position wins, a lower one loses, and any position wins over a row without one."""
    assert outranks(version(20, 0), version(10, 9))
    assert not outranks(version(10, 9), version(10, 0))
    assert outranks(version(10, 0), version(None, 9))


def test_arrival_decides_for_an_event_without_a_position() -> None:
    """An event without a position is ranked by offset within a partition and by source time across partitions."""
    assert outranks(version(None, 5), version(99, 4))
    assert not outranks(version(None, 4), version(99, 4))
    assert outranks(version(None, 5, partition=1), version(99, 4))
    assert not outranks(version(None, 4, partition=1), version(99, 5))


def test_everything_outranks_a_row_written_by_other_means() -> None:
    """Every event wins over a row without a version, as a bulk load writes it."""
    assert outranks(version(None, 0), UNVERSIONED)
    assert outranks(version(1, 0), UNVERSIONED)


def test_a_position_is_never_lowered() -> None:
    """``succeed`` returns the higher position; a snapshot read keeps the row's position with its own offset."""
    assert succeed(version(None, 5), version(10, 4)) == version(10, 5)
    assert succeed(version(5, 9), version(10, 4)) == version(10, 4)
    assert succeed(version(5, 9), None) == version(5, 9)
