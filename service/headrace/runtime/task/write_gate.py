"""Whether a task's batches may be written now, and whether one is."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class WriteGate:
    """Open while an assignment stands that is the task's own, unless a pause holds it. Of one event loop."""

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
        """An assignment begins. A pause goes on."""
        self._open = True
        self._note()

    def close(self) -> None:
        """Until the next assignment, if any."""
        self._open = False
        self._note()

    def hold(self) -> None:
        """A pause begins."""
        self._held = True
        self._note()

    def release(self) -> None:
        """It ends."""
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
        """A write, which goes on whatever becomes of the gate."""
        self._writes += 1
        self._quiet.clear()
        try:
            yield
        finally:
            self._writes -= 1
            if self._writes == 0:
                self._quiet.set()

    async def quiet(self) -> None:
        """Wait until nothing is being written."""
        await self._quiet.wait()
