"""Which worker of a cluster runs which tasks, and which one leads: the work of a group of workers.

The leader alone writes the config topic. Tasks are spread as topics are (``core/connect/assignment.py``): evenly, each
to one worker, staying where they are. Depends on nothing but what the members say, whatever their order.
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
class Standing:
    """What a member says when it joins: how it is reached, how far it has read the config topic, and what it holds."""

    worker: str
    offset: int = 0
    generation: int = 0
    leads: bool = False
    tasks: frozenset[Task] = frozenset()


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a member is told: its own part, and where the rest is. Workers are named by ``host:port``.

    ``generation`` is higher than any that a member of the group has seen; ``offset`` is that of the config topic from
    which the tasks were taken.
    """

    generation: int
    offset: int
    leader: str
    leads: bool
    tasks: frozenset[Task]
    owners: Mapping[Task, str]


def assign_work(members: Mapping[str, Standing], tasks: Collection[Task], offset: int) -> dict[str, Assignment]:
    """The assignment of every member, by member.

    A leader stays; otherwise who has read the most of the config topic leads, since nobody needs to wait for it. Who
    comes with an older generation than others was left out meanwhile: what it held has been given to them.
    """
    newest = max(standing.generation for standing in members.values())
    members = {
        member: standing if standing.generation == newest else replace(standing, leads=False, tasks=frozenset())
        for member, standing in members.items()
    }
    leader = min(members, key=lambda each: (not members[each].leads, -members[each].offset, each))
    labels = {_label(task): task for task in tasks}
    held = {member: {_label(task) for task in standing.tasks} for member, standing in members.items()}
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


def encode_standing(standing: Standing) -> bytes:
    """The user data with which a member joins."""
    return _encode(
        {
            "worker": standing.worker,
            "offset": standing.offset,
            "generation": standing.generation,
            "leads": standing.leads,
            "tasks": sorted(standing.tasks),
        }
    )


def decode_standing(data: bytes | None) -> Standing:
    """What a member has said. Raises ValueError for what no worker sends."""
    document = _decode(data)
    return Standing(
        str(document["worker"]),
        int(document["offset"]),
        int(document["generation"]),
        bool(document["leads"]),
        _tasks(document["tasks"]),
    )


def encode_assignment(assignment: Assignment) -> bytes:
    """The user data of a member's assignment."""
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
    """What a member was told. Raises ValueError for what no worker sends."""
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
        raise ValueError("no worker of Headrace speaks here")
    return document
