"""Coroutine tests run on asyncio: mark a module or class with ``pytest.mark.anyio`` (the plug-in comes with httpx)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The event loop of the service."""
    return "asyncio"


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait until ``condition`` holds; fails when it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
