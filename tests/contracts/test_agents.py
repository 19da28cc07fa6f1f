"""The agents of tables on Faust and on plain asyncio pass their contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from contracts.agent_suite import AgentSuite

from headrace.ports import OpenAgent
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


class TestAsyncioAgent(AgentSuite):
    """An asyncio task."""

    @pytest.fixture
    def open_agent(self) -> OpenAgent:
        return AsyncioAgent
