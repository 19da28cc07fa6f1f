"""The fold makes one action per key, column by column. Its laws are tested in ``tests/properties``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.records.change_events import (
    ABSENT,
    UNCHANGED,
    UNKNOWN,
    Cell,
    Event,
    changes,
    create,
    delete,
    position,
    read,
    update,
    version,
)

from headrace.core.batch.combine import combine, without_events
from headrace.core.merge.fold import fold
from headrace.core.model.actions import Actions
from headrace.core.model.events import CellState


def origins(actions: Actions) -> list[int]:
    """Return the index of the action that carries cells to each action, or -1."""
    assert actions.carried is not None
    found: list[int] = actions.carried.origin.tolist()
    return found


def cell(actions: Actions, column: str = "a", index: int = 0) -> tuple[CellState, int | None]:
    found = next(each for each in actions.columns if each.name == column)
    value = found.values[index].as_py()
    if found.states is None:
        return (CellState.NULL if value is None else CellState.VALUE), value
    return CellState(int(found.states[index])), value


@pytest.mark.parametrize(
    ("known", "following", "folded"),
    [
        (1, 2, (CellState.VALUE, 2)),
        (1, None, (CellState.NULL, None)),
        (1, UNCHANGED, (CellState.VALUE, 1)),
        (1, UNKNOWN, (CellState.DOUBTFUL, 1)),
        (1, ABSENT, (CellState.VALUE, 1)),
        (None, UNCHANGED, (CellState.DOUBTFUL, None)),
        (None, UNKNOWN, (CellState.DOUBTFUL, None)),
        (UNCHANGED, 2, (CellState.VALUE, 2)),
        (UNCHANGED, UNCHANGED, (CellState.UNCHANGED, None)),
        (UNCHANGED, UNKNOWN, (CellState.UNKNOWN, None)),
        (UNKNOWN, UNCHANGED, (CellState.UNKNOWN, None)),
        (ABSENT, ABSENT, (CellState.ABSENT, None)),
    ],
)
def test_the_table_of_cell_states(known: Cell, following: Cell, folded: tuple[CellState, int | None]) -> None:
    """The fold combines the cell states of two updates as in ``reselect.md`` section 4.1 (S32: no value is lost)."""
    actions = fold(changes(update(1, 10, a=known), update(1, 20, a=following)))
    assert cell(actions) == folded


@pytest.mark.parametrize(
    ("lost", "folded"),
    [
        ([2, 2, 2], (CellState.VALUE, 1)),
        ([0, 1, 1], (CellState.DOUBTFUL, 1)),
        ([0, 0, 1], (CellState.DOUBTFUL, 1)),
    ],
)
def test_no_value_is_sure_behind_a_record_that_was_lost(lost: list[int], folded: tuple[CellState, int]) -> None:
    """A cell omitted after a lost record is doubtful, since that record may have changed it; also in a divided run."""
    run = replace(changes(update(1, 10, a=1), update(1, 20, a=ABSENT), update(1, 30, a=UNCHANGED)), lost=np.array(lost))
    assert cell(fold(run)) == cell(fold(combine([run.slice(0, 1), run.slice(1, len(run))]))) == folded
    assert cell(fold(combine([changes(create(2, 5, a=3)), run])), index=1) == folded


def test_removed_events_count_as_lost_for_the_rest_of_their_partition() -> None:
    """``without_events`` adds the removed events to the lost records before each later event of the same partition."""
    apart = Event(update(2, 15).operation, 2, 15, {"a": 5}, partition=1)
    run = changes(update(1, 10, a=1), apart, update(1, 20, a=ABSENT), update(1, 30, a=UNCHANGED))
    with_losses = replace(run, lost=np.array([2, 0, 2, 3]))
    assert without_events(with_losses, {2}).losses().tolist() == [2, 0, 4]
    assert cell(fold(without_events(run, {2}))) == (CellState.DOUBTFUL, 1)
    assert without_events(run, {0, 2}).losses().tolist() == [0, 2]


def test_an_insert_discards_earlier_cells() -> None:
    """An insert takes no cells of an older row of the key; columns that it lacks are null."""
    actions = fold(changes(update(1, 10, a=5), delete(1, 20), create(1, 30, a=ABSENT)))
    assert cell(actions) == (CellState.NULL, None)
    assert actions.fresh.tolist() == [True]


def test_an_update_after_a_delete_is_a_new_row() -> None:
    """An update after a delete is a new row, which does not keep the deleted row's cells."""
    assert fold(changes(delete(1, 10), update(1, 20, a=UNCHANGED))).fresh.tolist() == [True]


def test_a_delete_applies_by_its_own_position() -> None:
    """A delete is applied by its own position; it is fresh if the batch inserted its row."""
    actions = fold(changes(create(1, 10, a=1), delete(1, 20), update(2, 30, a=1), delete(2, 40)))
    assert actions.delete.tolist() == [True, True]
    assert actions.fresh.tolist() == [True, False]
    assert actions.gates.first.offset.tolist() == [1, 3]


def test_the_gate_is_that_of_the_oldest_cell() -> None:
    """An action is applied by the position of the oldest event of which it has a cell."""
    assert fold(changes(update(1, 10, a=1), update(1, 20, a=2))).gates.first.offset.tolist() == [1]
    leaning = fold(changes(update(1, 10, a=1), update(1, 20, a=UNCHANGED)))
    assert leaning.gates.first.offset.tolist() == [0]
    assert leaning.version.offset.tolist() == [1]


def test_a_read_never_lowers_the_position() -> None:
    """A read that arrives later replaces the cells and keeps the row's position (``merge.md`` section 2.2)."""
    actions = fold(changes(update(1, 10, a=1), read(1, a=2)))
    assert cell(actions) == (CellState.VALUE, 2)
    assert actions.version.position[0] == b"00000.%020d" % 10
    assert actions.gates.by_arrival.tolist() == [True]


def test_a_read_over_a_tombstone_has_no_position() -> None:
    """A read does not take the position of a tombstone, because the same delete, sent again, must remove the row."""
    actions = fold(changes(Event(read(1).operation, 1, None, {"a": 1}, offset=9)), {"=1": version(50, 3)})
    assert actions.version.position.tolist() == [b""]


def test_an_insert_decides_whether_its_row_applies_though_an_update_has_all_cells() -> None:
    """An insert and an update of all cells apply by the insert's position; a stale insert must not make a new row."""
    actions = fold(changes(create(1, 30, a=1), update(1, 90, a=2)))
    assert actions.fresh.tolist() == [True]
    assert actions.gates.position.tolist() == [position(30)]


def test_keys_of_which_nothing_applies_are_reported() -> None:
    """The fold reports keys whose events are all stale, and has no action for them."""
    events = changes(update(1, 10, a=1), update(2, 11, a=2), update(3, 12, a=3), update(2, 60, a=4), delete(4, 61))
    actions = fold(events, {key: version(50, 3) for key in ("=1", "=2", "=3")})
    assert (actions.key.to_pylist(), actions.superseded.stale_keys) == (["=2", "=4"], ["=1", "=3"])
    assert not fold(events).superseded.stale_keys


def moved(old: int, new: int, lsn: int, cell: Cell) -> tuple[Event, Event]:
    away = delete(old, lsn, moved=True)
    into = create(new, lsn + 1, a=cell)
    return away, Event(into.operation, new, lsn + 1, into.cells, old_key=old)


def test_a_lower_delete_does_not_replace_a_higher_one() -> None:
    """A delete with a lower position removes a row that was read before it; the ledger gets the higher delete."""
    actions = fold(changes(delete(1, 30), read(1, a=5), delete(1, 20)))
    assert actions.delete.tolist() == [True]
    assert actions.superseded.tombstones == {"=1": version(30, 0)}
    assert fold(changes(delete(1, 20), create(1, 25, a=5), delete(1, 30))).superseded.tombstones == {}


def test_a_key_change_takes_cells_of_the_batch() -> None:
    """A key change takes omitted cells from the events of the old key in the same batch."""
    actions = fold(changes(update(1, 10, a=7), *moved(1, 2, 20, UNCHANGED)))
    assert actions.key.to_pylist() == ["=1", "=2"]
    assert cell(actions, index=1) == (CellState.VALUE, 7)


@pytest.mark.parametrize(
    ("lost", "state"),
    [
        ([2, 2, 7, 7, 4, 4], CellState.VALUE),
        ([2, 3, 7, 7, 4, 4], CellState.DOUBTFUL),
        ([2, 2, 7, 8, 4, 4], CellState.DOUBTFUL),
        ([2, 2, 7, 7, 4, 5], CellState.DOUBTFUL),
    ],
    ids=["nowhere", "of the first key", "of the second key", "of the third key"],
)
def test_a_key_change_takes_no_sure_value_over_a_record_that_was_lost(lost: list[int], state: CellState) -> None:
    """A cell carried along a chain of keys is doubtful if a record was lost in the partition of any of the keys."""
    chain = (update(1, 10, a=7), *moved(1, 2, 20, UNCHANGED), *moved(2, 3, 30, UNCHANGED), update(3, 40, a=UNCHANGED))
    assert cell(fold(replace(changes(*chain), lost=np.array(lost))), index=2) == (state, 7)


def test_a_key_change_takes_cells_of_the_stored_row() -> None:
    """The merge reads the cells from the stored row under the old key if the batch does not contain them."""
    actions = fold(changes(*moved(1, 2, 20, UNCHANGED)))
    assert cell(actions, index=1)[0] is CellState.CARRIED
    assert origins(actions) == [-1, 0]


def test_a_key_change_takes_nothing_from_a_later_row() -> None:
    """A row that was created under the old key after the key change, and arrives before it, supplies no cells."""
    later = (
        Event(update(1, 70).operation, 1, 70, {"a": 7}, partition=1),
        Event(delete(1, 90).operation, 1, 90, partition=1),
    )
    assert cell(fold(changes(*later, *moved(1, 2, 20, UNCHANGED))), index=1)[0] is UNCHANGED


def test_chains_and_swaps_carry_the_right_cells() -> None:
    """A chain 1 -> 2 -> 3 takes cells from the stored row 1; two rows that swap keys take cells from each other."""
    chain = fold(changes(*moved(1, 2, 10, UNCHANGED), *moved(2, 3, 20, UNCHANGED)))
    assert chain.key.to_pylist() == ["=1", "=2", "=3"]
    assert origins(chain) == [-1, -1, 0]
    swap = fold(changes(*moved(1, 9, 10, UNCHANGED), *moved(2, 1, 20, UNCHANGED), *moved(9, 2, 30, UNCHANGED)))
    origin = dict(zip(swap.key.to_pylist(), origins(swap), strict=True))
    swapped_keys = swap.key.to_pylist()
    assert swapped_keys[origin["=1"]] == "=2"
    assert swapped_keys[origin["=2"]] == "=1"


def test_a_column_that_a_key_change_has_no_more_is_not_carried() -> None:
    """A column that was dropped before a key change and added again after it takes no cell of the old row."""
    into = Event(create(2, 21).operation, 2, 21, {"a": ABSENT}, old_key=1)
    again = Event(create(3, 31).operation, 3, 31, {"a": UNCHANGED}, old_key=2)
    moved = (create(1, 10, a=5), delete(1, 20, moved=True), into)
    assert cell(fold(changes(*moved, update(2, 30, a=UNCHANGED))), index=1)[0] is UNCHANGED
    assert cell(fold(changes(*moved[1:], update(2, 30, a=UNKNOWN))), index=1)[0] is UNCHANGED
    assert cell(fold(changes(*moved, delete(2, 30, moved=True), again)), index=2)[0] is UNCHANGED


def test_a_half_without_its_first_part_carries_nothing() -> None:
    """A second half without its first half leaves an omitted cell open, for reselect or the unresolved policy."""
    _, into = moved(1, 2, 20, UNCHANGED)
    actions = fold(changes(into))
    assert cell(actions)[0] is CellState.UNCHANGED
    assert actions.carried is None
