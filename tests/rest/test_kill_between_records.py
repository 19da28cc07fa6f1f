"""A worker is killed at any record that it writes: the next one shows the last acknowledged state.

The test kills the worker before each record of the config and the status topic, from the creation of a connector to its
removal. A request without an answer may have taken effect or not, but not partly.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace.config.framework import TASK_CLASS
from headrace.ports import LogRecord
from headrace_dev.memory.stores import MemoryLog, MemoryStores

pytestmark = pytest.mark.anyio

RUNNING, PAUSED, STOPPED = "RUNNING", "PAUSED", "STOPPED"


@dataclass(frozen=True, slots=True)
class Wanted:
    """The acknowledged state of a connector."""

    config: dict[str, str]
    state: str
    tasks: int

    def states(self) -> tuple[str, ...]:
        """The states that the status shows at the end."""
        return (self.state, *(self.state,) * self.tasks)


@dataclass(frozen=True, slots=True)
class Step:
    """A request, and the acknowledged state after its answer."""

    method: str
    path: str
    body: object
    then: Wanted | None


ONE = {**SHOP, "name": "shop"}
TWO = {**ONE, "tasks.max": "2"}
LIFE = [
    Step("POST", "/connectors", {"name": "shop", "config": SHOP, "initial_state": "paused"}, Wanted(ONE, PAUSED, 0)),
    Step("PUT", "/connectors/shop/resume", None, Wanted(ONE, RUNNING, 1)),
    Step("PATCH", "/connectors/shop/config", {"tasks.max": 2}, Wanted(TWO, RUNNING, 2)),
    Step("PUT", "/connectors/shop/pause", None, Wanted(TWO, PAUSED, 2)),
    Step("PUT", "/connectors/shop/resume", None, Wanted(TWO, RUNNING, 2)),
    Step("PUT", "/connectors/shop/stop", None, Wanted(TWO, STOPPED, 0)),
    Step("DELETE", "/connectors/shop", None, None),
]


class Disk:
    """Accepts a number of records; the writer of the next one gets no answer, as if killed."""

    def __init__(self, records: int) -> None:
        self.left = records
        self.dead = asyncio.Event()

    async def take(self) -> None:
        """Count one record."""
        if self.left == 0:
            self.dead.set()
            await asyncio.Event().wait()
        self.left -= 1


class CutLog(MemoryLog):
    """A log that appends its records to such a disk one by one."""

    def __init__(self, disk: Disk) -> None:
        super().__init__()
        self.disk = disk

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Append the records that the disk accepts."""
        for record in records:
            await self.disk.take()
            await super().append([record])


class Life:
    """Sends the steps and records the answers."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.stores = MemoryStores()
        self.stores.configs, self.stores.statuses = CutLog(disk), CutLog(disk)
        self.acknowledged: Wanted | None = None
        self.asked: Wanted | None = None

    async def run(self) -> None:
        """Run to the end or to the kill; afterwards no code of the worker runs."""
        before = asyncio.all_tasks()
        steps = asyncio.create_task(self._steps(Api(self.stores)))
        killed = asyncio.create_task(self.disk.dead.wait())
        await asyncio.wait((steps, killed), return_when=asyncio.FIRST_COMPLETED)
        if steps.done():
            await steps
        rest = asyncio.all_tasks() - before
        for task in rest:
            task.cancel()
        await asyncio.wait(rest, timeout=1)

    async def _steps(self, api: Api) -> None:
        await api.worker.start()
        for step in LIFE:
            self.asked = step.then
            answer = await api.call(step.method, step.path, step.body)
            assert answer.status < 300
            self.acknowledged = step.then
            await eventually(lambda step=step: seen(api) == (step.then.states() if step.then else ()))  # type: ignore[misc]
        self.disk.dead.set()


def seen(api: Api) -> tuple[str, ...]:
    """The states in the status; none if there is no connector."""
    statuses = api.worker.statuses
    found = statuses.connector("shop")
    return () if found is None else (found.state, *(task.state for _, task in statuses.tasks("shop")))


@asynccontextmanager
async def restarted(life: Life) -> AsyncIterator[Api]:
    """A new worker on the same logs, from which the killed one is fenced."""
    stores = MemoryStores()
    for log, left in ((stores.configs, life.stores.configs), (stores.statuses, life.stores.statuses)):
        records: list[LogRecord] = []
        await left.start(lambda key, value, to=records: to.append((key, value)))  # type: ignore[misc]
        await log.append(records)
    api = Api(stores)
    await api.worker.start()
    yield api
    await api.worker.stop()


async def config_of(api: Api) -> dict[str, str] | None:
    """The configuration that a client reads."""
    answer = await api.call("GET", "/connectors/shop/config")
    found: dict[str, str] | None = answer.json() if answer.status == 200 else None
    return found


async def settled(api: Api, wanted: Sequence[Wanted | None]) -> Wanted | None:
    """The state that the worker reaches: configuration, states and tasks' configurations belong together."""
    config = await config_of(api)
    found, *_ = [each for each in wanted if config == (each.config if each else None) and _targeted(api, each)]
    tasks = [{**found.config, "task.class": TASK_CLASS}] * found.tasks if found else []
    states = found.states() if found else ()
    await eventually(lambda: seen(api) == states and api.worker.configs.state.task_configs("shop") == tasks)
    return found


def _targeted(api: Api, wanted: Wanted | None) -> bool:
    target = api.worker.configs.state.target_state("shop")
    return wanted is None or target.replace("STARTED", RUNNING) == wanted.state


async def records_of_a_life() -> int:
    """The number of records without a kill."""
    life = Life(Disk(10_000))
    await life.run()
    return 10_000 - life.disk.left


async def test_after_a_kill_at_any_record_the_state_is_the_last_acknowledged_one() -> None:
    """The next request of the client finds no trace of the interrupted one."""
    total = await records_of_a_life()
    assert total > 3 * len(LIFE)
    for cut in range(total):
        life = Life(Disk(cut))
        await life.run()
        assert life.disk.dead.is_set()
        assert life.disk.left == 0
        async with restarted(life) as api:
            found = await settled(api, [life.acknowledged, life.asked])
            if found is None:  # records of the interrupted request have no effect on a new connector of the name
                await api.create()
                await settled(api, [Wanted(ONE, RUNNING, 1)])
