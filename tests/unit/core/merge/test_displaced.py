"""A delete removes the right row also where the database checks keys at commit (``core/merge/displaced.py``)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from support.records.change_events import Event, changes, create, delete, tombstone, version

from headrace.core.merge.displaced import with_displaced
from headrace.core.merge.fold import fold
from headrace.core.model.events import Changes


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
    marked, remembered = with_displaced(SHIFT, {}, OLD_ROW)
    assert (set(marked.displaced), marked.displaced[3]) == ({3, 4}, 2)
    assert remembered == {"-onto:7:=2": SHIFT.version.row(2), "-from:7:=2": SHIFT.version.row(3)}
    actions = fold(marked)
    rows = dict(zip(actions.key.to_pylist(), actions.delete.tolist(), strict=True))
    assert rows == {"=1": True, "=2": False, "=3": False}


def test_a_tombstone_behind_the_second_half_deletes_the_row_that_took_the_key() -> None:
    """A tombstone whose delete was compacted is of the row that took the key, also if the delete's own one is gone."""
    without_own = [event for event in move(2, 3, 21) if event.operation != tombstone(2).operation]
    marked, _ = with_displaced(
        in_transactions(*[7] * 6, events=[*move(1, 2, 20), *without_own, tombstone(2)]), {}, OLD_ROW
    )
    assert set(marked.displaced) == {3}
    actions = fold(marked)
    rows = dict(zip(actions.key.to_pylist(), actions.delete.tolist(), strict=True))
    assert rows == {"=1": True, "=2": True, "=3": False}


def test_the_delete_of_a_key_that_was_free_removes_its_row() -> None:
    """A delete removes the row that moved to a free key, also if a row was deleted there or the transactions differ."""
    assert with_displaced(SHIFT, {}, {})[0].displaced == {}
    before = [create(2, 5, a=1), delete(2, 6)]
    marked, _ = with_displaced(
        in_transactions(3, 4, *[7] * 6, events=[*before, *move(1, 2, 20), *move(2, 3, 21)]), {}, {}
    )
    assert marked.displaced == {}
    apart = in_transactions(*[7] * 3, *[8] * 3, events=[*move(1, 2, 20), *move(2, 3, 21)])
    assert with_displaced(apart, {}, OLD_ROW)[0].displaced == {}


def test_the_ledger_decides_where_the_first_move_was_in_another_batch() -> None:
    """The ledger marks the delete that it contains when that is read again, and no later delete of the same key."""
    _, remembered = with_displaced(SHIFT, {}, OLD_ROW)
    second = in_transactions(*[7] * 3, events=move(2, 3, 21))
    stored_row = {"=2": version(20, 2)}
    assert with_displaced(second, remembered, stored_row)[0].displaced == {0: -1, 1: -1}
    later = in_transactions(*[7] * 3, events=move(2, 4, 22))
    assert with_displaced(later, remembered, stored_row)[0].displaced == {}


def test_sources_without_transactions_have_no_taken_keys() -> None:
    """Without transaction numbers no delete is marked, because such sources check keys in every statement."""
    unknown = replace(SHIFT, transaction=np.full(6, -1))
    assert with_displaced(unknown, {}, OLD_ROW)[0].displaced == {}
