"""The threads of a worker, in separate pools, so that slow merges do not stop decoding, nor upkeep the merges."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

_T = TypeVar("_T")

MAINTENANCE_THREADS = 2


@dataclass(frozen=True, slots=True)
class WorkerThreads:
    """``decoding`` has what a task does between two writes as well; ``writing`` one thread for each write slot."""

    decoding: Executor
    writing: Executor
    maintenance: Executor
    writers: int

    @classmethod
    def start(cls, writers: int) -> WorkerThreads:
        """Make the pools; ``writers`` threads write tables, the others follow from the machine."""
        decoders = min(4, os.cpu_count() or 1)
        return cls(
            ThreadPoolExecutor(decoders, "decode"),
            ThreadPoolExecutor(writers, "write"),
            ThreadPoolExecutor(MAINTENANCE_THREADS, "maintain"),
            writers,
        )

    def __enter__(self) -> WorkerThreads:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Start nothing more; what runs is not waited for."""
        for pool in (self.decoding, self.writing, self.maintenance):
            pool.shutdown(wait=False, cancel_futures=True)


async def run_in(executor: Executor | None, function: Callable[..., _T], *args: Any) -> _T:
    """Run a function in a pool with the caller's context; None is the loop's own pool."""
    return await asyncio.get_running_loop().run_in_executor(executor, partial(copy_context().run, function, *args))
