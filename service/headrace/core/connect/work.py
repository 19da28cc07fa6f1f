"""Assign topics to the members of a group, and tasks to the workers of a cluster; choose the leader.

A table has one writer because a topic has one owner. Members may have different subscriptions while a connector's
pattern changes, because its tasks restart one after another. Only the leader writes the config topic. Tasks are
assigned as topics are: balanced and sticky, each to one worker. The result depends only on the members' states, and not
on their order.
"""

from __future__ import annotations

import json
from bisect import insort
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any


def assign_topics(
    subscriptions: Mapping[str, Collection[str]], held: Mapping[str, Collection[str]]
) -> dict[str, set[str]]:
    """Return the topics of each member. Every topic is assigned exactly once, to a member that subscribes to it.

    Among members with equal subscriptions the counts differ by at most one; a topic moves only for this balance.
    The result depends only on the arguments, and not on their order.
    """
    owners: dict[str, set[str]] = {member: set() for member in sorted(subscriptions)}
    wanted = {topic: {m for m in owners if topic in subscriptions[m]} for topic in set().union(*subscriptions.values())}
    for topic in sorted(wanted):
        holders = [member for member in owners if topic in held.get(member, ()) and member in wanted[topic]]
        if holders:
            owners[holders[0]].add(topic)
    for topic in sorted(wanted.keys() - set().union(*owners.values())):
        owners[_least(wanted[topic], owners)].add(topic)
    ordered = {member: sorted(mine) for member, mine in owners.items()}
    while _move_one(ordered, wanted):
        pass
    return {member: set(mine) for member, mine in ordered.items()}


def _move_one(owners: Mapping[str, list[str]], wanted: Mapping[str, set[str]]) -> bool:
    """Move one topic from a fuller member to one with at least two fewer; each move lowers the sum of squares.

    ``owners`` stays sorted, so that a move is cheap: a rebalance may need thousands of them.
    """
    for giver in sorted(owners, key=lambda member: (-len(owners[member]), member)):
        for index in range(len(owners[giver]) - 1, -1, -1):
            topic = owners[giver][index]
            taker = _least(wanted[topic], owners)
            if len(owners[giver]) - len(owners[taker]) >= 2:
                del owners[giver][index]
                insort(owners[taker], topic)
                return True
    return False


def _least(members: Collection[str], owners: Mapping[str, Collection[str]]) -> str:
    return min(members, key=lambda member: (len(owners[member]), member))


Task = tuple[str, int]
"""A connector and the number of one of its tasks."""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """The user data with which a worker joins: its address, its offset in the config topic, and its tasks."""

    worker: str
    offset: int = 0
    generation: int = 0
    leads: bool = False
    tasks: frozenset[Task] = frozenset()


@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment of one worker, and the owners of all tasks.

    Workers are identified by their addresses: ``host:port``, or ``https://host:port``.

    ``generation`` is higher than those of the members' earlier assignments. ``offset`` is the offset of the
    config topic from which the tasks were read.
    """

    generation: int
    offset: int
    leader: str
    leads: bool
    tasks: frozenset[Task]
    owners: Mapping[Task, str]


def assign_work(members: Mapping[str, WorkerState], tasks: Collection[Task], offset: int) -> dict[str, Assignment]:
    """Return the assignment of every member.

    A leader stays the leader. Otherwise the member with the highest offset of the config topic leads, because nobody
    needs to wait for it. A member with an older generation missed an assignment: others own its former tasks.
    """
    newest = max(state.generation for state in members.values())
    members = {
        member: state if state.generation == newest else replace(state, leads=False, tasks=frozenset())
        for member, state in members.items()
    }
    leader = min(members, key=lambda member: (not members[member].leads, -members[member].offset, member))
    labels = {_label(task): task for task in tasks}
    held = {member: {_label(task) for task in state.tasks} for member, state in members.items()}
    shares = assign_topics(dict.fromkeys(members, labels.keys()), held)
    owners = {labels[label]: members[member].worker for member, share in shares.items() for label in share}
    return {
        member: Assignment(
            newest + 1,
            offset,
            members[leader].worker,
            member == leader,
            frozenset(labels[label] for label in shares[member]),
            owners,
        )
        for member in members
    }


def encode_worker_state(state: WorkerState) -> bytes:
    """Encode the user data with which a member joins."""
    return _encode(
        {
            "worker": state.worker,
            "offset": state.offset,
            "generation": state.generation,
            "leads": state.leads,
            "tasks": sorted(state.tasks),
        }
    )


def decode_worker_state(data: bytes | None) -> WorkerState:
    """Decode the user data with which a member joins. Raises ValueError for data that no worker sends."""
    document = _decode(data)
    return WorkerState(
        str(document["worker"]),
        int(document["offset"]),
        int(document["generation"]),
        bool(document["leads"]),
        _tasks(document["tasks"]),
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """Encode the user data of a member's assignment."""
    return _encode(
        {
            "generation": assignment.generation,
            "offset": assignment.offset,
            "leader": assignment.leader,
            "leads": assignment.leads,
            "tasks": sorted(assignment.tasks),
            "owners": [[*task, worker] for task, worker in sorted(assignment.owners.items())],
        }
    )


def decode_assignment(data: bytes | None) -> Assignment:
    """Decode the user data of a member's assignment. Raises ValueError for data that no worker sends."""
    document = _decode(data)
    return Assignment(
        int(document["generation"]),
        int(document["offset"]),
        str(document["leader"]),
        bool(document["leads"]),
        _tasks(document["tasks"]),
        {(str(name), int(number)): str(worker) for name, number, worker in document["owners"]},
    )


def _label(task: Task) -> str:
    return f"{task[0]}-{task[1]}"


def _tasks(entries: Any) -> frozenset[Task]:
    return frozenset((str(name), int(number)) for name, number in entries)


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def _decode(data: bytes | None) -> Any:
    document = json.loads(data or b"null")
    if not isinstance(document, dict):
        raise ValueError("the user data is not that of a Headrace worker")
    return document
