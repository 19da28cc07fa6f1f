"""Run coroutine tests on asyncio: mark a module or class with ``pytest.mark.anyio`` (the plug-in comes with httpx)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Return the event loop of the service."""
    return "asyncio"


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until ``condition`` is true. Raises TimeoutError if it is not in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - the condition has no event
            await asyncio.sleep(0.005)
