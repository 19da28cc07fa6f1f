"""The Faust agents, one per table of a task. The only file that imports faust.

Faust hosts the agents. It does not consume or acknowledge, because its acknowledgements would move offsets past events
that were not written. The channel of an agent carries the messages of its table. Its size is not limited here: the
worker's memory budget stops the topics of a table that has too many. The body of an agent must not raise: Faust would
drop the event and restart the agent, which then looks healthy. Agents are created with the ``Agent`` class, because
``app.agent()`` keeps the objects of every task until the app ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

import faust
from faust.app.base import BootStrategy

from headrace.ports import Messages

_Message = TypeVar("_Message")

_START_SECONDS = 10.0


class AgentsOnly(BootStrategy):
    """Start only the parts of Faust that agents need: no consumer, no producer, no web server."""

    enable_kafka = False
    enable_kafka_consumer = False
    enable_kafka_producer = False
    enable_web = False
    enable_sensors = False


class FaustApp(faust.App):
    """An app that only hosts agents."""

    BootStrategy = AgentsOnly

    async def on_first_start(self) -> None:
        """Create no directories: tables, which Faust would keep there, are not used."""


class MessageStream(faust.Stream):
    """The stream of an agent (``headrace.ports.Messages``)."""

    def waiting(self) -> Iterator[Any]:
        """Take the messages that have arrived, without waiting."""
        queue = self.channel.queue
        while not queue.empty():
            yield queue.get_nowait()


class TableAgent(Generic[_Message]):
    """One table's agent and its channel (``headrace.ports.Agent``). ``running`` contains it from start to stop.

    A stop runs to its end in an asyncio task of its own, also if its caller is cancelled.
    """

    def __init__(
        self,
        app: FaustApp,
        name: str,
        body: Callable[[Messages[_Message]], Awaitable[None]],
        running: set[TableAgent[Any]],
    ) -> None:
        self._channel = app.channel(maxsize=0)
        self._agent = faust.Agent(body, app=app, name=name, channel=self._channel)
        self._running = running
        self._stopping: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the agent. Return when it listens, because a channel drops events before that.

        A start that is cancelled or fails stops the agent.
        """
        self._running.add(self)
        try:
            await self._agent.start()
            async with asyncio.timeout(_START_SECONDS):
                while not self._channel._subscribers:  # noqa: ASYNC110 - Faust does not signal that an agent listens
                    await asyncio.sleep(0)
        except BaseException:
            await self.stop()
            raise

    def send(self, message: _Message) -> None:
        """Send a message; without an effect after ``stop``."""
        for subscriber in () if self._stopping else self._channel._subscribers:
            subscriber.queue.put_nowait(message)

    async def stop(self) -> None:
        """Cancel the body, and detach the agent from the app. Idempotent."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._end())
        await asyncio.shield(self._stopping)

    async def _end(self) -> None:
        await self._agent.stop()
        self._agent.beacon.detach(self._agent.beacon.parent)
        self._running.discard(self)


class FaustHost:
    """The Faust app of a worker, on the worker's main loop."""

    def __init__(self, app_id: str) -> None:
        self._app_id = app_id
        self._app: FaustApp | None = None
        self._agents: set[TableAgent[Any]] = set()

    async def start(self) -> None:
        """Start the app on the running loop."""
        app = FaustApp(self._app_id, broker="kafka://not-used", Stream=MessageStream, loop=asyncio.get_running_loop())
        app.finalize()
        await app.start()
        app.flow_control.resume()  # once, before the first channel: a suspended queue never returns events
        self._app = app

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> TableAgent[_Message]:
        if self._app is None:
            raise RuntimeError("the Faust host has not been started")
        return TableAgent(self._app, name, body, self._agents)

    async def stop(self) -> None:
        """Stop the agents that still run, and the app. Idempotent.

        An agent must not run until the event loop ends. asyncio cancels what still runs then, once: Faust's supervisor
        may ignore that, start the body again, and keep the process alive.
        """
        await asyncio.gather(*(agent.stop() for agent in list(self._agents)))
        app, self._app = self._app, None
        if app is not None:
            await app.stop()
            # Faust creates a consumer without starting it. Nothing else closes that consumer's event loop.
            app.consumer._thread.thread_loop.close()
