"""A key change takes along the cells that it omits, and a delete of a row that lost its key removes no other row."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.records.change_events import (
    UNCHANGED,
    Cell,
    Event,
    changes,
    create,
    delete,
    position,
    read,
    tombstone,
    update,
    version,
)

from headrace.core.batch.event_pairs import paired_halves
from headrace.core.merge.fold import fold
from headrace.core.merge.key_changes import with_displaced
from headrace.core.model.actions import Actions
from headrace.core.model.events import CellState, Changes


def away(old: int, new: int, lsn: int | None, partition: int = 0) -> Event:
    return replace(delete(old, lsn, moved=True), new_key=new, partition=partition)


def into(old: int, new: int, lsn: int | None, cell: Cell = UNCHANGED, partition: int = 1) -> Event:
    return Event(create(new, 0).operation, new, lsn, {"a": cell}, old_key=old, partition=partition)


def cell(actions: Actions, key: int) -> tuple[CellState, int | None]:
    index = actions.key.to_pylist().index(f"={key}")
    column = actions.columns[1]
    state = CellState.VALUE if column.states is None else CellState(column.states[index])
    return state, column.values[index].as_py()


FIRST, SECOND = 1, 2
REUSED = (create(117, 100, a=FIRST), away(117, 158, 200), create(117, 300, a=SECOND), delete(117, 400))


@pytest.mark.parametrize("place", range(1, 5))
def test_another_row_under_the_old_key_supplies_nothing(place: int) -> None:
    """The old key is used again in its partition; the second half takes cells from its own row, wherever it arrives."""
    events = (*REUSED[:place], into(117, 158, 200), *REUSED[place:])
    assert cell(fold(changes(*events)), 158) == (CellState.VALUE, FIRST)


def test_a_row_supplies_nothing_without_the_half_that_moved_it() -> None:
    """A second half whose first half is in another batch takes nothing from rows of the old key in this batch."""
    earlier = (create(117, 10, a=9), delete(117, 20))
    assert cell(fold(changes(*earlier, into(117, 158, 200))), 158)[0] is CellState.UNCHANGED
    assert cell(fold(changes(*REUSED[2:], into(117, 158, 200))), 158)[0] is CellState.UNCHANGED


def test_a_half_that_leads_to_another_key_supplies_no_cells() -> None:
    """Two rows had the same key one after the other and moved to two keys; each takes the cells of its own old row."""
    moves = (create(1, 10, a=5), away(1, 2, 20), create(1, 30, a=6), away(1, 3, 40))
    actions = fold(changes(*moves, into(1, 2, 20), into(1, 3, 40)))
    assert (cell(actions, 2)[1], cell(actions, 3)[1]) == (5, 6)


def test_the_same_change_of_a_key_twice() -> None:
    """Two rows move from 1 to 2 one after the other; each second half is paired with its own first half."""
    events = (
        create(1, 10, a=5),
        away(1, 2, 20),
        create(1, 30, a=6),
        away(1, 2, 40),
        into(1, 2, 20),
        delete(2, 35),
        into(1, 2, 40),
    )
    assert paired_halves(changes(*events)) == {4: 1, 6: 3}


def test_the_row_that_is_stored_supplies_cells_only_if_it_is_that_row() -> None:
    """A stored row that was created after the key change, or read after it, supplies no cells."""
    halves = changes(away(1, 2, 20), into(1, 2, 20))
    stored = {"=1": version(10, -1)}
    assert cell(fold(halves, stored=stored), 2)[0] is CellState.CARRIED
    assert cell(fold(halves, stored={"=1": version(30, 9)}), 2)[0] is CellState.UNCHANGED
    read_later = replace(version(None, -1), source_time=0)
    assert cell(fold(halves, stored={"=1": read_later}), 2)[0] is CellState.UNCHANGED


def test_a_read_that_is_newer_than_the_key_change_supplies_nothing() -> None:
    """A key change takes no cells of a read with a later source time, as a blocking snapshot may send before it."""
    events = changes(
        read(1, a=8), read(2, a=7), away(1, 2, 20), replace(into(1, 2, 20), partition=0), create(1, 30, a=8)
    )
    events.version.source_time[:] = [900, 900, 100, 100, 200]
    assert cell(fold(events), 2)[0] is CellState.UNCHANGED
    events.version.source_time[:] = [50, 50, 100, 100, 200]
    assert cell(fold(events), 2) == (CellState.VALUE, 8)


def test_halves_without_a_position_have_to_be_neighbours() -> None:
    """Halves without a position are paired only if they are neighbours in one partition."""
    beside = changes(update(1, None, a=5), away(1, 2, None), replace(into(1, 2, None), partition=0))
    assert cell(fold(beside), 2) == (CellState.VALUE, 5)
    apart = changes(update(1, None, a=5), away(1, 2, None), into(1, 2, None))
    assert cell(fold(apart), 2)[0] is CellState.UNCHANGED
    assert position(None) == b""


def move(old: int, new: int, lsn: int) -> list[Event]:
    """Return both halves of a key change, and the tombstone between them."""
    into = Event(create(new, lsn).operation, new, lsn, {"a": lsn}, old_key=old)
    return [replace(delete(old, lsn, moved=True), new_key=new), replace(tombstone(old), moved=True), into]


def in_transactions(*numbers: int, events: list[Event]) -> Changes:
    return replace(changes(*events), transaction=np.array(numbers, np.int64))


SHIFT = in_transactions(*[7] * 6, events=[*move(1, 2, 20), *move(2, 3, 21)])
OLD_ROW = {"=2": version(5, -1)}


def test_the_delete_of_a_taken_key_and_its_tombstone_delete_nothing() -> None:
    """The delete and its tombstone refer to the event that took the key, and the ledger contains both moves."""
    marked, new_entries = with_displaced(SHIFT, {}, OLD_ROW)
    assert (set(marked.key_changes.displaced), marked.key_changes.displaced[3]) == ({3, 4}, 2)
    assert new_entries == {"-onto:7:=2": SHIFT.version.row(2), "-from:7:=2": SHIFT.version.row(3)}
    actions = fold(marked)
    rows = dict(zip(actions.key.to_pylist(), actions.delete.tolist(), strict=True))
    assert rows == {"=1": True, "=2": False, "=3": False}


def test_a_tombstone_behind_the_second_half_deletes_the_row_that_took_the_key() -> None:
    """A tombstone whose delete was compacted is of the row that took the key, also if the delete's own one is gone."""
    without_own = [event for event in move(2, 3, 21) if event.operation != tombstone(2).operation]
    marked, _ = with_displaced(
        in_transactions(*[7] * 6, events=[*move(1, 2, 20), *without_own, tombstone(2)]), {}, OLD_ROW
    )
    assert set(marked.key_changes.displaced) == {3}
    actions = fold(marked)
    rows = dict(zip(actions.key.to_pylist(), actions.delete.tolist(), strict=True))
    assert rows == {"=1": True, "=2": True, "=3": False}


def test_the_delete_of_a_key_that_was_free_removes_its_row() -> None:
    """A delete removes the row that moved to a free key, also if a row was deleted there or the transactions differ."""
    assert with_displaced(SHIFT, {}, {})[0].key_changes.displaced == {}
    before = [create(2, 5, a=1), delete(2, 6)]
    marked, _ = with_displaced(
        in_transactions(3, 4, *[7] * 6, events=[*before, *move(1, 2, 20), *move(2, 3, 21)]), {}, {}
    )
    assert marked.key_changes.displaced == {}
    apart = in_transactions(*[7] * 3, *[8] * 3, events=[*move(1, 2, 20), *move(2, 3, 21)])
    assert with_displaced(apart, {}, OLD_ROW)[0].key_changes.displaced == {}


def test_the_ledger_decides_where_the_first_move_was_in_another_batch() -> None:
    """The ledger marks the delete that it contains when that is read again, and no later delete of the same key."""
    _, new_entries = with_displaced(SHIFT, {}, OLD_ROW)
    second = in_transactions(*[7] * 3, events=move(2, 3, 21))
    stored_row = {"=2": version(20, 2)}
    assert with_displaced(second, new_entries, stored_row)[0].key_changes.displaced == {0: -1, 1: -1}
    later = in_transactions(*[7] * 3, events=move(2, 4, 22))
    assert with_displaced(later, new_entries, stored_row)[0].key_changes.displaced == {}


def test_sources_without_transactions_have_no_taken_keys() -> None:
    """Without transaction numbers no delete is marked, because such sources check keys in every statement."""
    unknown = replace(SHIFT, transaction=np.full(6, -1))
    assert with_displaced(unknown, {}, OLD_ROW)[0].key_changes.displaced == {}
