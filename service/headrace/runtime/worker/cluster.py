"""The membership of this worker in its cluster: the tasks assigned to it, and whether it is the leader.

Only the leader writes the config topic. A term as leader begins with three steps. Their order proves that the topic has
one writer (``docs/decisions/workers.md``): fence the earlier writers; let Kafka confirm that the assignment is still in
force; read the topic to its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
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
_REBALANCE_SECONDS_PER_TASK = 0.001
"""The pause between two rebalances that the leader requests, for each task of the cluster.

The duration of a rebalance is proportional to the number of tasks. Without the pause, a client that creates thousands
of connectors one after another would cause a rebalance for each of them, and their total duration would be quadratic.
"""
_RENEWAL_SECONDS = 24 * 3600.0
"""The interval at which a leader repeats the steps; far below transactional.id.expiration.ms, 7 days by default."""


class RequestTargetError(RestError):
    """A request that only another worker can answer (Kafka Connect's ``RequestTargetException``)."""

    def __init__(self, worker: str) -> None:
        super().__init__(NO_LEADER, 409)
        self.worker = worker


class Cluster:
    """The cluster as one worker sees it. Call all methods on the worker's event loop."""

    def __init__(self, worker_id: str, member: WorkerMember, configs: ConfigStore) -> None:
        self._worker_id = worker_id
        self._member = member
        self._configs = configs
        self._on_change: Callable[[], None] = lambda: None
        self._assignment: Assignment | None = None
        self._joined = asyncio.Event()
        self._term: asyncio.Task[None] | None = None
        self._closed = False
        self._next_rebalance = 0.0  # the earliest time, by the event loop's clock
        self._rebalance_timer: asyncio.TimerHandle | None = None
        self.leads = False
        """Whether this worker may write the config topic: it is the leader, and the steps of its term are done."""

    async def start(self, on_change: Callable[[], None]) -> None:
        """Join the group. Return when the first assignment is in force, on the leader also when it may write.

        ``on_change`` is called after each assignment, and when a term as leader begins.
        """
        self._on_change = on_change
        self.refresh()
        await self._member.start(self._accept)
        await self._joined.wait()

    async def stop(self) -> None:
        """Leave the group, so that the other workers adopt the tasks. Idempotent."""
        self._closed = True
        if self._rebalance_timer is not None:
            self._rebalance_timer.cancel()
        self._end_term()
        await self._member.stop()

    @property
    def generation(self) -> int:
        """The generation of the assignment in force, 0 before the first."""
        return self._assignment.generation if self._assignment else 0

    @property
    def task_count(self) -> int:
        """The number of tasks that are assigned to this worker."""
        return len(self._assignment.tasks) if self._assignment else 0

    @property
    def owners(self) -> Mapping[Task, str]:
        """The addresses of the workers to which the tasks of the cluster are assigned."""
        return self._assignment.owners if self._assignment else {}

    def owns(self, connector: str, task_number: int) -> bool:
        return self._assignment is not None and (connector, task_number) in self._assignment.tasks

    def check_leader(self) -> None:
        """Check that this worker may write the config topic.

        Raises RequestTargetError if another worker may, RestError 409 if no leader is known or this worker's term has
        not begun yet.
        """
        if self.leads:
            return
        if self._assignment is None or self._assignment.leads:
            raise RestError(NO_LEADER, 409)
        raise RequestTargetError(self._assignment.leader)

    def check_owner(self, connector: str, task_number: int) -> None:
        """Check that the task is assigned to this worker.

        Raises RequestTargetError if it is assigned to another worker, RestError 409 if it is not assigned yet.
        """
        if self.owns(connector, task_number):
            return
        owner = self._assignment.owners.get((connector, task_number)) if self._assignment else None
        if owner is None or owner == self._worker_id:
            raise RestError(NO_LEADER, 409)
        raise RequestTargetError(owner)

    def other_owners(self, connector: str | None = None) -> Collection[str]:
        """Return the other workers to which tasks of ``connector`` are assigned; without it, tasks of any connector."""
        workers = {worker for (name, _), worker in self.owners.items() if connector is None or name == connector}
        return sorted(workers - {self._worker_id})

    def refresh(self) -> None:
        """Offer the tasks of the config topic to the group. The leader rebalances if they are not those assigned."""
        self._member.offer(tuple(self._configs.state.tasks()), self._configs.position())
        if self._must_rebalance and self._rebalance_timer is None:
            loop = asyncio.get_running_loop()
            if loop.time() >= self._next_rebalance:
                self._request_rebalance()
            else:
                self._rebalance_timer = loop.call_at(self._next_rebalance, self._request_rebalance)

    @property
    def _must_rebalance(self) -> bool:
        assigned = self._assignment
        return self.leads and assigned is not None and assigned.owners.keys() != self._configs.state.tasks()

    def _request_rebalance(self) -> None:
        self._rebalance_timer = None
        if self._must_rebalance:  # not any more if another rebalance has assigned the tasks since the timer was set
            pause = _REBALANCE_SECONDS_PER_TASK * len(self._configs.state.tasks())
            self._next_rebalance = asyncio.get_running_loop().time() + pause
            self._member.rebalance()

    async def write(self, change: Awaitable[T]) -> T:
        """Await a write of the config topic. A failure ends the term and begins another one.

        Another worker may have become the leader and fenced this one, so the steps of a term must prove it again.
        """
        try:
            return await change
        except HeadraceError:
            self._end_term()
            if self._assignment is not None:
                self._accept(self._assignment)
            raise

    def _accept(self, assignment: Assignment) -> None:
        if self._closed:
            return
        self._assignment = assignment
        if not assignment.leads:
            self._end_term()
        elif self._term is None or self._term.done():
            self._term = asyncio.create_task(self._lead(), name="term")
        if not assignment.leads or self.leads:  # otherwise _lead announces it when the term has begun
            self._announce()

    def _end_term(self) -> None:
        term, self._term = self._term, None
        self.leads = False
        if term is not None:
            term.cancel()

    async def _lead(self) -> None:
        """Begin the term, with retries. Repeat the steps daily, because brokers expire the id of an idle producer."""
        while self._may_lead():
            try:
                # Before the three steps: a worker that has left the group must not fence the others.
                await self._member.confirm()
                await self._configs.lead()
                await self._member.confirm()
                await self._configs.catch_up()
            except HeadraceError as error:
                self.leads = False
                log.warning("Worker %s: cannot become the leader yet and retries: %s", self._worker_id, summary(error))
                await asyncio.sleep(_RETRY_SECONDS)
                continue
            if not self.leads and self._may_lead():
                self.leads = True
                log.info("Worker %s: is the leader (generation %d)", self._worker_id, self.generation)
                self._announce()
            await asyncio.sleep(_RENEWAL_SECONDS)

    def _may_lead(self) -> bool:
        return self._assignment is not None and self._assignment.leads and not self._closed

    def _announce(self) -> None:
        self._joined.set()
        self.refresh()
        self._on_change()
