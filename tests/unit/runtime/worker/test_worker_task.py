"""What the status of a task contains if it does not start in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.rest.stand_in import StandInTask

from headrace.core.connect.lifecycle import Event, State
from headrace.runtime.worker.worker_task import Supervision, WorkerTask

pytestmark = pytest.mark.anyio


class SlowTask(StandInTask):
    """A task whose warehouse does not answer."""

    async def start(self) -> None:
        """Wait without end."""
        self.waits_for = "Spark and the warehouse"
        await asyncio.Event().wait()


async def test_a_start_that_takes_too_long_names_what_it_waited_for() -> None:
    """An operator looks there, and not at the brokers."""

    async def create(connector: str, number: int, config: Any, fail: Callable[[BaseException], None]) -> SlowTask:
        return SlowTask(connector, number, fail)

    traces: list[str | None] = []

    async def typed() -> Any:
        return object()

    task = WorkerTask(
        "shop",
        0,
        {},
        typed,
        create,
        Supervision(start=0.01),
        lambda number, state, trace: traces.append(trace),
    )
    await task.run()
    await eventually(lambda: task.state is State.RESTARTING)
    await task.stop(Event.DELETE)
    assert "it waited for Spark and the warehouse; check that it works" in (traces[0] or "")
