"""Control whether the lanes of an assignment may write batches, and wait for the writes in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class WriteGate:
    """Open until it is closed, unless the connector is paused: then it is held. Not thread-safe."""

    def __init__(self, *, held: bool = False) -> None:
        self._is_closed = False
        self._is_held = held
        self.is_dropped = False
        """Whether errors of a write in progress count no more."""
        self._writes = 0
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def is_open(self) -> bool:
        """Whether a write may begin."""
        return not (self._is_closed or self._is_held)

    def close(self) -> None:
        """Close the gate. It does not open again: the next assignment has its own."""
        self._is_closed = True

    def drop(self) -> None:
        """Close the gate, and ignore how the writes in progress end."""
        self.is_dropped = True
        self.close()

    def hold(self) -> None:
        """Begin a pause."""
        self._is_held = True

    def release(self) -> None:
        """End the pause."""
        self._is_held = False

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
