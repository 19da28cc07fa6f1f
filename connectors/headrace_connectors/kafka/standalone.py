"""The stores of a standalone worker: configurations and statuses in memory, consumer groups and topics in Kafka."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from headrace.core.connect.work import Assignment, Task, WorkerState, assign_work
from headrace.core.model.errors import Fenced
from headrace.ports import CompactedLog, FencedLog, LogRecord, WorkerMember
from headrace_connectors.kafka.stores import KafkaCluster


class StandaloneLog:
    """``headrace.ports.FencedLog`` of a worker that nobody else writes for. Its records end with the process."""

    def __init__(self) -> None:
        self._records: dict[str, bytes | None] = {}
        self._appended = 0
        self._listeners: list[Callable[[str, bytes | None], None]] = []

    async def start(self, applied: Callable[[str, bytes | None], None]) -> None:
        """Pass the records to ``applied``, and then each new one."""
        for key, value in self._records.items():
            applied(key, value)
        self._listeners.append(applied)

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Store the records, the last of each key at its own position as compaction does, and pass them on."""
        for key, value in records:
            self._appended += 1
            self._records.pop(key, None)
            self._records[key] = value
            for applied in self._listeners:
                applied(key, value)

    def position(self) -> int:
        """Return the number of records that were ever appended."""
        return self._appended

    async def lead(self) -> None:
        """Do nothing, because no other worker writes."""

    async def refresh(self) -> None:
        """Do nothing, because records are passed on at once."""

    async def close(self) -> None:
        """Pass no further record on. Idempotent."""
        self._listeners.clear()


class StandaloneMember:
    """``headrace.ports.WorkerMember`` without a group: it leads and has all tasks."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self._state = WorkerState(worker, 0)
        self._tasks: Collection[Task] = ()
        self._assigned: Callable[[Assignment], None] | None = None

    async def start(self, assigned: Callable[[Assignment], None]) -> None:
        """Assign at once."""
        self._assigned = assigned
        self.rebalance()

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        """Store the tasks for the next assignment."""
        self._tasks = tasks
        self._state = replace(self._state, offset=offset)

    def rebalance(self) -> None:
        """Assign the tasks at once."""
        if self._assigned is not None:
            assignment = assign_work({self._worker: self._state}, self._tasks, self._state.offset)[self._worker]
            self._state = replace(
                self._state, generation=assignment.generation, leads=assignment.leads, tasks=assignment.tasks
            )
            self._assigned(assignment)

    async def confirm(self) -> None:
        """Raise Fenced after ``stop``."""
        if self._assigned is None:
            raise Fenced(f"{self._worker} has stopped")

    async def stop(self) -> None:
        """Assign nothing more. Idempotent."""
        self._assigned = None


class StandaloneStores(KafkaCluster):
    """``headrace.ports.Stores`` of standalone mode."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.configs: FencedLog = StandaloneLog()
        self.statuses: CompactedLog = StandaloneLog()

    def member(self, worker: str) -> WorkerMember:
        """Create the only member."""
        return StandaloneMember(worker)

    async def close(self) -> None:
        """Do nothing, because nothing is open."""
