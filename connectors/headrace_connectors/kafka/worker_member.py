"""The group of workers with Kafka's group protocol: a consumer of the config topic that reads no records.

The user data of its assignor contain the state that ``core/connect/work.py`` needs. The member that Kafka chooses as
the group's leader assigns the work. The only partition of the config topic is assigned to the leading worker, so that
Kafka can confirm that it still leads: brokers reject an offset commit of an older generation (``confirm``).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from typing import Any, ClassVar

import aiokafka
from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    KafkaError,
    KafkaTimeoutError,
)

from headrace.core.connect.work import (
    Assignment,
    Task,
    WorkerState,
    assign_work,
    decode_assignment,
    decode_worker_state,
    encode_assignment,
    encode_worker_state,
)
from headrace.core.model.errors import Fenced, Retriable
from headrace.runtime.threads import LoopThread
from headrace_connectors.kafka.aiokafka_patches import (
    FETCHER_MS,
    check_alive,
    pace_requests,
    separate_fetches,
    stop_client,
)
from headrace_connectors.kafka.errors import headrace_error
from headrace_connectors.kafka.predecessors import remove_predecessors

log = logging.getLogger(__name__)

NAME = "headrace-work-1"
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 1.0
_STOP_SECONDS = 10.0
_NOWHERE = aiokafka.TopicPartition("__headrace_nowhere", 0)
_TEN_YEARS_MS = 10 * 365 * 24 * 3600 * 1000
_REQUEST_MARGIN_MS = 5_000
_STABLE_REQUESTS = 3
"""The time limit of a rebalance, in request timeouts: a lost request, then the next, which waits for all members."""
_OTHERS = "; stop the workers of Kafka Connect, or other clients that use this group.id"


class WorkAssignor(AbstractPartitionAssignor):
    """Assigns the tasks that the member offers. Use ``work_assignor()``: aiokafka keeps the state on the class."""

    name = NAME
    version = 0
    worker: ClassVar[str] = ""
    offered: ClassVar[tuple[Collection[Task], int]] = ((), 0)
    held: ClassVar[Assignment | None] = None

    @classmethod
    def assign(cls, cluster: ClusterMetadata, members: Mapping[str, Any]) -> dict[str, Any]:
        """Return the assignments of all members. The member that Kafka has chosen calls it."""
        states = {member: decode_worker_state(data.user_data) for member, data in members.items()}
        # Requests to one of two workers with the same address would reach only one of them.
        workers = [state.worker for state in states.values()]
        for worker in sorted({worker for worker in workers if workers.count(worker) > 1}):
            log.warning(
                "Worker %s: several workers have this address; set a different rest.advertised.host.name or "
                "rest.advertised.port on each",
                worker,
            )
        topics = sorted(set().union(*(data.subscription for data in members.values())))
        return {
            member: ConsumerProtocolMemberAssignment(
                cls.version, [(topic, [0]) for topic in topics if work.leads], encode_assignment(work)
            )
            for member, work in assign_work(states, *cls.offered).items()
        }

    @classmethod
    def metadata(cls, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """Return the metadata with which this member joins."""
        held, (_, offset) = cls.held, cls.offered
        if held is None:
            state = WorkerState(cls.worker, offset)
        else:
            state = WorkerState(cls.worker, offset, held.generation, held.leads, held.tasks)
        return ConsumerProtocolMemberMetadata(cls.version, sorted(topics), encode_worker_state(state))

    @classmethod
    def on_assignment(cls, assignment: ConsumerProtocolMemberAssignment) -> None:
        cls.held = decode_assignment(assignment.user_data)


def work_assignor(worker: str) -> type[WorkAssignor]:
    """Create an assignor class for one member, with its own state."""
    return type("MemberWorkAssignor", (WorkAssignor,), {"worker": worker})


class KafkaWorkerMember:
    """``headrace.ports.WorkerMember``. ``timeouts`` are aiokafka's ``session_timeout_ms`` and the like."""

    def __init__(
        self, worker: str, group: str, topic: str, arguments: Mapping[str, Any], timeouts: Mapping[str, int]
    ) -> None:
        self._group = group
        self._topic = topic
        self._client_id = f"{group}-{worker}"
        self._arguments = {**arguments, "client_id": self._client_id}
        self._timeouts = dict(timeouts)
        self._request_ms = timeouts["rebalance_timeout_ms"] + _REQUEST_MARGIN_MS
        self._stable_at = self._coordinated_at = 0.0
        self._assignor = work_assignor(worker)
        self._loop = LoopThread("headrace-kafka")
        self._consumer: aiokafka.AIOKafkaConsumer | None = None
        self._assigned: Callable[[Assignment], None] | None = None
        self._running: asyncio.Task[None] | None = None
        self._started = False

    async def start(self, assigned: Callable[[Assignment], None]) -> None:
        """Join on a separate thread, so that a busy main loop does not lose the membership."""
        main = asyncio.get_running_loop()

        def report(assignment: Assignment) -> None:
            with suppress(RuntimeError):  # the main loop has ended
                main.call_soon_threadsafe(assigned, assignment)

        self._assigned = report
        if not self._started:
            self._loop.start()
            self._started = True
        await self._loop.call(self._begin())

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        self._assignor.offered = (tuple(tasks), offset)

    def rebalance(self) -> None:
        self._loop.soon(self._subscribe)

    async def confirm(self) -> None:
        """Commit an offset, which Kafka rejects for a member of an older generation. Raises Fenced or Retriable."""
        if not self._started:
            raise Fenced(f"Group {self._group}: this worker has left the group")
        await self._loop.call(self._commit())

    async def stop(self) -> None:
        """Leave within a time limit, and end the thread."""
        if self._started:
            self._assigned = None
            with suppress(TimeoutError):
                async with asyncio.timeout(2 * _STOP_SECONDS):
                    await self._loop.call(self._end())
            self._started = False
            await asyncio.to_thread(self._loop.close)

    # -- on the thread ------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        try:
            await self._open_consumer()
        except KafkaError as error:
            await self._close_consumer()
            raise headrace_error(error, f"joining the group {self._group}") from error
        self._running = asyncio.ensure_future(self._stay())

    async def _end(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        await self._close_consumer()

    async def _open_consumer(self) -> aiokafka.AIOKafkaConsumer:
        self._consumer = consumer = aiokafka.AIOKafkaConsumer(
            **self._arguments,
            **self._timeouts,
            group_id=self._group,
            partition_assignment_strategy=(self._assignor,),
            request_timeout_ms=self._request_ms,
            max_poll_interval_ms=_TEN_YEARS_MS,
            enable_auto_commit=False,
            auto_offset_reset="latest",
            consumer_timeout_ms=FETCHER_MS,
        )
        separate_fetches(consumer)
        pace_requests(consumer)
        await consumer.start()
        # Also those of this worker itself, if its client failed without leaving.
        await remove_predecessors(consumer, lambda member: member.client_id == self._client_id)
        self._subscribe()
        self._stable_at = self._coordinated_at = time.monotonic()
        return consumer

    async def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await stop_client(consumer, _STOP_SECONDS)

    async def _stay(self) -> None:
        """Join again after any error: a worker without a membership would not get assignments any more."""
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                consumer = self._consumer or await self._open_consumer()
                check_alive(consumer)
                now = time.monotonic()
                # A poll of a partition that is never assigned returns no records, but raises the coordinator's errors.
                # It waits during a rebalance.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await consumer.getmany(_NOWHERE, timeout_ms=0)
                        self._stable_at = now
                # Without a coordinator for the session timeout, the membership is lost. Then a new client is needed: it
                # uses the configured addresses, this one only the last known ones.
                if consumer._coordinator.coordinator_id is not None:
                    self._coordinated_at = now
                elif now - self._coordinated_at > self._timeouts["session_timeout_ms"] / 1000:
                    raise GroupCoordinatorNotAvailableError
                if now - self._stable_at > _STABLE_REQUESTS * self._request_ms / 1000:
                    raise KafkaTimeoutError
            except Exception as error:
                hint = _OTHERS if isinstance(error, InconsistentGroupProtocolError) else ""
                name = type(error).__name__
                log.warning("Group %s: the membership failed; the worker joins again: %s%s", self._group, name, hint)
                await self._close_consumer()
                await asyncio.sleep(_RETRY_SECONDS)

    def _subscribe(self) -> None:
        if self._consumer is not None:
            self._consumer.subscribe([self._topic], listener=_Listener(self._on_stable))

    def _on_stable(self) -> None:
        consumer, assignment = self._consumer, self._assignor.held
        if consumer is not None and assignment is not None and self._assigned is not None:
            consumer.pause(*consumer.assignment())
            self._assigned(assignment)

    async def _commit(self) -> None:
        consumer = self._consumer
        if consumer is None:
            raise Fenced(f"Group {self._group}: this worker is not a member at the moment")
        _, offset = self._assignor.offered
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await consumer.commit({aiokafka.TopicPartition(self._topic, 0): offset})
        except KafkaError as error:
            raise headrace_error(error, f"confirming the leader of the group {self._group}") from error
        except TimeoutError as error:
            raise Retriable(f"Group {self._group}: the coordinator does not answer") from error


class _Listener(aiokafka.ConsumerRebalanceListener):
    """Call ``stable`` when the group is stable."""

    def __init__(self, stable: Callable[[], None]) -> None:
        self._on_stable = stable

    def on_partitions_revoked(self, revoked: Collection[aiokafka.TopicPartition]) -> None:
        """Keep the last assignment: tasks continue, and a leader that has been replaced is fenced."""

    def on_partitions_assigned(self, assigned: Collection[aiokafka.TopicPartition]) -> None:
        self._on_stable()
