"""The Kafka feed of one sink task: a group member on the consumer thread, its listener on the worker's loop.

``GroupMember`` fetches. The chunks of a poll go to the worker's loop together, when the task has taken those of the
poll before. Calls of the listener never overlap. On a revocation chunks that wait are dropped, because they are read
again. The running ``put`` and ``revoked`` may finish within the revoke timeout, and are cancelled after it.

``KafkaFeedFactory`` creates the Kafka clients of a worker: one feed per task, all on one Faust app and one consumer
thread.

Tests: ``tests/contracts/test_kafka_feed.py``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from headrace.config.kafka import KafkaSettings
from headrace.core.model.errors import Fenced, Retriable
from headrace.ports import (
    Chunk,
    DeadLetterQueue,
    Divide,
    Feed,
    FeedListener,
    Messages,
    OffsetNote,
    QueuedRecords,
    TopicPartition,
)
from headrace.runtime.threads import LoopThread
from headrace_connectors.kafka.agent import FaustHost, TableAgent
from headrace_connectors.kafka.dead_letter_queue import KafkaDeadLetterQueue, read_topic
from headrace_connectors.kafka.errors import headrace_error
from headrace_connectors.kafka.member import GroupMember
from headrace_connectors.kafka.predecessors import WorkerProcess
from headrace_connectors.kafka.preflight import check_brokers
from headrace_connectors.kafka.settings import (
    ConsumerSettings,
    admin_arguments,
    check_worker,
    connection_arguments,
    consumer_settings,
    group_arguments,
    producer_arguments,
)
from headrace_connectors.kafka.topics import CompactedTopics

log = logging.getLogger(__name__)

START_SECONDS = 60.0
REVOKE_SECONDS = 60.0
"""How long a batch in flight may delay a rebalance. The group's rebalance timeout is 120 s."""


class KafkaFeed:
    """``headrace.ports.Feed`` over Kafka. Its methods are called on the worker's loop."""

    def __init__(
        self,
        settings: ConsumerSettings,
        consumers: LoopThread,
        process: WorkerProcess,
        revoke_seconds: float = REVOKE_SECONDS,
    ) -> None:
        self._settings = settings
        self._consumers = consumers
        self._revoke_seconds = revoke_seconds
        self._member = GroupMember(settings, _LoopBridge(self), process)
        self._epoch: int | None = None
        self._putting: asyncio.Task[None] | None = None
        self._rebalancing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = False
        self._failed = False

    async def start(self, listener: FeedListener) -> None:
        """Join the group and start fetching. Raises ConfigError, Fatal or Retriable, after it has stopped the feed."""
        self._listener = listener
        self.loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._consumers.call(self._join())
        except BaseException as error:
            await self.stop()
            if isinstance(error, TimeoutError):
                raise Retriable(f"The consumer did not join its group within {START_SECONDS:g} s") from error
            raise

    async def stop(self) -> None:
        """Leave the group. Idempotent. Nothing is put afterwards.

        The cancellation of a caller does not interrupt it, because a half-stopped member would keep its topics.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._leave())
        await asyncio.shield(self._stopping)

    async def _leave(self) -> None:
        self._stopped = True
        self._epoch = None
        for task in (self._putting, self._rebalancing):
            await _cancel(task)
        await self._consumers.call(self._member.stop())

    def pause(self) -> None:
        self._consumers.soon(lambda: self._member.pause(True))

    def resume(self) -> None:
        self._consumers.soon(lambda: self._member.pause(False))

    def rewind(self) -> None:
        self._consumers.soon(self._member.rewind)

    def throttle(self, topics: Collection[str]) -> None:
        chosen = frozenset(topics)
        self._consumers.soon(lambda: self._member.throttle(chosen))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets. Raises Fenced if a partition belongs to another member, Retriable for other errors."""
        if self._stopped:
            raise Fenced("the feed is stopped: its partitions may belong to another member")
        await self._consumers.call(self._member.commit(offsets))

    def committed(self) -> Mapping[TopicPartition, OffsetNote]:
        """Return the offsets and notes that the group had committed at the start of the assignment."""
        return self._member.committed

    def topic_ids(self) -> Mapping[str, str]:
        return self._member.topic_ids

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        self._consumers.soon(lambda: self._member.note(notes))

    def last_caught_up(self) -> Mapping[TopicPartition, float]:
        """Return when each partition was last at its end, a few seconds old at most."""
        return {} if self._stopped else dict(self._member.caught_up)

    def lag(self) -> Mapping[TopicPartition, int]:
        """Return the records between committed offset and end of each assigned partition, a few seconds old at most."""
        return {} if self._stopped else self._member.lag

    def absent(self) -> Sequence[str] | None:
        return None if self._stopped else self._member.absent

    async def _join(self) -> None:
        await check_brokers(self._settings.arguments)
        try:
            await self._member.start()
        except KafkaError as error:
            raise headrace_error(error, "joining the group") from error

    async def deliver(self, chunks: Sequence[Chunk]) -> None:
        """Put the chunks of a poll if they belong to the current assignment, and drop them otherwise. Never raises."""
        if self._stopped or chunks[0].epoch != self._epoch or self._failed:
            return
        self._putting = asyncio.ensure_future(self._listener.put(chunks))
        try:
            await asyncio.wait({self._putting})
        finally:
            finished, self._putting = self._putting, None
            finished.cancel()
        if not finished.cancelled() and (error := finished.exception()) is not None:
            self.fail(error)

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Let the task finish within the revoke timeout."""
        self._epoch = None

        async def finish() -> None:
            if self._putting is not None:
                await asyncio.wait({self._putting})
            await self._listener.on_partitions_revoked(partitions)

        await self._rebalance(finish(), f"Partitions {sorted(partitions)} were revoked")

    async def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """Report the assignment to the task, then accept chunks of ``epoch``."""
        await self._rebalance(
            self._listener.on_partitions_assigned(epoch, partitions), f"Partitions {sorted(partitions)} were assigned"
        )
        self._epoch = epoch

    async def on_topic_failure(self, topic: str, error: Exception) -> None:
        if not (self._failed or self._stopped):
            await self._listener.on_topic_failure(topic, error)

    def fail(self, error: BaseException) -> None:
        """Report the first failure to the listener. Nothing is put afterwards."""
        if not (self._failed or self._stopped):
            self._failed = True
            self._listener.on_failure(error)

    async def _rebalance(self, work: Coroutine[Any, Any, None], what: str) -> None:
        if self._stopped or self._failed:
            work.close()
            return
        self._rebalancing = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({self._rebalancing}, timeout=self._revoke_seconds)
        if not done:
            log.warning("%s; the batch in flight took longer than %g s and is dropped", what, self._revoke_seconds)
            await _cancel(self._rebalancing)
            await _cancel(self._putting)
        elif not self._rebalancing.cancelled() and (error := self._rebalancing.exception()) is not None:
            self.fail(error)
        self._rebalancing = None


class _LoopBridge:
    """The member's listener: runs every call on the worker's loop and waits for its end."""

    def __init__(self, feed: KafkaFeed) -> None:
        self._feed = feed

    def deliver(self, chunks: Sequence[Chunk]) -> Coroutine[Any, Any, None]:
        return self._run(self._feed.deliver(chunks))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._run(self._feed.on_partitions_revoked(partitions))

    def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> Coroutine[Any, Any, None]:
        return self._run(self._feed.on_partitions_assigned(epoch, partitions))

    def on_topic_failure(self, topic: str, error: Exception) -> Coroutine[Any, Any, None]:
        return self._run(self._feed.on_topic_failure(topic, error))

    def on_failure(self, error: BaseException) -> None:
        self._feed.loop.call_soon_threadsafe(self._feed.fail, error)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._feed.loop))


async def _cancel(task: asyncio.Task[None] | None) -> None:
    """Cancel ``task`` and wait until it ends."""
    if task is not None:
        task.cancel()
        with suppress(Exception, asyncio.CancelledError):
            await task


_Message = TypeVar("_Message")


class KafkaFeedFactory:
    """The Kafka side of a worker; ``properties`` are its client properties (``bootstrap.servers``, ``consumer.*``)."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Check the worker's properties without opening anything. Raises ConfigError, which names the property."""
        check_worker(properties)
        self._properties = dict(properties)
        self._host = FaustHost("headrace")
        self._consumers = LoopThread("headrace-kafka")
        self._process = WorkerProcess()

    async def start(self, worker: str = "") -> None:
        """Start the Faust app on the running loop, and the consumer thread."""
        self._process = WorkerProcess(worker)
        self._consumers.start()
        await self._host.start()

    def beat(self, callback: Callable[[], object]) -> None:
        self._consumers.soon(callback)

    def check(self, connector: str, settings: KafkaSettings) -> None:
        """Raise ConfigError, which names the property, for invalid client properties of the connector."""
        consumer_settings(self._properties, connector, 0, settings)
        group_arguments(self._properties, connector, settings)
        if settings.dead_letters.topic:
            producer_arguments(self._properties, connector, 0, settings)

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> Feed:
        """Create the feed of one task; the caller starts it. Raises ConfigError, which names the property.

        ``divide`` converts the bytes of the records' values, on the consumer thread.
        """
        consumer = consumer_settings(self._properties, connector, task, settings)
        if divide is not None:
            consumer = replace(consumer, arguments={**consumer.arguments, "value_deserializer": divide})
        return KafkaFeed(consumer, self._consumers, self._process)

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> TableAgent[_Message]:
        """The agent of a table, hosted by Faust; not started yet."""
        return self._host.agent(name, body)

    def compacted(self, connector: str, task: int, settings: KafkaSettings) -> CompactedTopics:
        """Return an object that checks whether a topic of the connector is compacted. Raises ConfigError."""
        consumer = consumer_settings(self._properties, connector, task, settings)
        return CompactedTopics(consumer.arguments, self._consumers)

    async def dead_letter_queue(self, connector: str, task: int, settings: KafkaSettings) -> DeadLetterQueue | None:
        """Open the task's dead letter queue; None without one. Raises ConfigError, Retriable or Fatal."""
        if not settings.dead_letters.topic:
            return None
        producer = producer_arguments(self._properties, connector, task, settings)
        admin = admin_arguments(self._properties, settings, f"connector-dlq-adminclient-{connector}-{task}")
        queue = KafkaDeadLetterQueue(connector, task, settings.dead_letters, producer, admin, self._consumers)
        await queue.start()
        return queue

    def dead_letters(
        self, connector: str, settings: KafkaSettings, newest: int | None = None
    ) -> AsyncGenerator[QueuedRecords, None]:
        """Read the connector's dead letter topic up to its current end. Raises ConfigError, Retriable or Fatal.

        The connector's consumer properties are used, unless its producer writes to other brokers.
        """
        consumer = connection_arguments(consumer_settings(self._properties, connector, 0, settings).arguments)
        producer = connection_arguments(producer_arguments(self._properties, connector, 0, settings))
        other_brokers = producer["bootstrap_servers"] != consumer["bootstrap_servers"]
        return read_topic(settings.dead_letters.topic, producer if other_brokers else consumer, newest)

    async def close(self) -> None:
        """Stop the app and the thread; feeds must have been stopped. Idempotent."""
        await self._host.stop()
        self._consumers.close()
