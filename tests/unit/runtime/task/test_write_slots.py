"""Tests of how lanes get the writing threads of a worker; ``test_commit_scheduler.py`` has those of the order."""

from __future__ import annotations

import time

import pytest
from support.fix_asyncio import eventually

from headrace.core.batch.commit_scheduler import CommitPace
from headrace.runtime.task.flow_control import WriteSlot, WriteSlots

pytestmark = pytest.mark.anyio


def opened(slots: WriteSlots, connector: str = "a", pace: CommitPace | None = None) -> WriteSlot:
    """Return the slot of a table that nobody wakes."""
    return slots.open(connector, 10.0, pace or CommitPace(), lambda: None)


def ask(slot: WriteSlot, waited: float = 0.0) -> None:
    """Ask for a thread for changes that have waited for some seconds."""
    slot.ask(0.0, time.monotonic() - waited, urgent=True)


async def test_the_table_that_has_waited_longest_is_next() -> None:
    """A free thread goes to the table whose changes have used most of their target, not to the first request."""
    slots = WriteSlots(1, 1)
    held, late, early = opened(slots), opened(slots), opened(slots)
    ask(held)
    await eventually(lambda: held.is_granted)
    ask(late, 10)
    ask(early, 20)
    held.release(1)
    await eventually(lambda: early.is_granted or late.is_granted)
    assert (early.is_granted, late.is_granted) == (True, False)


async def test_a_lane_is_woken_when_its_changes_are_due() -> None:
    """A slot is granted at its time without another event, and wakes its lane once."""
    slots, woken = WriteSlots(1, 1), []
    slot = slots.open("a", 10.0, CommitPace(), lambda: woken.append(time.monotonic()))
    due = time.monotonic() + 0.05
    slot.ask(due, time.monotonic())
    await eventually(lambda: slot.is_granted)
    assert woken
    assert woken[0] >= due - 0.001
    assert len(woken) == 1


async def test_a_slot_that_leaves_holds_no_thread() -> None:
    """A lane that ends while it waits, or when it gets the thread, does not keep it; closing again has no effect."""
    slots = WriteSlots(1, 1)
    first, second, third = opened(slots), opened(slots), opened(slots)
    ask(first)
    await eventually(lambda: first.is_granted)
    ask(second)
    second.close()
    first.close()
    first.close()
    ask(third)
    await eventually(lambda: third.is_granted)
    assert not second.is_granted


async def test_a_commit_is_measured_by_its_duration() -> None:
    """The pace of a table is that of its commits; an attempt without a commit does not count."""
    slots, pace = WriteSlots(1, 1), CommitPace()
    slot = opened(slots, pace=pace)
    for events in (None, 1, 1):  # the first commit of a table does not count for the rate
        ask(slot)
        await eventually(lambda: slot.is_granted)
        slot.release(events)
        assert pace.is_measured is (events == 1)
    assert 0 < pace.seconds < 1
    assert slots.events_per_second() > 0


async def test_a_connector_that_leaves_frees_its_share() -> None:
    """When the other connector ends, the last thread is granted without another event."""
    slots = WriteSlots(2, 2)
    slots.join("a")
    slots.join("b")
    first, second = opened(slots), opened(slots)
    ask(first)
    ask(second)
    await eventually(lambda: first.is_granted)
    assert not second.is_granted
    slots.leave("b")
    await eventually(lambda: second.is_granted)
