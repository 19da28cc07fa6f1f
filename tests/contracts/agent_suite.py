"""Contract of every agent (``ports.Agent``). A test class provides the fixture ``open_agent``."""

from __future__ import annotations

import asyncio

import pytest
from fix_asyncio import eventually

from headrace.ports import OpenAgent


class AgentSuite:
    """Run by a subclass per agent."""

    async def test_the_body_runs_once_for_wake_ups_that_come_together(self, open_agent: OpenAgent) -> None:
        """An agent runs its body once more for wake-ups that arrive while it runs, and never twice at the same time."""
        running, most, calls = 0, 0, 0
        entered, leave = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            nonlocal running, most, calls
            running, calls = running + 1, calls + 1
            most = max(most, running)
            entered.set()
            await leave.wait()
            running -= 1

        agent = open_agent("table", body)
        await agent.start()
        try:
            agent.wake()
            agent.wake()
            await asyncio.wait_for(entered.wait(), 10)
            agent.wake()
            agent.wake()
            leave.set()
            await eventually(lambda: calls == 2 and running == 0)
            agent.wake()
            await eventually(lambda: calls == 3 and running == 0)
            assert most == 1
        finally:
            await agent.stop()

    async def test_nothing_runs_after_a_stop(self, open_agent: OpenAgent) -> None:
        """Stop cancels the running call; a wake-up of a stopped agent has no effect."""
        entered, cancelled = asyncio.Event(), asyncio.Event()

        async def body() -> None:
            entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        agent = open_agent("table", body)
        await agent.start()
        agent.wake()
        await asyncio.wait_for(entered.wait(), 10)
        entered.clear()
        await agent.stop()
        await agent.stop()
        assert cancelled.is_set()
        agent.wake()
        await asyncio.sleep(0)
        assert not entered.is_set()

    @pytest.mark.parametrize("how", ["stopped", "cancelled", "cancelled twice"])
    async def test_a_stop_at_any_moment_of_a_start_leaves_nothing_running(
        self, open_agent: OpenAgent, how: str
    ) -> None:
        """An agent that is stopped while it starts, or whose start or stop is cancelled, leaves no asyncio task.

        What runs at the end of the event loop can keep the process alive: Faust starts a cancelled body again.
        """
        for turns in _MOMENTS:
            before = asyncio.all_tasks()
            agent = open_agent("table", _never_called)
            starting = asyncio.create_task(agent.start())
            await _turns(turns)
            if how == "stopped":
                await agent.stop()
            else:
                starting.cancel()
            if how == "cancelled twice":
                await asyncio.sleep(0)
                starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            if starting.done() and not starting.cancelled():
                await agent.stop()
            await eventually(lambda before=before: asyncio.all_tasks() <= before)  # type: ignore[misc]

    async def test_a_stop_that_is_cancelled_goes_on(self, open_agent: OpenAgent) -> None:
        """The agent ends although nobody waits for its stop any more."""
        for turns in _MOMENTS[1:]:
            before = asyncio.all_tasks()
            agent = open_agent("table", _never_called)
            await agent.start()
            stopping = asyncio.create_task(agent.stop())
            await _turns(turns)
            stopping.cancel()
            await eventually(lambda before=before: asyncio.all_tasks() <= before)  # type: ignore[misc]


_MOMENTS = range(40)
"""Turns of the event loop. Starts and stops end within fewer."""


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def _never_called() -> None:
    raise AssertionError("nothing wakes this agent")
