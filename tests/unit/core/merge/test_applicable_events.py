"""The fold skips events that are stale (``merge.md`` sections 2 and 3)."""

from __future__ import annotations

from support.records.change_events import Event, changes, create, delete, read, tombstone, update, version

from headrace.core.merge.applicable_events import applicable, group
from headrace.core.model.events import RowVersion


def applied(
    *events: Event, ledger: dict[str, RowVersion] | None = None, stored: dict[str, RowVersion] | None = None
) -> list[int]:
    """The indexes of the events that apply."""
    batch = changes(*events)
    grouped = group(batch)
    return sorted(grouped.order[applicable(batch, grouped, ledger or {}, stored or {})].tolist())


def test_events_in_order_all_apply() -> None:
    """Events with rising positions and offsets apply, and so do snapshot reads before changes."""
    assert applied(read(1), update(1, 10), create(2, 11), update(1, 12)) == [0, 1, 2, 3]


def test_a_lower_position_does_not_apply() -> None:
    """Events that the connector sends again, at positions that the batch already has, do not apply."""
    assert applied(update(1, 10), update(1, 20), update(1, 10), update(1, 20), update(1, 30)) == [0, 1, 4]


def test_the_tombstone_of_a_delete_is_that_delete() -> None:
    """The tombstone that follows a delete does not apply, and the create behind it does."""
    assert applied(delete(1, 10), tombstone(1), create(1, 20)) == [0, 2]


def test_an_event_without_position_needs_to_arrive_later() -> None:
    """A read without a position applies if its offset is higher, or in another partition its source time."""
    again = Event(read(1).operation, 1, None, {}, offset=0)
    assert applied(Event(update(1, 5).operation, 1, 5, {}, offset=3), again) == [0]
    other_partition = Event(read(1).operation, 1, None, {}, partition=1, offset=9)
    assert applied(Event(update(1, 5).operation, 1, 5, {}, offset=3), other_partition) == [0, 1]


def test_a_read_that_is_copied_counts_as_a_new_one() -> None:
    """A read that is sent again applies, since it may be a later snapshot; an update that is sent again does not."""
    assert applied(read(1), update(1, 10), read(1), update(1, 10)) == [0, 1, 2]


def test_the_ledger_blocks_upserts_below_it_and_never_a_delete() -> None:
    """A tombstone in the ledger blocks older upserts; a delete that is read again after a crash removes the row."""
    ledger = {"=1": version(30, 9)}
    assert applied(update(1, 20), delete(1, 30), ledger=ledger) == [0, 1]
    assert applied(update(1, 20), ledger=ledger) == []
    assert applied(delete(1, 20), ledger=ledger) == [0]
    assert applied(create(1, 40), ledger=ledger) == [0]


def test_a_delete_sent_again_removes_the_read_behind_it() -> None:
    """A delete that is sent again applies to a row that was read after it, because that row has no position."""
    assert applied(create(1, 10), delete(1, 30), read(1), delete(1, 30)) == [0, 1, 2, 3]
    assert applied(delete(1, 30), delete(1, 20)) == [0]


def test_the_floor_of_a_truncate_blocks_every_key() -> None:
    """The floor of a truncate blocks upserts of every key below its position, and no deletes."""
    assert applied(create(1, 10), create(2, 40), delete(3, 10), ledger={"": version(30, 9)}) == [1, 2]


def test_stored_rows_are_outranked_or_stay() -> None:
    """An event applies to a stored row only if its position is higher; an equal position is the same change."""
    stored = {"=1": version(20, 5)}
    assert applied(update(1, 10), update(1, 20), update(1, 30), stored=stored) == [2]
    assert applied(delete(1, 20), stored=stored) == []


def test_a_row_of_the_last_event_reflects_all_before_it() -> None:
    """A row stored by the batch's last event contains all events before it, so that none of them applies again."""
    overtaken = Event(read(1).operation, 1, None, {}, partition=1, offset=9)
    last = Event(update(1, 20).operation, 1, 20, {}, offset=2)
    assert applied(overtaken, last) == [0, 1]
    assert applied(overtaken, last, stored={"=1": version(20, 2)}) == []
    assert applied(overtaken, last, stored={"=1": version(10, 1)}) == [0, 1]
