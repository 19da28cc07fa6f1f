"""A batch that needs too much memory is divided into parts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.records.change_events import Event, changes, create, delete, update

from headrace.core.batch.event_pairs import divide, divisible

STEPS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 4)), min_size=1, max_size=12)


def written(steps: list[tuple[int, int]]) -> list[Event]:
    """Return an update of each step's first key, or its change to the second key if that is not 0."""
    events: list[Event] = []
    for key, other in steps:
        lsn = len(events) + 1
        if other:
            away, into = delete(key, lsn, moved=True), create(other, lsn + 1, a=1)
            events += [away, Event(into.operation, other, lsn + 1, into.cells, old_key=key)]
        else:
            events.append(update(key, lsn, a=1))
    return events


@given(STEPS, st.integers(2, 6))
def test_parts_are_the_whole_in_order_and_no_key_change_is_cut(steps: list[tuple[int, int]], count: int) -> None:
    """``divide`` returns at most as many parts as requested, and at least two if there are two steps."""
    run = changes(*written(steps))
    parts = divide(run, count)
    assert [offset for part in parts for offset in part.version.offset.tolist()] == list(range(len(run)))
    assert all(part.key_changes.first_halves == {second - 1 for second in part.key_changes.old_keys} for part in parts)
    assert all(len(part) for part in parts)
    assert (1 + divisible(run)) <= len(parts) <= count
    assert divisible(run) == (len(steps) > 1)


def test_parts_are_of_about_one_length() -> None:
    """The lengths of the parts differ by at most one."""
    parts = divide(changes(*(update(key, key, a=1) for key in range(1, 11))), 3)
    assert [len(part) for part in parts] == [3, 3, 4]


def test_a_second_half_without_its_first_holds_nothing_together() -> None:
    """A second half whose first half is in another batch or arrives later may be the end of a part."""
    into = Event(create(2, 2).operation, 2, 2, {"a": 1}, old_key=1)
    assert [len(part) for part in divide(changes(update(3, 1, a=1), into, delete(1, 3, moved=True)), 3)] == [1, 1, 1]
