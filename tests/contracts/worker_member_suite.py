"""Contract of every WorkerMember. A test class provides ``join``, which adds a member to the same group each time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.fix_asyncio import eventually

from headrace.core.connect.work import Assignment
from headrace.core.model.errors import Fenced
from headrace.ports import WorkerMember

Join = Callable[[str], WorkerMember]
TASKS = [("shop", 0), ("shop", 1), ("crm", 0), ("crm", 1)]


class WorkerMemberSuite:
    """Run by a subclass per implementation."""

    pytestmark = pytest.mark.anyio

    async def test_a_worker_alone_leads_and_has_all_tasks(self, join: Join) -> None:
        """A single worker is the leader and has all tasks; new tasks come with the next rebalance."""
        member, heard = join("one:1"), list[Assignment]()
        member.offer([], 0)
        await member.start(heard.append)
        await eventually(lambda: bool(heard))
        assert (heard[-1].leads, heard[-1].leader, heard[-1].tasks) == (True, "one:1", frozenset())
        await member.confirm()
        member.offer(TASKS, 7)
        member.rebalance()
        await eventually(lambda: heard[-1].tasks == set(TASKS))
        assert heard[-1].offset == 7
        assert heard[-1].generation > heard[0].generation
        await member.stop()

    async def test_workers_share_and_a_leavers_tasks_move(self, join: Join) -> None:
        """All members know the assignment; if the leader leaves, another is elected and the others take its tasks."""
        one, two = join("one:1"), join("two:2")
        first, second = list[Assignment](), list[Assignment]()
        for member, heard in ((one, first), (two, second)):
            member.offer(TASKS, 7)
            await member.start(heard.append)
        await eventually(lambda: bool(first and second) and len(first[-1].tasks) == len(second[-1].tasks) == 2, 30)
        assert first[-1].tasks | second[-1].tasks == set(TASKS)
        assert first[-1].owners == second[-1].owners
        assert first[-1].leader == second[-1].leader == "one:1"
        kept = second[-1].tasks
        await one.stop()
        await eventually(lambda: second[-1].tasks == set(TASKS), 30)
        assert second[-1].leads
        assert kept < second[-1].tasks
        await two.confirm()
        with pytest.raises(Fenced):
            await one.confirm()
        await two.stop()

    async def test_stop_can_be_repeated(self, join: Join) -> None:
        """Stop may be called again, and without a start."""
        member = join("one:1")
        await member.stop()
        await member.start(lambda assignment: None)
        await member.stop()
        await member.stop()
