"""This worker's place in its cluster: which tasks are its own, and whether it leads.

The leader alone writes the config topic. Its term begins in three steps, in this order, which is the whole proof that
there is one writer (``docs/why.md``): it shuts out whoever wrote before; it has Kafka confirm that its assignment still
stands; it reads the topic to the end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from headrace.core.connect.work import Assignment, Task
from headrace.core.model.errors import HeadraceError, RestError
from headrace.ports import WorkerMember
from headrace.runtime.trace import summary
from headrace.runtime.worker.stores import ConfigStore

log = logging.getLogger(__name__)
T = TypeVar("T")

NO_LEADER = "Cannot complete request momentarily due to no known leader URL, likely because a rebalance was underway."
STALE = (
    "Cannot complete request momentarily due to stale configuration (typically caused by a concurrent config change)"
)
_RETRY_SECONDS = 0.5
_RENEWAL_SECONDS = 24 * 3600.0
"""Far below transactional.id.expiration.ms, 7 days by default."""


class Elsewhere(RestError):
    """A request that another worker has to answer (Kafka Connect's ``RequestTargetException``)."""

    def __init__(self, worker: str) -> None:
        super().__init__(NO_LEADER, 409)
        self.worker = worker


class Cluster:
    """One worker's view. All methods are called on the worker's event loop."""

    def __init__(self, worker_id: str, member: WorkerMember, configs: ConfigStore) -> None:
        self._worker_id = worker_id
        self._member = member
        self._configs = configs
        self._moved: Callable[[], None] = _nobody
        self._assignment: Assignment | None = None
        self._settled = asyncio.Event()
        self._term: asyncio.Task[None] | None = None
        self._closed = False
        self.leads = False

    async def start(self, moved: Callable[[], None]) -> None:
        """Join the group; ``moved`` is called whenever tasks or the lead have moved. Returns once there is a place."""
        self._moved = moved
        self.refresh()
        await self._member.start(self._take)
        await self._settled.wait()

    async def stop(self) -> None:
        """Leave the group: the others take over. Idempotent."""
        self._closed = True
        self._end_term()
        await self._member.stop()

    @property
    def generation(self) -> int:
        """The number of the assignment in force."""
        return self._assignment.generation if self._assignment else 0

    def owns(self, connector: str, number: int) -> bool:
        """Whether a task is to run here."""
        return self._assignment is not None and (connector, number) in self._assignment.tasks

    def led(self) -> None:
        """Raises Elsewhere unless this worker may write the config topic, RestError 409 when nobody is known to."""
        if self.leads:
            return
        if self._assignment is None or self._assignment.leads:
            raise RestError(NO_LEADER, 409)
        raise Elsewhere(self._assignment.leader)

    def owned(self, connector: str, number: int) -> None:
        """Raises Elsewhere unless a task is to run here, RestError 409 when it is to run nowhere yet."""
        if self.owns(connector, number):
            return
        owner = self._assignment.owners.get((connector, number)) if self._assignment else None
        if owner is None or owner == self._worker_id:
            raise RestError(NO_LEADER, 409)
        raise Elsewhere(owner)

    def refresh(self) -> None:
        """The config topic has changed: know what there is to do, and if this worker leads, have it shared out."""
        tasks = self._tasks()
        self._member.offer(tasks, self._configs.position())
        if self.leads and self._assignment is not None and self._assignment.owners.keys() != set(tasks):
            self._member.rebalance()

    async def write(self, change: Awaitable[T]) -> T:
        """Await a write of the config topic. After any failure the lead is sought anew, as it may be lost."""
        try:
            return await change
        except HeadraceError:
            self._lose()
            raise

    def _take(self, assignment: Assignment) -> None:
        if self._closed:
            return
        self._assignment = assignment
        if not assignment.leads:
            self._end_term()
        elif self._term is None or self._term.done():
            self._term = asyncio.create_task(self._lead(), name="term")
        if not assignment.leads or self.leads:
            self._settle()

    def _lose(self) -> None:
        self._end_term()
        if self._assignment is not None:
            self._take(self._assignment)

    def _end_term(self) -> None:
        term, self._term = self._term, None
        self.leads = False
        if term is not None:
            term.cancel()

    async def _lead(self) -> None:
        """Seek the lead until it is had, and again from time to time: brokers forget a producer that writes nothing."""
        while self._to_lead():
            try:
                await self._member.confirm()  # not needed for the proof: who is out already disturbs nobody
                await self._configs.lead()
                await self._member.confirm()
                await self._configs.catch_up()
            except HeadraceError as error:
                self.leads = False
                log.warning("Worker %s is to lead and waits: %s", self._worker_id, summary(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if not self.leads and self._to_lead():
                self.leads = True
                log.info("Worker %s leads (generation %d)", self._worker_id, self.generation)
                self._settle()
            await asyncio.sleep(_RENEWAL_SECONDS)

    def _to_lead(self) -> bool:
        return self._assignment is not None and self._assignment.leads and not self._closed

    def _settle(self) -> None:
        self._settled.set()
        self.refresh()
        self._moved()

    def _tasks(self) -> Sequence[Task]:
        state = self._configs.state
        return [(name, n) for name in state.connectors() for n in range(len(state.task_configs(name)))]


def _nobody() -> None:
    """Nobody listens yet."""
