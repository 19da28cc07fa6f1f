"""Control whether a task may write batches, and wait for the writes in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class WriteGate:
    """Open during an assignment, unless the connector is paused. Not thread-safe."""

    def __init__(self) -> None:
        self._open = True
        self._held = False
        self._writes = 0
        self._shut = asyncio.Event()
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def is_open(self) -> bool:
        """Whether a write may begin."""
        return self._open and not self._held

    def open(self) -> None:
        """Open the gate: an assignment begins. A pause continues."""
        self._open = True
        self._note()

    def close(self) -> None:
        """Close the gate until the next assignment."""
        self._open = False
        self._note()

    def hold(self) -> None:
        """Begin a pause."""
        self._held = True
        self._note()

    def release(self) -> None:
        """End the pause."""
        self._held = False
        self._note()

    async def sleep(self, seconds: float) -> None:
        """Sleep between two attempts of a write, as long as the gate is open."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._shut.wait()

    def _note(self) -> None:
        if self.is_open:
            self._shut.clear()
        else:
            self._shut.set()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Register a write for the duration of the block. Closing the gate does not interrupt it."""
        self._writes += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._writes -= 1
            if self._writes == 0:
                self._quiet.set()

    async def quiet(self) -> None:
        """Wait for the end of the writes in progress."""
        await self._quiet.wait()
