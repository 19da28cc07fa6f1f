"""Which members of a group a worker removes: those of an earlier process at its address, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.protocol.admin import DescribeGroupsRequest_v0, DescribeGroupsResponse_v0
from aiokafka.protocol.group import LeaveGroupRequest_v0, LeaveGroupResponse_v0
from support.kafka.scripted_kafka import NODE, ScriptedKafka

from headrace_connectors.kafka.assignor import topic_assignor
from headrace_connectors.kafka.predecessors import WorkerProcess, remove_predecessors

pytestmark = pytest.mark.anyio
WORKER = "worker-0:8083"
THIS = WorkerProcess(WORKER)
NOT_COORDINATOR, UNKNOWN_MEMBER = 16, 25


def user_data(content: bytes | None) -> bytes:
    return ConsumerProtocolMemberMetadata(0, ["t"], content).encode()


def metadata_of(process: WorkerProcess) -> bytes:
    """The metadata with which a member of a process joins."""
    return topic_assignor(process).metadata(["t"]).encode()


class Group:
    """A group at a scripted broker, whose members are given by their names and metadata."""

    def __init__(self, members: dict[str, bytes], error: int = 0, refusal: int = 0) -> None:
        described = [(name, "client", "/127.0.0.1", metadata, b"") for name, metadata in members.items()]
        response = DescribeGroupsResponse_v0([(error, "g", "Stable", "consumer", "p", described)])
        self.removed: list[str] = []
        self._refusal = refusal
        self.answers: dict[Any, Any] = {DescribeGroupsRequest_v0: lambda _: response, LeaveGroupRequest_v0: self._leave}

    def _leave(self, request: LeaveGroupRequest_v0) -> LeaveGroupResponse_v0:
        self.removed.append(request.member_id)
        return LeaveGroupResponse_v0(self._refusal)

    async def remove_as(self, process: WorkerProcess) -> list[str]:
        """Let a consumer of ``process`` remove its predecessors, and return their names."""
        async with ScriptedKafka({"t": [NODE]}, self.answers) as kafka:
            consumer = AIOKafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id="g")
            await consumer.start()
            await remove_predecessors(consumer, process.is_predecessor)
            await consumer.stop()
        return self.removed


async def test_only_members_of_an_earlier_process_at_the_address_are_removed() -> None:
    """Other tasks of this process, other workers and other clients stay."""
    members = {
        "earlier": metadata_of(WorkerProcess(WORKER)),
        "sibling": metadata_of(THIS),
        "other": metadata_of(WorkerProcess("worker-1:8083")),
        "command": metadata_of(WorkerProcess()),
        "release-0.1.0": user_data(json.dumps({"held": ["t"]}).encode()),
        "java": user_data(None),
        "foreign": user_data(b"[1]"),
        "damaged": b"\0",
        "in-a-rebalance": b"",
    }
    assert await Group(members).remove_as(THIS) == ["earlier"]


async def test_a_process_without_an_address_removes_nothing() -> None:
    """A command is no worker, and many commands have no address."""
    assert await Group({"command": metadata_of(WorkerProcess())}).remove_as(WorkerProcess()) == []


async def test_all_members_of_a_killed_process_are_removed_although_another_task_removed_one() -> None:
    """Two tasks that start at once remove the same members; the broker does not know one of them any more."""
    killed = WorkerProcess(WORKER)
    members = {"task-0": metadata_of(killed), "task-1": metadata_of(killed)}
    assert await Group(members, refusal=UNKNOWN_MEMBER).remove_as(THIS) == ["task-0", "task-1"]


async def test_a_group_that_cannot_be_described_is_joined_anyway() -> None:
    """Its sessions end later."""
    assert await Group({}, error=NOT_COORDINATOR).remove_as(THIS) == []
