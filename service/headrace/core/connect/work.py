"""Assign tasks to the workers of a cluster, and choose the leader.

Only the leader writes the config topic. Tasks are assigned as topics are (``core/connect/assignment.py``): balanced and
sticky, each to one worker. The result depends only on the members' states, and not on their order.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.connect.assignment import assign_topics

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

    ``generation`` is higher than that of any earlier assignment that a member knows. ``offset`` is the offset of the
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
    leader = min(members, key=lambda each: (not members[each].leads, -members[each].offset, each))
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
