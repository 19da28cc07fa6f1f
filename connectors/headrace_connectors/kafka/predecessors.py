"""The members of a consumer group that an earlier process of this worker has left behind.

A killed process stays in its groups until its sessions end, and a broker completes no rebalance before that. It cannot
run any more when another process serves the worker's address, so that process removes its members.

Tests: ``tests/unit/kafka/test_predecessors.py``, ``tests/integration/test_worker_process.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import uuid4

import aiokafka
from aiokafka.client import ConnectionGroup, CoordinationType
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import DescribeGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest

log = logging.getLogger(__name__)

_SECONDS = 5.0
"""The time limit. A group whose coordinator does not answer is joined without this step."""


class Member(NamedTuple):
    """A member of a group. ``user_data`` are those of its assignor; the broker omits them during a rebalance."""

    id: str
    client_id: str
    user_data: bytes


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """The process that a member belongs to: the ``host:port`` of its worker, empty for none, and a random id."""

    worker: str = ""
    id: str = field(default_factory=lambda: uuid4().hex)

    def user_data(self) -> Mapping[str, str]:
        """Return the entries of the user data by which another process recognizes the members of this one."""
        return {"worker": self.worker, "process": self.id}

    def is_predecessor(self, member: Member) -> bool:
        """Return whether an earlier process of this worker has left ``member`` behind."""
        try:
            other = json.loads(member.user_data)
            return bool(self.worker) and other.get("worker") == self.worker and other.get("process") != self.id
        except (ValueError, AttributeError):  # of another client, or omitted
            return False


async def remove_predecessors(consumer: aiokafka.AIOKafkaConsumer, is_predecessor: Callable[[Member], bool]) -> None:
    """Remove the members that are predecessors from the group of ``consumer``, which has not joined it yet.

    It is no error if that fails: their sessions end later. A process that still runs, because two workers have the same
    address by mistake, joins again.
    """
    client, group = consumer._client, consumer._group_id
    try:
        async with asyncio.timeout(_SECONDS):
            node = await client.coordinator_lookup(CoordinationType.GROUP, group)
            send = partial(client.send, node, group=ConnectionGroup.COORDINATION)
            response = await send(DescribeGroupsRequest([group], include_authorized_operations=False))
            members = [_member(member) for _, _, _, _, _, members, *_ in response.groups for member in members]
            for member in filter(is_predecessor, members):
                if not (await send(LeaveGroupRequest(group, member.id))).error_code:
                    log.info("Group %s: removed %s, which a killed process has left behind", group, member.id)
    except (KafkaError, TimeoutError) as error:
        log.debug("Group %s: members of a killed process are not removed before their sessions end: %r", group, error)


def _member(description: tuple[Any, ...]) -> Member:
    member, client_id, _, metadata, _ = description
    try:
        user_data = ConsumerProtocolMemberMetadata.decode(metadata).user_data if metadata else b""
    except ValueError:
        user_data = b""
    return Member(member, client_id, user_data or b"")
