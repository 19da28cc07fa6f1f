"""Which events apply (``merge.md`` sections 2 and 3)."""

from __future__ import annotations

from change_events import Event, changes, create, delete, read, tombstone, update, version

from headrace.core.merge.applicable_events import applicable, group
from headrace.core.model.events import RowVersion


def applied(
    *events: Event, ledger: dict[str, RowVersion] | None = None, stored: dict[str, RowVersion] | None = None
) -> list[int]:
    """The indexes of the events that apply."""
    batch = changes(*events)
    grouped = group(batch)
    return sorted(grouped.order[applicable(batch, grouped, ledger or {}, stored or {})].tolist())


def test_orderly_events_all_apply() -> None:
    """Rising positions and offsets, snapshot reads before changes."""
    assert applied(read(1), update(1, 10), create(2, 11), update(1, 12)) == [0, 1, 2, 3]


def test_a_lower_position_does_not_apply() -> None:
    """A stretch that is sent again, an event that comes late."""
    assert applied(update(1, 10), update(1, 20), update(1, 10), update(1, 20), update(1, 30)) == [0, 1, 4]


def test_the_tombstone_of_a_delete_is_that_delete() -> None:
    """It is left out before anything is decided."""
    assert applied(delete(1, 10), tombstone(1), create(1, 20)) == [0, 2]


def test_an_event_without_position_needs_to_arrive_later() -> None:
    """By offset in a partition, by source time across partitions."""
    again = Event(read(1).operation, 1, None, {}, offset=0)
    assert applied(Event(update(1, 5).operation, 1, 5, {}, offset=3), again) == [0]
    elsewhere = Event(read(1).operation, 1, None, {}, partition=1, offset=9)
    assert applied(Event(update(1, 5).operation, 1, 5, {}, offset=3), elsewhere) == [0, 1]


def test_a_read_that_is_copied_counts_as_a_new_one() -> None:
    """Nothing tells it from a later snapshot that corrects the row; the copied update is no new change."""
    assert applied(read(1), update(1, 10), read(1), update(1, 10)) == [0, 1, 2]


def test_the_ledger_blocks_upserts_below_it_and_never_a_delete() -> None:
    """A late update stays dead; the delete is read again after a crash and must remove the row."""
    ledger = {"=1": version(30, 9)}
    assert applied(update(1, 20), delete(1, 30), ledger=ledger) == [0, 1]
    assert applied(update(1, 20), ledger=ledger) == []
    assert applied(delete(1, 20), ledger=ledger) == [0]
    assert applied(create(1, 40), ledger=ledger) == [0]


def test_a_delete_sent_again_removes_the_read_behind_it() -> None:
    """A delete blocks only upserts: a row that was read since has no position, so the same delete applies to it."""
    assert applied(create(1, 10), delete(1, 30), read(1), delete(1, 30)) == [0, 1, 2, 3]
    assert applied(delete(1, 30), delete(1, 20)) == [0]


def test_the_floor_of_a_truncate_blocks_every_key() -> None:
    """Upserts that it outranks are stale, deletes pass."""
    assert applied(create(1, 10), create(2, 40), delete(3, 10), ledger={"": version(30, 9)}) == [1, 2]


def test_stored_rows_are_outranked_or_stay() -> None:
    """Equal is the same change; a row written by other means gives way."""
    stored = {"=1": version(20, 5)}
    assert applied(update(1, 10), update(1, 20), update(1, 30), stored=stored) == [2]
    assert applied(delete(1, 20), stored=stored) == []


def test_a_row_of_the_last_event_reflects_all_before_it() -> None:
    """A read of another partition that is newer by its time came first, and must not come again."""
    overtaken = Event(read(1).operation, 1, None, {}, partition=1, offset=9)
    last = Event(update(1, 20).operation, 1, 20, {}, offset=2)
    assert applied(overtaken, last) == [0, 1]
    assert applied(overtaken, last, stored={"=1": version(20, 2)}) == []
    assert applied(overtaken, last, stored={"=1": version(10, 1)}) == [0, 1]
