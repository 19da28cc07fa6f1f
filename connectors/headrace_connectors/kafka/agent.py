"""The Faust agents, one per connector task. The only file that imports faust.

Faust hosts the agents; it neither consumes nor acknowledges, since its own acknowledgements move offsets past events
that were never written. A chunk goes as a plain value into a bounded channel, and an agent body that lets no exception
out takes it from there: an agent that raises drops its chunk, is restarted and looks healthy. Agents are made with the
``Agent`` class itself, because ``app.agent()`` keeps every task's objects alive for the life of the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Awaitable, Callable

import faust
from faust.app.base import BootStrategy

from headrace.ports import Chunk

CHANNEL_CHUNKS = 4
"""Chunks that wait between the consumer and the task: with the chunk size, the bound of memory for one task."""

TakeChunk = Callable[[Chunk], Awaitable[None]]


class AgentsOnly(BootStrategy):
    """Start nothing of Faust but what agents need: no consumer, no producer, no web server."""

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


class ChunkAgent:
    """One task's agent and its channel. ``take`` handles a chunk and never raises."""

    def __init__(self, app: FaustApp, name: str, take: TakeChunk) -> None:
        self._channel = app.channel(maxsize=CHANNEL_CHUNKS)
        self._agent = faust.Agent(_body(take), app=app, name=name, channel=self._channel)

    async def start(self) -> None:
        """Begin to take chunks."""
        await self._agent.start()

    async def put(self, chunk: Chunk) -> None:
        """Hand a chunk over; waits while the channel is full."""
        await self._channel.put(chunk)

    async def stop(self) -> None:
        """Cancel the chunk in hand, drop the rest, and let go of the app."""
        await self._agent.stop()
        self._agent.beacon.detach(self._agent.beacon.parent)


class FaustHost:
    """The worker's Faust app. Lives on the worker's main loop."""

    def __init__(self, app_id: str) -> None:
        self._app_id = app_id
        self._app: FaustApp | None = None

    async def start(self) -> None:
        """Start the app on the running loop."""
        app = FaustApp(self._app_id, broker="kafka://not-used", loop=asyncio.get_running_loop())
        app.finalize()
        await app.start()
        app.flow_control.resume()  # once, before the first channel: a suspended queue never gives anything out
        self._app = app

    def agent(self, name: str, take: TakeChunk) -> ChunkAgent:
        """An agent that is not started yet."""
        if self._app is None:
            raise RuntimeError("the Faust host has not been started")
        return ChunkAgent(self._app, name, take)

    async def stop(self) -> None:
        """Stop the app. Idempotent."""
        app, self._app = self._app, None
        if app is not None:
            await app.stop()
            # Faust makes the consumer that it does not start, and with it an event loop that only we can close.
            app.consumer._thread.thread_loop.close()


def _body(take: TakeChunk) -> Callable[[AsyncIterable[Chunk]], Awaitable[None]]:
    async def take_chunks(stream: AsyncIterable[Chunk]) -> None:
        async for chunk in stream:
            await take(chunk)

    return take_chunks
