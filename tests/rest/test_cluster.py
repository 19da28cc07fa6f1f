"""Workers of one cluster in memory: write access, assignment of tasks, and a fenced leader."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from support.fix_asyncio import eventually
from support.rest.worker_api import SHOP, Api

from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.model.errors import RestError
from headrace.runtime.worker.cluster import RequestTargetError
from headrace_dev.memory.stores import MemoryStores

pytestmark = pytest.mark.anyio
TWO = {**SHOP, "tasks.max": "2"}


@pytest.fixture
async def pair() -> AsyncIterator[tuple[Api, Api]]:
    """Two workers; the first one is the leader."""
    first = Api(host="one")
    second = Api(MemoryStores(shared=first.stores), host="two")
    await first.worker.start()
    await second.worker.start()
    yield first, second
    await first.worker.stop()
    await second.worker.stop()


async def test_tasks_are_spread_over_the_workers(pair: tuple[Api, Api]) -> None:
    """tasks.max is the total, and both workers report all tasks."""
    first, second = pair
    await first.create(**{"tasks.max": "2"})
    for api in pair:
        await api.until("RUNNING", "RUNNING", "RUNNING")
        assert {task["worker_id"] for task in (await api.status())["tasks"]} == {"one:8083", "two:8083"}
    assert len(first.tasks.tasks) == len(second.tasks.tasks) == 1


async def test_each_worker_counts_what_it_runs_itself(pair: tuple[Api, Api]) -> None:
    """As in Connect, the sum over the workers is the number of the cluster, also after the death of a worker."""
    first, second = pair
    await first.create(**{"tasks.max": "4"})
    for api in pair:
        await api.until(*("RUNNING",) * 5)
    counts = [await counted(api) for api in pair]
    assert [tasks for _, tasks in counts] == [2, 2]
    assert sorted(connectors for connectors, _ in counts) == [0, 1]
    first.stores.group.leave("member-1")
    await eventually(lambda: len(second.tasks.tasks) == 4)
    await eventually(lambda: all(_owners(api) == {"two:8083"} for api in pair))
    assert [await counted(api) for api in pair] == [(0, 0), (1, 4)]


def _owners(api: Api) -> set[str]:
    """Return the workers that have written the statuses of the connector and its tasks."""
    instance = api.worker.statuses.connector("shop")
    tasks = {seen.worker_id for _, seen in api.worker.statuses.tasks("shop")}
    return tasks if instance is None else {instance.worker_id, *tasks}


async def test_only_the_leader_writes(pair: tuple[Api, Api]) -> None:
    """A follower writes no connector; its error names the leader."""
    _, second = pair
    with pytest.raises(RequestTargetError) as error:
        await second.herder.create("shop", SHOP, None)
    assert error.value.worker == "one:8083"
    assert second.worker.configs.state.connectors() == []


async def test_pause_stop_and_delete_reach_every_worker(pair: tuple[Api, Api]) -> None:
    """The leader writes the target state once, and all workers read it."""
    first, second = pair
    await first.create(**{"tasks.max": "2"})
    await second.until("RUNNING", "RUNNING", "RUNNING")
    await first.call("PUT", "/connectors/shop/pause")
    await second.until("PAUSED", "PAUSED", "PAUSED")
    await first.call("PUT", "/connectors/shop/stop")
    await second.until("STOPPED")
    await first.call("PUT", "/connectors/shop/resume")
    await second.until("RUNNING", "RUNNING", "RUNNING")
    await first.call("DELETE", "/connectors/shop")
    await second.until("none")
    await eventually(lambda: all(task.calls[-1] == "stop" for api in pair for task in api.tasks.tasks.values()))


async def test_a_dead_workers_tasks_and_lead_move(pair: tuple[Api, Api]) -> None:
    """The living worker becomes the leader, takes the other's task, and does not restart its own."""
    first, second = pair
    await first.create(**{"tasks.max": "2"})
    await second.until("RUNNING", "RUNNING", "RUNNING")
    [living] = second.tasks.tasks.values()
    first.stores.group.leave("member-1")
    await eventually(lambda: len(second.tasks.tasks) == 2 and second.worker.cluster.leads)
    assert living.calls == ["start"]
    await eventually(
        lambda: (
            {seen.worker_id for _, seen in second.worker.statuses.tasks("shop")} == {"two:8083"}
            and second.worker.statuses.tasks("shop")[0][1].state is State.RUNNING
        )
    )
    await second.herder.set_target_state("shop", TargetState.PAUSED)
    await second.until("PAUSED", "PAUSED", "PAUSED")


async def test_a_stale_leaders_write_is_refused(pair: tuple[Api, Api], caplog: pytest.LogCaptureFixture) -> None:
    """A leader that the group has removed, and that does not know it yet, cannot write, and the others continue."""
    first, second = pair
    await first.create()
    await second.until("RUNNING", "RUNNING")
    first.stores.group.leave("member-1")
    await eventually(lambda: second.worker.cluster.leads)
    assert first.worker.cluster.leads
    with pytest.raises(RestError, match="stale configuration") as error:
        await first.herder.set_target_state("shop", TargetState.STOPPED)
    assert error.value.status == 409
    assert second.worker.configs.state.target_state("shop") is TargetState.STARTED
    assert not first.worker.cluster.leads
    with pytest.raises(RestError, match="no known leader URL"):
        await first.herder.set_target_state("shop", TargetState.STOPPED)
    await eventually(lambda: "one:8083: cannot become the leader yet" in caplog.text)
    await second.herder.set_target_state("shop", TargetState.PAUSED)
    await second.until("PAUSED", "PAUSED")


async def test_a_restart_with_tasks_reaches_the_task_of_the_other_worker(pair: tuple[Api, Api]) -> None:
    """The request is a record in the config topic; the answer lists the restarted tasks.

    The owner of a task restarts a single one.
    """
    first, second = pair
    await first.create(**{"tasks.max": "2"})
    await first.until("RUNNING", "RUNNING", "RUNNING")
    [(name, task)] = second.tasks.tasks.items()
    answer = await first.call("POST", "/connectors/shop/restart?includeTasks=true")
    assert [each["state"] for each in answer.json()["tasks"]] == ["RESTARTING", "RESTARTING"]
    await eventually(lambda: task.calls[-1] == "stop" and second.tasks.tasks[name].calls == ["start"])
    with pytest.raises(RequestTargetError) as error:
        first.herder.restart_task("shop", int(name[-1]))
    assert error.value.worker == "two:8083"


async def test_a_worker_that_comes_back_takes_its_share(pair: tuple[Api, Api]) -> None:
    """One task moves; its status comes from the new owner, even if the old one releases it late."""
    first, second = pair
    await second.worker.stop()
    await first.create(**{"tasks.max": "2"})
    await first.until("RUNNING", "RUNNING", "RUNNING")
    again = Api(MemoryStores(shared=first.stores), host="three")
    await again.worker.start()
    await again.until("RUNNING", "RUNNING", "RUNNING")
    await eventually(
        lambda: {seen.worker_id for _, seen in first.worker.statuses.tasks("shop")} == {"one:8083", "three:8083"}
    )
    await eventually(lambda: sorted(task.calls[-1] for task in first.tasks.tasks.values()) == ["start", "stop"])
    await again.worker.stop()


async def test_a_task_that_was_reassigned_and_came_back_is_reported_again(pair: tuple[Api, Api]) -> None:
    """Its worker was suspended, missed the assignment to another one and back, and has run the task all the time."""
    first, second = pair
    await first.create(**{"tasks.max": "2"})
    await first.until("RUNNING", "RUNNING", "RUNNING")
    [name] = second.tasks.tasks
    number, statuses = int(name[-1]), first.worker.statuses
    seen = statuses.task("shop", number)
    assert seen is not None
    theirs = replace(seen, worker_id="one:8083", generation=seen.generation + 1)
    statuses.put_task("shop", number, theirs)
    await eventually(lambda: second.worker.statuses.task("shop", number) == theirs)
    statuses.put_task("shop", number, replace(theirs, state=State.UNASSIGNED))
    third = Api(MemoryStores(shared=first.stores), host="three")
    await third.worker.start()
    await eventually(lambda: {each.worker_id for _, each in statuses.tasks("shop")} == {"one:8083", "two:8083"})
    await first.until("RUNNING", "RUNNING", "RUNNING")
    assert second.tasks.tasks[name].calls == ["start"]
    await third.worker.stop()


async def counted(api: Api) -> tuple[int, int]:
    """The numbers of connectors and tasks from the worker's metrics."""
    text = (await api.call("GET", "/metrics")).body.decode()
    connectors, tasks = (
        re.search(rf"^kafka_connect_worker_{what}_count (\d+)", text, re.M) for what in ("connector", "task")
    )
    assert connectors is not None
    assert tasks is not None
    return int(float(connectors[1])), int(float(tasks[1]))
