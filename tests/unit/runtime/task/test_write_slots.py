"""Who writes next when writing threads are few."""

from __future__ import annotations

import asyncio

import pytest

from headrace.runtime.task.write_slots import WriteSlots

pytestmark = pytest.mark.anyio


async def settle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def waiting(slots: WriteSlots, connector: str, oldest: float) -> asyncio.Task[object]:
    return asyncio.create_task(slots.acquire(connector, lambda: oldest))


async def test_the_table_whose_event_has_waited_longest_is_next() -> None:
    """Whatever the order in which they asked."""
    slots = WriteSlots(1)
    slots.join("a")
    held = await slots.acquire("a", lambda: 0.0)
    late, early = waiting(slots, "a", 20.0), waiting(slots, "a", 10.0)
    await settle()
    held.release()
    await settle()
    assert (early.done(), late.done()) == (True, False)
    early.result().release()  # type: ignore[attr-defined]
    await late


async def test_a_connector_leaves_a_slot_to_others() -> None:
    """Also while no other has asked: a slow write would hold the last slot for long."""
    slots = WriteSlots(3)
    slots.join("a")
    slots.join("b")
    first, second, third = (waiting(slots, "a", 0.0) for _ in range(3))
    await settle()
    assert [each.done() for each in (first, second, third)] == [True, True, False]
    other = waiting(slots, "b", 99.0)
    await settle()
    assert other.done()
    slots.leave("b")
    other.result().release()  # type: ignore[attr-defined]
    await third


async def test_the_only_connector_has_all_slots() -> None:
    """Two tasks of it as well."""
    slots = WriteSlots(2)
    slots.join("a")
    slots.join("a")
    await slots.acquire("a", lambda: 0.0)
    await slots.acquire("a", lambda: 0.0)


async def test_who_is_cancelled_takes_no_slot() -> None:
    """Neither while it waits nor in the moment in which it is served."""
    slots = WriteSlots(1)
    held = await slots.acquire("a", lambda: 0.0)
    waits, served = waiting(slots, "a", 1.0), waiting(slots, "a", 0.0)
    await settle()
    waits.cancel()
    await settle()
    held.release()  # serves the other one, which has not run yet
    served.cancel()
    await settle()
    assert served.cancelled()
    held.release()  # twice is once
    await slots.acquire("a", lambda: 0.0)
