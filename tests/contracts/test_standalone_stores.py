"""The stores of a standalone worker pass the contracts of logs and members, as far as one worker needs them."""

from __future__ import annotations

import pytest
from contracts.compacted_log_suite import CompactedLogSuite, Open
from contracts.worker_member_suite import Join, WorkerMemberSuite

from headrace.core.connect.work import Assignment
from headrace.core.model.errors import Fenced
from headrace_connectors.kafka.stores import StandaloneLog, StandaloneMember


class TestStandaloneLog(CompactedLogSuite):
    """The log of a worker that nobody else writes for."""

    @pytest.fixture
    def open_log(self) -> Open:
        """One log."""
        log = StandaloneLog()
        return lambda: log

    async def test_the_position_counts_all_records(self) -> None:
        """The position grows with each record, also of a key that exists. Neither lead nor refresh changes it."""
        log = StandaloneLog()
        await log.append([("a", b"1"), ("a", b"2")])
        await log.lead()
        await log.refresh()
        assert log.position() == 2


class TestStandaloneMember:
    """The only worker."""

    pytestmark = pytest.mark.anyio
    test_a_worker_alone_leads_and_has_all_tasks = WorkerMemberSuite.test_a_worker_alone_leads_and_has_all_tasks
    test_stop_can_be_repeated = WorkerMemberSuite.test_stop_can_be_repeated

    @pytest.fixture
    def join(self) -> Join:
        """There is no group."""
        return StandaloneMember

    async def test_a_worker_that_has_stopped_gets_no_task(self, join: Join) -> None:
        """After its stop a worker gets no assignment, and is fenced."""
        member, assignments = join("one:1"), list[Assignment]()
        await member.start(assignments.append)
        await member.stop()
        member.offer([("shop", 0)], 1)
        member.rebalance()
        assert [each.tasks for each in assignments] == [frozenset()]
        with pytest.raises(Fenced):
            await member.confirm()
