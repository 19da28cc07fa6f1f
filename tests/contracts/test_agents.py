"""The agents of tables on Faust and on plain asyncio pass their contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from contracts.agent_suite import AgentSuite
from support.fix_asyncio import eventually

from headrace.ports import Messages, OpenAgent
from headrace.runtime.task.asyncio_agent import AsyncioAgent
from headrace_connectors.kafka.agent import FaustHost

pytestmark = pytest.mark.anyio


class TestFaustAgent(AgentSuite):
    """An agent of a Faust app without a broker."""

    @pytest.fixture
    async def open_agent(self) -> AsyncIterator[OpenAgent]:
        host = FaustHost("test")
        await host.start()
        yield host.agent
        await host.stop()

    async def test_the_host_stops_agents_that_nobody_has_stopped(self) -> None:
        """No asyncio task of Faust is left at the end of the event loop, where it could keep the process alive."""
        before = asyncio.all_tasks()
        host, running = FaustHost("test"), asyncio.Event()
        await host.start()

        async def body(messages: Messages[int]) -> None:
            async for _ in messages:
                running.set()
                await asyncio.Event().wait()

        agent = host.agent("table", body)
        await agent.start()
        agent.send(1)
        await asyncio.wait_for(running.wait(), 60)
        await host.stop()
        await eventually(lambda: asyncio.all_tasks() <= before)


class TestAsyncioAgent(AgentSuite):
    """An asyncio task."""

    @pytest.fixture
    def open_agent(self) -> OpenAgent:
        return AsyncioAgent
