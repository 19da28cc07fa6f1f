"""The group's assignment strategy for aiokafka. ``headrace.core.connect.work`` computes the assignment.

Each member sends its topics to the leader in the user data of its JoinGroup, so that a rebalance moves as few
topics as it can, and its process for ``predecessors.py``. All members of a group must offer a strategy of the same
name: when its rules change, its name changes, and both are listed during the rollout.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from headrace.core.connect.work import assign_topics
from headrace_connectors.kafka.predecessors import WorkerProcess

NAME = "headrace-topics-1"


class TopicAssignor(AbstractPartitionAssignor):
    """Assigns all partitions of a topic to one member. Use ``topic_assignor()``: aiokafka keeps state on the class."""

    name = NAME
    version = 0
    process: ClassVar[WorkerProcess] = WorkerProcess()
    held: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def assign(cls, cluster: ClusterMetadata, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the assignments of all members. The group's leader calls it."""
        subscriptions = {member: set(data.subscription) for member, data in members.items()}
        held = {member: _read_held(data.user_data) for member, data in members.items()}
        return {
            member: ConsumerProtocolMemberAssignment(
                cls.version,
                [(topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in sorted(topics)],
                b"",
            )
            for member, topics in assign_topics(subscriptions, held).items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        user_data = json.dumps({"held": cls.held, **cls.process.user_data()})
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), user_data.encode())

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        cls.held = tuple(sorted({partition.topic for partition in assignment.partitions()}))


def topic_assignor(process: WorkerProcess) -> type[TopicAssignor]:
    """Create an assignor class for one consumer of ``process``, with its own state."""
    return type("ConsumerTopicAssignor", (TopicAssignor,), {"process": process})


def _read_held(user_data: bytes | None) -> set[str]:
    try:
        return set(json.loads(user_data or b"{}").get("held", ()))
    except (ValueError, AttributeError, TypeError):  # user data of another client: its assignment is not sticky
        return set()
