"""The group's assignment strategy: all partitions of a topic to one member, spread evenly, staying where they are.

A table has one writer because a topic has one owner. Members may have different subscriptions (a connector's regex was
just changed and its tasks restart one after another). Each member tells the leader which topics it holds in the user
data of its JoinGroup, so that a rebalance moves as few topics as it can. All members of a group must offer a strategy
of the same name: when its rules change, its name changes, and both are listed during the rollout.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

NAME = "headrace-topics-1"


def assign_topics(
    subscriptions: Mapping[str, Collection[str]], held: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """The topics of each member: every subscribed topic exactly once, to a member that subscribes to it.

    Among members with equal subscriptions the counts differ by at most one; a topic leaves its holder only for that.
    Depends on nothing but its arguments, whatever their order.
    """
    owners: dict[str, set[str]] = {member: set() for member in sorted(subscriptions)}
    wanted = {topic: {m for m in owners if topic in subscriptions[m]} for topic in set().union(*subscriptions.values())}
    for topic in sorted(wanted):
        holders = [member for member in owners if topic in held.get(member, ()) and member in wanted[topic]]
        if holders:
            owners[holders[0]].add(topic)
    for topic in sorted(wanted.keys() - set().union(*owners.values())):
        least = min(wanted[topic], key=lambda member: (len(owners[member]), member))
        owners[least].add(topic)
    while _move_one(owners, wanted):
        pass
    return owners


def _move_one(owners: dict[str, set[str]], wanted: Mapping[str, set[str]]) -> bool:
    """Move one topic from a fuller member to one with at least two fewer; each move lowers the sum of squares."""
    for giver in sorted(owners, key=lambda member: (-len(owners[member]), member)):
        for topic in sorted(owners[giver], reverse=True):
            taker = min(wanted[topic], key=lambda member: (len(owners[member]), member))
            if len(owners[giver]) - len(owners[taker]) >= 2:
                owners[giver].remove(topic)
                owners[taker].add(topic)
                return True
    return False


class TopicAssignor(AbstractPartitionAssignor):
    """aiokafka's side of ``assign_topics``. Use ``topic_assignor()``: aiokafka keeps the state on the class."""

    name = NAME
    version = 0
    held: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def assign(cls, cluster: ClusterMetadata, members: Mapping[str, Any]) -> dict[str, Any]:
        """The assignment of the whole group, computed by its leader."""
        subscriptions = {member: set(data.subscription) for member, data in members.items()}
        held = {member: _read_held(data.user_data) for member, data in members.items()}
        return {
            member: ConsumerProtocolMemberAssignment(cls.version, _with_partitions(topics, cluster), b"")
            for member, topics in assign_topics(subscriptions, held).items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member says when it joins: its subscription, and what it holds."""
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), json.dumps({"held": cls.held}).encode())

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Remember what this member holds now."""
        cls.held = tuple(sorted({partition.topic for partition in assignment.partitions()}))


def topic_assignor() -> type[TopicAssignor]:
    """A strategy for one consumer, with state of its own."""
    return type("ConsumerTopicAssignor", (TopicAssignor,), {})


def _read_held(user_data: bytes | None) -> set[str]:
    try:
        return set(json.loads(user_data or b"{}").get("held", ()))
    except (ValueError, AttributeError):  # another client's bytes: it loses only its stickiness
        return set()


def _with_partitions(topics: Iterable[str], cluster: ClusterMetadata) -> list[tuple[str, list[int]]]:
    return [(topic, sorted(cluster.partitions_for_topic(topic) or ())) for topic in sorted(topics)]
