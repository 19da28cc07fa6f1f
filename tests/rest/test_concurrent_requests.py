"""Concurrent requests about one connector: the answers are those of some sequential order.

An append to the log takes time, as on a broker. So the worker has read all requests before the first record is written,
and a record takes effect before its writer returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from support.fix_asyncio import eventually
from support.rest.asgi import Answer
from support.rest.worker_api import SHOP, Api

from headrace.core.connect.lifecycle import TargetState
from headrace.ports import LogRecord
from headrace_dev.memory.stores import MemoryLog, MemoryStores

pytestmark = pytest.mark.anyio

_TURNS = 30
"""Of the event loop, for an append: more than a request needs to come to its own."""


class SlowLog(MemoryLog):
    """Appends one record after the other, each after some turns of the loop."""

    def __init__(self) -> None:
        super().__init__()
        self._writing = asyncio.Lock()

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Append after a delay."""
        async with self._writing:
            await _turns()
            await super().append(records)
            await _turns()


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    """A worker whose config log is slow."""
    stores = MemoryStores()
    stores.configs = SlowLog()
    api = Api(stores)
    await api.worker.start()
    yield api
    await api.worker.stop()


async def test_of_two_creations_one_is_a_conflict(api: Api) -> None:
    """The second creation returns 409 and does not replace the first, whose client received 201."""
    answers = await asyncio.gather(*(api.create(**{"batch.max.records": number}) for number in ("1", "2")))
    assert _statuses(answers) == [201, 409]
    assert answers[1].json()["message"] == "Connector shop already exists"
    assert (await api.call("GET", "/connectors/shop/config")).json() == answers[0].json()["config"]


async def test_two_patches_change_both_keys(api: Api) -> None:
    """The worker merges the second patch into the configuration of the first."""
    await api.create()
    patches = ({"batch.max.records": "7"}, {"batch.linger.ms": "9"})
    answers = await asyncio.gather(*(api.call("PATCH", "/connectors/shop/config", patch) for patch in patches))
    assert _statuses(answers) == [200, 200]
    both = {**SHOP, "name": "shop", **patches[0], **patches[1]}
    assert (await api.call("GET", "/connectors/shop/config")).json() == both


async def test_a_patch_does_not_bring_back_what_is_deleted(api: Api) -> None:
    """A patch after a delete returns 404."""
    await api.create()
    patch = api.call("PATCH", "/connectors/shop/config", {"batch.linger.ms": "9"})
    answers = await asyncio.gather(api.call("DELETE", "/connectors/shop"), patch)
    assert _statuses(answers) == [204, 404]
    await eventually(lambda: api.worker.statuses.connector("shop") is None)
    assert (await api.call("GET", "/connectors")).json() == []


async def test_of_two_creating_puts_the_second_is_a_change(api: Api) -> None:
    """The first PUT returns 201 and a Location, the second 200."""
    put = ("PUT", "/connectors/shop/config", SHOP)
    answers = await asyncio.gather(api.call(*put), api.call(*put))
    assert _statuses(answers) == [201, 200]


async def test_a_resume_counts_behind_a_stop_that_is_not_written_yet(api: Api) -> None:
    """The worker writes a resume after a stop that is not written yet."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    answers = await asyncio.gather(*(api.call("PUT", f"/connectors/shop/{verb}") for verb in ("stop", "resume")))
    assert _statuses(answers) == [204, 202]
    assert api.worker.configs.state.target_state("shop") is TargetState.STARTED


async def test_a_removal_before_the_first_tasks_leaves_nothing_behind(api: Api) -> None:
    """The tasks that were about to be written are not; a later connector of the same name has none of them."""
    await api.create()
    assert (await api.call("DELETE", "/connectors/shop")).status == 204
    again = {"name": "shop", "config": SHOP, "initial_state": "PAUSED"}
    assert (await api.call("POST", "/connectors", again)).status == 201
    await api.until("PAUSED")
    assert (await api.call("GET", "/connectors/shop/tasks")).json() == []


@pytest.mark.parametrize(("flags", "state"), [("includeTasks=true", "RESTARTING"), ("onlyFailed=true", "RUNNING")])
async def test_a_restart_shows_what_it_takes_even_if_that_runs_again(api: Api, flags: str, state: str) -> None:
    """The answer shows RESTARTING for the connector and its tasks, which kcctl and Strimzi count."""
    await api.create()
    await api.until("RUNNING", "RUNNING")
    answer = await api.call("POST", f"/connectors/shop/restart?{flags}")
    shown = answer.json()
    assert (answer.status, shown["connector"]["state"], shown["tasks"][0]["state"]) == (202, state, state)


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _statuses(answers: Sequence[Answer]) -> list[int]:
    return [answer.status for answer in answers]
