"""The group memberships of workers in memory and on Kafka pass their contract."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
from contracts.worker_member_suite import Join, WorkerMemberSuite

from headrace.core.connect.work import WorkerState, encode_worker_state
from headrace_connectors.kafka.worker_member import KafkaWorkerMember, work_assignor
from headrace_dev.kafka import Kafka
from headrace_dev.memory.group import MemoryGroup, MemoryMember

TIMEOUTS = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 200, "rebalance_timeout_ms": 60_000}


class TestMemoryMember(WorkerMemberSuite):
    """In memory."""

    @pytest.fixture
    def join(self) -> Join:
        """One group."""
        group = MemoryGroup()
        return lambda worker: MemoryMember(group, worker)


def test_two_workers_at_one_address_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """Both workers run, and a warning is logged, because other workers reach only one of them."""
    states = {
        name: SimpleNamespace(user_data=encode_worker_state(WorkerState("one:1")), subscription=["t"]) for name in "ab"
    }
    given_out = work_assignor("one:1").assign(None, states)
    assert [member.assignment for member in given_out.values()] == [[("t", [0])], []]
    assert "Worker one:1: several workers have this address" in caplog.text


@pytest.mark.stack
class TestKafkaWorkerMember(WorkerMemberSuite):
    """Membership by Kafka's group protocol."""

    @pytest.fixture
    def join(self, stack_kafka: Kafka, unique: Callable[[str], str]) -> Join:
        """A new group and config topic per test."""
        name = unique("work")
        stack_kafka.create_topic(name)
        arguments = {"bootstrap_servers": stack_kafka.bootstrap_servers}
        return lambda worker: KafkaWorkerMember(worker, name, name, arguments, TIMEOUTS)
