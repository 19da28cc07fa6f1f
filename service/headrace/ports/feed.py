"""The Kafka side of a task: chunks of records in, offsets and dead letters out.

Tests: ``tests/contracts/feed_suite.py``, ``tests/contracts/agent_suite.py``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol, TypeVar

from headrace.config.kafka import KafkaSettings
from headrace.core.decode.json_converter import Document
from headrace.core.decode.records import KafkaRecord
from headrace.core.model.errors import Stage
from headrace.core.model.events import TopicPartition as TopicPartition


class OffsetNote(NamedTuple):
    """What a group has committed for a partition: the next offset, and the note that was committed with it."""

    offset: int
    note: str


class Record(KafkaRecord, Protocol):
    """One Kafka record as a consumer returns it.

    ``value`` is what a feed's ``divide`` has made of the record's bytes; ``core/decode/json_converter.py: whole``
    returns the bytes.
    """

    @property
    def topic(self) -> str:
        """The topic that contains the record."""

    @property
    def key(self) -> bytes | None:
        """The key."""

    @property
    def value(self) -> bytes | Document | None:
        """The value; None for a tombstone."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Consecutive records of one partition. ``begin`` and ``end`` are fetch positions: ``end`` is what gets committed.

    ``epoch`` counts assignments, ``sequence`` counts chunks of all partitions from 0 within an epoch. ``behind`` is how
    many offsets of the partition follow this chunk in Kafka, as far as the feed knows. ``gone`` is whether Kafka may
    have removed records between ``begin`` and the first of ``records`` before they were read. ``since`` is when the
    first of them was read (monotonic seconds), infinity for now.
    """

    epoch: int
    sequence: int
    partition: TopicPartition
    records: Sequence[Record]
    begin: int
    end: int
    behind: int = 0
    gone: bool = False
    since: float = inf


Divide = Callable[[bytes | None], Document | bytes | None]
"""Makes a record's value of its bytes, where they are fetched: ``JsonConverter.divide``."""


class FeedListener(Protocol):
    """Receives the chunks and assignments of a feed. All calls are made on the worker's event loop, one at a time."""

    async def put(self, chunks: Sequence[Chunk]) -> None:
        """Accept the chunks of a poll, in their order; all are of one assignment, and at most one of a partition.

        The feed fetches no others before this returns, which is the back-pressure.
        """

    async def on_partitions_assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """A new assignment begins; no chunk of an older epoch follows."""

    async def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish and commit the writes of ``partitions`` within the feed's timeout, then discard the rest."""

    async def on_topic_failure(self, topic: str, error: Exception) -> None:
        """A topic is not what the group has read of it: nothing more of it is put until the next assignment."""

    def on_failure(self, error: BaseException) -> None:
        """The feed cannot continue."""


_Message = TypeVar("_Message")
_Sent = TypeVar("_Sent", contravariant=True)
_Received = TypeVar("_Received", covariant=True)


class Messages(Protocol[_Received]):
    """The messages of an agent, in the order in which they were sent."""

    def __aiter__(self) -> AsyncIterator[_Received]:
        """Iterate over the messages, and wait for each."""

    def waiting(self) -> Iterator[_Received]:
        """Take the messages that have arrived, without waiting."""


class Agent(Protocol[_Sent]):
    """Runs the body of one table of a task, which takes the messages that are sent to it."""

    async def start(self) -> None:
        """Run the body."""

    def send(self, message: _Sent) -> None:
        """Send a message; without an effect after ``stop``."""

    async def stop(self) -> None:
        """Cancel the body. Idempotent."""


class OpenAgent(Protocol):
    """Makes agents."""

    def __call__(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> Agent[_Message]:
        """Make an agent with a name and a body that never raises. It is not started yet."""


class Feed(Protocol):
    """The Kafka side of one sink task: a consumer group member.

    A committed offset is continued only in the log that it was committed for. If a topic was deleted and created again,
    or the log was cut before the last record that was read, the listener's ``topic_failed`` is called, and no record
    behind that one is put.
    """

    async def start(self, listener: FeedListener) -> None:
        """Join the group and begin to fetch. Raises ConfigError or Retriable with the cause (wrong password, port…)."""

    async def stop(self) -> None:
        """Leave the group. Idempotent; nothing is put afterwards."""

    def pause(self) -> None:
        """Stop fetching but stay in the group; chunks that are fetched already are still put."""

    def resume(self) -> None:
        """Fetch again."""

    def rewind(self) -> None:
        """Begin the assignment again soon: the listener hears of its end and begin; chunks start at what is committed.

        Without an effect where a rebalance does that already, and before the first assignment.
        """

    def throttle(self, topics: Collection[str]) -> None:
        """Do not fetch from these topics until called again without them: their tables' queues are full."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets of the group. Raises Fenced if another member owns a partition.

        Each carries the newest note of its partition: that of ``note``, or else the one that the assignment began with.
        """

    def committed(self) -> Mapping[TopicPartition, OffsetNote]:
        """What the group had committed for the assigned partitions when the assignment began, 0 and "" for nothing.

        An offset that was set from outside of the group has no note.
        """

    def topic_ids(self) -> Mapping[str, str]:
        """Kafka's ids of the assigned topics when the assignment began, without those that are unknown."""

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        """Give the commits of these partitions' offsets another note, until the assignment ends."""

    def last_caught_up(self) -> Mapping[TopicPartition, float]:
        """When (monotonic seconds) each assigned partition was last known to have no record that was not put.

        Minus infinity for a partition whose end was not reached, or is not known, since the assignment began. An empty
        partition is caught up as soon as the feed has seen that it is empty.
        """

    def lag(self) -> Mapping[TopicPartition, int]:
        """Records between the committed offset and the end of each assigned partition, as last seen.

        If all that was read is committed, the fetch position counts instead: it passes offsets without a record.
        """

    def absent(self) -> Sequence[str] | None:
        """The named topics that do not exist, as last seen; the regular expression if it matches no topic.

        None while it is not known, as before the first assignment.
        """


@dataclass(frozen=True, slots=True)
class ErrantRecord:
    """A record that could not be used, and why (for log and dead letter queue)."""

    record: Record
    stage: Stage
    class_name: str
    error: BaseException


class DeadLetterQueue(Protocol):
    """The topic for bad records if ``errors.tolerance`` allows them."""

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        """Write the records with Connect's context headers; returns when they are durable."""

    async def close(self) -> None:
        """Close the connection."""


class Feeds(Protocol):
    """The Kafka side of a worker."""

    async def start(self, worker: str = "") -> None:
        """Start what all feeds share, on the worker's loop.

        ``worker`` is the ``host:port`` at which clients reach this process, empty if it is no worker. The feeds remove
        members from their groups that an earlier process at this address has left behind.
        """

    def beat(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` soon in the thread of the Kafka clients, unless that thread is blocked."""

    def check(self, connector: str, settings: KafkaSettings) -> None:
        """Raise ConfigError, naming the property, for client properties that no task of the connector could use."""

    def open(self, connector: str, task: int, settings: KafkaSettings, divide: Divide | None = None) -> Feed:
        """A feed for one task; it joins the connector's group when it is started. ``divide`` makes the values."""

    def agent(self, name: str, body: Callable[[Messages[_Message]], Awaitable[None]]) -> Agent[_Message]:
        """The agent of one table of a task (``ports.OpenAgent``)."""

    def compacted(self, connector: str, task: int, settings: KafkaSettings) -> Callable[[str], bool]:
        """Return whether Kafka may remove events of a topic before they are read, or whether that is unknown.

        Called in the tables' threads; may block. Raises ConfigError for client properties that no task could use.
        """

    async def dead_letter_queue(self, connector: str, task: int, settings: KafkaSettings) -> DeadLetterQueue | None:
        """The queue that the connector names, ready to write, or None."""

    async def close(self) -> None:
        """Stop what all feeds share; the feeds must have been stopped. Idempotent."""


@dataclass(frozen=True, slots=True)
class QueuedRecords:
    """Some records of a dead letter queue. ``skipped`` is how many offsets before the first ones are not read."""

    records: Sequence[Record]
    skipped: int = 0


class ReplayFeeds(Protocol):
    """What reads dead letter queues."""

    def dead_letters(
        self, connector: str, settings: KafkaSettings, newest: int | None = None
    ) -> AsyncGenerator[QueuedRecords, None]:
        """The records of the connector's dead letter topic up to its current end, some at a time.

        With ``newest`` only those of the last offsets of each partition, that many in all partitions together.
        """
