"""Contract of every agent (``ports.Agent``). A test class provides the fixture ``open_agent``."""

from __future__ import annotations

import asyncio

import pytest
from support.fix_asyncio import eventually

from headrace.ports import Messages, OpenAgent


class AgentSuite:
    """Run by a subclass per agent."""

    async def test_messages_arrive_in_order(self, open_agent: OpenAgent) -> None:
        """The body takes one message after the other, and all those that wait without waiting itself."""
        taken: list[object] = []
        entered, leave = asyncio.Event(), asyncio.Event()

        async def body(messages: Messages[int]) -> None:
            async for message in messages:
                taken.append(message)
                entered.set()
                await leave.wait()
                taken.append(list(messages.waiting()))

        agent = open_agent("table", body)
        await agent.start()
        try:
            agent.send(1)
            await asyncio.wait_for(entered.wait(), 60)
            agent.send(2)
            agent.send(3)
            leave.set()
            await eventually(lambda: taken == [1, [2, 3]])
            agent.send(4)
            agent.send(5)
            await eventually(lambda: taken in ([1, [2, 3], 4, [5]], [1, [2, 3], 4, [], 5, []]))
        finally:
            await agent.stop()

    async def test_nothing_runs_after_a_stop(self, open_agent: OpenAgent) -> None:
        """Stop cancels the body; a message to a stopped agent has no effect."""
        taken: list[int] = []
        cancelled = asyncio.Event()

        async def body(messages: Messages[int]) -> None:
            try:
                async for message in messages:
                    taken.append(message)
                    await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.set()
                raise

        agent = open_agent("table", body)
        await agent.start()
        agent.send(1)
        await eventually(lambda: taken == [1])
        await agent.stop()
        await agent.stop()
        assert cancelled.is_set()
        agent.send(2)
        await _turns(5)
        assert taken == [1]

    @pytest.mark.parametrize("how", ["stopped", "cancelled", "cancelled twice"])
    async def test_a_stop_at_any_moment_of_a_start_leaves_nothing_running(
        self, open_agent: OpenAgent, how: str
    ) -> None:
        """An agent that is stopped while it starts, or whose start or stop is cancelled, leaves no asyncio task.

        What runs at the end of the event loop can keep the process alive: Faust starts a cancelled body again.
        """
        for turns in _MOMENTS:
            before = asyncio.all_tasks()
            agent = open_agent("table", _no_message)
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
            agent = open_agent("table", _no_message)
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


async def _no_message(messages: Messages[int]) -> None:
    async for _ in messages:
        raise AssertionError("nothing is sent to this agent")
