"""The property of ``merge.md``: for any batches, and repeated or late events, the table equals the model."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties.counterexamples import check, check_complete
from properties.deliveries import Death, Trouble, cut_anywhere, delivered, delivery
from properties.histories import ABSENT, UNCHANGED, UNKNOWN, VALUE, Size, Unit
from properties.reference_model import Event
from properties.searching import deliveries, examples
from properties.workers import NO_OPTIONS, expected, written, written_or_left_out
from support.records.change_events import version

from headrace.core.model.events import CellState, Operation
from headrace.ports import TableOptions
from headrace_dev.memory import MemoryLakehouse

RANDOMS = st.randoms(use_true_random=False)


def holds(choose: Random, trouble: Trouble, options: TableOptions = NO_OPTIONS) -> None:
    """Check that a worker writes the tables of the model, for a generated history."""
    check(delivery(choose, Size(tables=choose.randint(1, 3)), trouble), options=options)


@deliveries(500)
@given(RANDOMS)
def test_any_batch_boundaries_give_the_model(choose: Random) -> None:
    """A history in any batches gives the tables of the model."""
    holds(choose, Trouble())


@deliveries(400)
@given(RANDOMS)
def test_a_stretch_sent_again_gives_the_model(choose: Random) -> None:
    """A restarted connector sends a sequence late, or again under higher offsets; the table equals the model."""
    holds(choose, Trouble(repeats=2))


@deliveries(300)
@given(RANDOMS)
def test_a_record_comes_late(choose: Random) -> None:
    """A record that is sent again through another topic applies as at its original position."""
    holds(choose, Trouble(repeats=1, late=2))


@deliveries(300)
@given(RANDOMS)
def test_partitions_go_from_worker_to_worker(choose: Random) -> None:
    """Partitions move between workers, and back to one whose memory is older than the table."""
    holds(choose, Trouble(repeats=1, moves=3))


@deliveries(500)
@given(RANDOMS)
def test_killed_at_any_commit_the_table_ends_as_the_model(choose: Random) -> None:
    """A worker is killed before or after schema, ledger, table or offsets; its successor reads other batches."""
    holds(choose, Trouble(repeats=1, deaths=4, moves=1, late=1))


@deliveries(200)
@given(RANDOMS)
def test_marking_deleted_rows_changes_nothing_else(choose: Random) -> None:
    """With ``delete.mode=soft`` the rows that are not marked equal those of the model."""
    holds(choose, Trouble(moves=2), TableOptions(soft_delete=True))


@examples(80)
@given(RANDOMS)
def test_omitted_changes_have_no_effect(choose: Random) -> None:
    """With ``reselect.unresolved.insert.mode=dlq`` an omitted change has no effect, and all others apply."""
    found = delivery(choose, Size(tables=choose.randint(1, 3)), Trouble(repeats=1, late=1))
    tables, rest = written_or_left_out(found, MemoryLakehouse())
    assert tables == {**{number: {} for number in tables}, **expected(replace(found, arrivals=rest))}
    for left in (each for each in found.arrivals if each not in rest):
        assert any(state in (UNCHANGED, UNKNOWN) for state, _ in left.event.cells.values())


@deliveries(40)
@given(RANDOMS)
def test_a_row_that_is_gone_lacks_nothing_when_its_story_is_read_again(choose: Random) -> None:
    """A task that fails if no source supplies a cell does not fail because it was killed at any commit."""
    check_complete(cut_anywhere(choose, STORY))


def test_a_tombstone_whose_delete_is_read_again_hides_nothing_before_it() -> None:
    """A worker is killed between ledger and table; an update that is now in a separate batch still applies.

    The second half of the key change omits a value that only the row under its old key has.
    """
    first = [event(Operation.CREATE, 1, 0, a=(VALUE, 5), b=(VALUE, 5))]
    update = [event(Operation.UPDATE, 1, 1, a=(VALUE, 7), b=(VALUE, 7))]
    move = moved(1, 2, offset=2, partition=0)
    found = delivered([first], [update, move], deaths=[Death("table", 2, before=True)])
    again = delivered([first], [update], [move])
    found = replace(found, cuts=[*found.cuts, *again.cuts])
    assert written(found, MemoryLakehouse()) == expected(found)
    assert {key: (row["a"], row["b"]) for key, row in expected(found)[0].items()} == {2: (7, 8)}


def test_a_stale_insert_before_an_update_leaves_the_row_its_other_cells() -> None:
    """An insert is sent again before an update; the update of the same batch has every column of the insert."""
    row = event(Operation.UPDATE, 1, 6, a=(VALUE, 7), b=(VALUE, 7))
    again = event(Operation.CREATE, 1, 2, a=(VALUE, 1), b=(ABSENT, None))
    update = event(Operation.UPDATE, 1, 8, a=(VALUE, 9), b=(ABSENT, None))
    found = delivered([[row]], [[again], [update]])
    check(found)
    assert expected(found)[0][1]["b"] == 7


def test_an_update_of_a_row_that_is_gone_by_now() -> None:
    """A worker is killed before the offset commit; the update comes in a separate batch, and no row has its cell."""
    row = [event(Operation.CREATE, 1, 0, a=(VALUE, 5), b=(VALUE, 5))]
    update = [event(Operation.UPDATE, 1, 1, a=(VALUE, 7), b=(UNCHANGED, None))]
    gone = [event(Operation.DELETE, 1, 2)]
    found = delivered([row], [update, gone], deaths=[Death("offsets", 2, before=True)])
    found = replace(found, cuts=[*found.cuts, *delivered([row], [update], [gone]).cuts])
    check_complete(found)
    assert written_or_left_out(found, MemoryLakehouse()) == ({0: {}}, found.arrivals), "a dead letter"


@pytest.mark.xfail(strict=True, reason="a limit, which docs/guarantees.md names")
def test_a_read_that_is_read_again_behind_an_older_change_of_another_partition() -> None:
    """The source times order the two changes, and the row has the time of the later one."""
    read = event(Operation.READ, 1, 9, a=(VALUE, 1), b=(VALUE, 1))
    read = replace(read, version=replace(read.version, position=b"", partition=1))
    change = event(Operation.CREATE, 1, 0, a=(VALUE, 2), b=(VALUE, 2))
    found = delivered([[read]], [[change]], deaths=[Death("offsets", 1, before=True)])
    check(replace(found, lost=frozenset({1})))


@pytest.mark.xfail(strict=True, reason="a limit, which docs/guarantees.md names")
def test_a_row_that_moves_on_in_another_partition_which_is_not_read_again_yet() -> None:
    """A worker is killed after the ledger: the tombstone of the second move hides the first one."""
    row = event(Operation.CREATE, 2, 0, a=(VALUE, 1), b=(VALUE, 1))
    moves = [moved(2, 1, offset=1, partition=0), moved(1, 3, offset=4, partition=1)]
    found = delivered([[row]], moves, deaths=[Death("ledger", 1, before=False)])
    apart = delivered([[row]], moves[:1], moves[1:])
    check(replace(found, cuts=[*found.cuts, *apart.cuts]))


def moved(old: int, new: int, offset: int, partition: int) -> Unit:
    """A key change that omits a value."""
    halves = [
        replace(event(Operation.DELETE, old, offset), moved=True),
        replace(event(Operation.CREATE, new, offset + 1, a=(UNCHANGED, None), b=(VALUE, 8)), old_key=old),
    ]
    return [replace(half, version=replace(half.version, partition=partition)) for half in halves]


def event(operation: Operation, key: int, offset: int, **cells: tuple[CellState, int | None]) -> Event:
    """One change, at positions that count like the offsets."""
    return Event(operation, key, version(offset + 1, offset), cells)


def updated(key: int, offset: int) -> Unit:
    """An update that omits a value."""
    return [event(Operation.UPDATE, key, offset, a=(VALUE, offset), b=(UNCHANGED, None))]


STORY = [
    [event(Operation.CREATE, 1, 0, a=(VALUE, 1), b=(VALUE, 1))],
    updated(1, 1),
    [event(Operation.DELETE, 1, 2)],
    [event(Operation.CREATE, 1, 3, a=(VALUE, 2), b=(VALUE, 2))],
    updated(1, 4),
    moved(1, 2, offset=5, partition=0),
    updated(2, 7),
    moved(2, 3, offset=8, partition=0),
    updated(3, 10),
    [event(Operation.DELETE, 3, 11)],
    [event(Operation.CREATE, 2, 12, a=(VALUE, 3), b=(VALUE, 3))],
    updated(2, 13),
]
"""Rows that are made, moved on and gone, with changes that leave a value out at every step."""
