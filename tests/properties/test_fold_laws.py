"""The law of ``merge.md``: whatever the batch boundaries, whatever comes twice or late, the table equals the model."""

from __future__ import annotations

from dataclasses import replace

from change_events import version
from hypothesis import given
from hypothesis import strategies as st
from properties.histories import UNCHANGED, VALUE, Delivery, Unit, batches, cuts, deliveries
from properties.pipelines import Death, Killed, Table, expected
from properties.reference_model import Event
from properties.searching import examples

from headrace.core.events import CellState, Operation
from headrace.ports import TableOptions

DEATHS = st.lists(st.builds(Death, st.integers(1, 12), st.booleans(), st.integers(0, 6)), max_size=4)


def delivered(delivery: Delivery, *, restarts: bool = False, options: TableOptions | None = None) -> Table:
    """The table after all batches, written by one worker or by a new one for each."""
    table = Table(options=options)
    if restarts:
        table.create()
    for _, events in batches(delivery):
        table.write(events)
        if restarts:
            table.restart()
    return table


@examples(600)
@given(deliveries())
def test_any_batch_boundaries_give_the_model(delivery: Delivery) -> None:
    """A history in any batches gives the table of the model."""
    assert delivered(delivery).rows() == expected(delivery.units)


@examples(600)
@given(deliveries(repeats=2))
def test_a_stretch_sent_again_changes_nothing_but_what_the_model_says(delivery: Delivery) -> None:
    """A restarted connector sends a stretch again under higher offsets; restarts between batches forget memory."""
    assert delivered(delivery, restarts=True).rows() == expected(delivery.units)


@examples(400)
@given(deliveries(repeats=1, late=True))
def test_a_record_that_was_dead_lettered_comes_late(delivery: Delivery) -> None:
    """A replayed record has the coordinates that it had, and counts as what it was."""
    assert delivered(delivery).rows() == expected(delivery.units)


@examples(200)
@given(deliveries(repeats=1), st.data())
def test_reading_again_from_an_older_offset_gives_the_same_table(delivery: Delivery, data: st.DataObject) -> None:
    """After a crash the group's offset is behind the table: the same records come again in other batches."""
    table = delivered(delivery)
    again = delivery.units[data.draw(st.integers(0, len(delivery.units))) :]
    table.restart()
    for _, events in batches(Delivery(again, frozenset(data.draw(cuts(len(again)))))):
        table.write(events)
    assert table.rows() == expected(delivery.units)


@examples(400)
@given(deliveries(repeats=1), DEATHS, st.data())
def test_killed_at_commits_the_table_ends_as_the_model(
    delivery: Delivery, deaths: list[Death], data: st.DataObject
) -> None:
    """Between ledger and table commit, or between table and offset commit; what follows comes in other batches."""
    table, units = Table(deaths), delivery.units
    table.create()
    while units:
        units = left_by_death(table, Delivery(units, delivery.cuts), delivery.units)
        table.restart()
        delivery = Delivery(delivery.units, frozenset(data.draw(cuts(len(delivery.units)))))
    assert table.rows() == expected(delivery.units)


@examples(300)
@given(deliveries(), st.booleans())
def test_marking_deleted_rows_changes_nothing_else(delivery: Delivery, restarts: bool) -> None:
    """With ``delete.mode=soft`` the rows that stand are those of the model."""
    table = delivered(delivery, restarts=restarts, options=TableOptions(soft_delete=True))
    assert table.rows() == expected(delivery.units)


def left_by_death(table: Table, delivery: Delivery, everything: list[Unit]) -> list[Unit]:
    """Write until the end or a death: the units that the next worker reads, none at the end."""
    done = len(everything) - len(delivery.units)
    for begin, events in batches(delivery):
        try:
            table.write(events)
        except Killed:
            assert table.died is not None
            return everything[max(done + begin - table.died.back, 0) :]
    return []


def test_a_tombstone_whose_delete_is_read_again_hides_nothing_before_it() -> None:
    """Killed after the ledger, before the table: an update that now comes in a batch of its own still applies.

    The second half of the key change leaves out a value that only the row under its old key has.
    """
    delivery = Delivery(
        [
            [event(Operation.CREATE, 1, 0, a=(VALUE, 5), b=(VALUE, 5))],
            [event(Operation.UPDATE, 1, 1, a=(VALUE, 7), b=(VALUE, 7))],
            [
                replace(event(Operation.DELETE, 1, 2), moved=True),
                replace(event(Operation.CREATE, 2, 3, a=(UNCHANGED, None), b=(VALUE, 8)), old_key=1),
            ],
        ],
        frozenset({0}),
    )
    table = Table([Death(commit=2, before=True, back=0)])
    again = left_by_death(table, delivery, delivery.units)
    assert again == delivery.units[1:]
    table.restart()
    for unit in again:
        table.write(unit)
    assert table.rows() == {2: {"a": 7, "b": 8}} == expected(delivery.units)


def event(operation: Operation, key: int, offset: int, **cells: tuple[CellState, int | None]) -> Event:
    """One change, at positions that count like the offsets."""
    return Event(operation, key, version(offset + 1, offset), cells)
