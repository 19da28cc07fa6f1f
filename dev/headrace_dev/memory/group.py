"""A group of workers in memory, all of them in one process."""

from __future__ import annotations

from collections.abc import Callable, Collection

from headrace.core.connect.work import Assignment, Task, WorkerState, assign_work
from headrace.core.model.errors import Fenced


class MemoryGroup:
    """Members among which the work is divided at once when one joins, leaves or requests it."""

    def __init__(self) -> None:
        self._members: dict[str, MemoryMember] = {}
        self._joined = 0

    def join(self, member: MemoryMember) -> str:
        """Add a member and return its id."""
        self._joined += 1
        name = f"member-{self._joined}"
        self._members[name] = member
        self.share()
        return name

    def leave(self, name: str) -> None:
        """Remove a member, or treat it as failed."""
        if self._members.pop(name, None) is not None:
            self.share()

    def knows(self, name: str) -> bool:
        """Return whether the id is that of a member."""
        return name in self._members

    def share(self) -> None:
        """Divide the work by the state of the member that has read most."""
        if not self._members:
            return
        best = max(self._members.values(), key=lambda member: member.state().offset)
        states = {name: member.state() for name, member in self._members.items()}
        for name, assignment in assign_work(states, best.tasks, best.state().offset).items():
            self._members[name].take(assignment)


class MemoryMember:
    """A ``headrace.ports.WorkerMember`` in a MemoryGroup."""

    def __init__(self, group: MemoryGroup, worker: str) -> None:
        self._group = group
        self._worker = worker
        self._name = ""
        self._offset = 0
        self._assigned: Callable[[Assignment], None] | None = None
        self._held: Assignment | None = None
        self.tasks: Collection[Task] = ()

    async def start(self, assigned: Callable[[Assignment], None]) -> None:
        """Join; the assignment follows at once."""
        self._assigned = assigned
        self._name = self._group.join(self)

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        """Store it for the next round."""
        self.tasks, self._offset = tasks, offset

    def rebalance(self) -> None:
        """Rebalance at once."""
        self._group.share()

    async def confirm(self) -> None:
        """Return whether the group still has this member."""
        if not self._group.knows(self._name):
            raise Fenced(f"{self._worker} is no member of the group any more")

    async def stop(self) -> None:
        """Leave the group."""
        self._assigned = None
        self._group.leave(self._name)

    def state(self) -> WorkerState:
        """Return the metadata of this member for the group."""
        held = self._held
        if held is None:
            return WorkerState(self._worker, self._offset)
        return WorkerState(self._worker, self._offset, held.generation, held.leads, held.tasks)

    def take(self, assignment: Assignment) -> None:
        """Receive the assignment."""
        self._held = assignment
        if self._assigned is not None:
            self._assigned(assignment)
