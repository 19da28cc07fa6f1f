"""Tests of the order in which tables get the writing threads of a worker."""

from __future__ import annotations

import asyncio

import pytest

from headrace.runtime.task.flow_control import WriteSlots

pytestmark = pytest.mark.anyio


async def run_tasks() -> None:
    """Run every asyncio task that can continue."""
    for _ in range(5):
        await asyncio.sleep(0)


def waiting(slots: WriteSlots, connector: str, oldest: float) -> asyncio.Task[object]:
    return asyncio.create_task(slots.acquire(connector, lambda: oldest))


async def test_the_table_whose_event_has_waited_longest_is_next() -> None:
    """A free slot goes to the table whose oldest event has waited longest, not to the first request."""
    slots = WriteSlots(1)
    slots.join("a")
    held = await slots.acquire("a", lambda: 0.0)
    late, early = waiting(slots, "a", 20.0), waiting(slots, "a", 10.0)
    await run_tasks()
    held.release()
    await run_tasks()
    assert (early.done(), late.done()) == (True, False)
    early.result().release()  # type: ignore[attr-defined]
    await late


async def test_a_connector_leaves_a_slot_to_others() -> None:
    """A connector leaves one slot free while another connector runs, also if that one has no request yet."""
    slots = WriteSlots(3)
    slots.join("a")
    slots.join("b")
    first, second, third = (waiting(slots, "a", 0.0) for _ in range(3))
    await run_tasks()
    assert [each.done() for each in (first, second, third)] == [True, True, False]
    other = waiting(slots, "b", 99.0)
    await run_tasks()
    assert other.done()
    slots.leave("b")
    other.result().release()  # type: ignore[attr-defined]
    await third


async def test_the_only_connector_has_all_slots() -> None:
    """A connector gets all slots if no other connector runs, also if it has two tasks."""
    slots = WriteSlots(2)
    slots.join("a")
    slots.join("a")
    await slots.acquire("a", lambda: 0.0)
    await slots.acquire("a", lambda: 0.0)


async def test_a_cancelled_request_takes_no_slot() -> None:
    """A request that is cancelled while it waits, or when it gets the slot, does not keep the slot."""
    slots = WriteSlots(1)
    held = await slots.acquire("a", lambda: 0.0)
    waits, served = waiting(slots, "a", 1.0), waiting(slots, "a", 0.0)
    await run_tasks()
    waits.cancel()
    await run_tasks()
    held.release()  # serves the other request, which has not run yet
    served.cancel()
    await run_tasks()
    assert served.cancelled()
    held.release()  # the second release has no effect
    await slots.acquire("a", lambda: 0.0)
