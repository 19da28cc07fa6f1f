"""The ports: everything that Headrace asks of the outside world, in one file.

Each port has a real version and a memory version (``headrace_connectors/memory.py``), and one suite in
``tests/contracts`` that both pass. An implementer may raise ``Retriable`` (call again with the same arguments) or
``Fatal``; vendor errors never get through.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from headrace.config.kafka import KafkaSettings
from headrace.config.sink_options import TableSettings
from headrace.core.connect.work import Assignment, Task
from headrace.core.decode.envelope_events import KafkaRecord
from headrace.core.decode.json_types import Document
from headrace.core.merge.history import History
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Stage
from headrace.core.model.events import Actions, RowVersion, TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.cache.rows import CacheLimits, RowStore
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.core.tables.table_layout import TableLayout


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


class OffsetNote(NamedTuple):
    """What a group has committed for a partition: the next offset, and the note that was committed with it."""

    offset: int
    note: str


class Record(KafkaRecord, Protocol):
    """One Kafka record as a consumer returns it.

    ``value`` is what a feed's ``divide`` made of the record's bytes; ``core.converter.whole`` gives them back.
    """

    @property
    def topic(self) -> str:
        """The topic that the record stands in."""

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
    many more offsets of the partition could be fetched when this chunk was, as far as the feed knew. ``gone`` tells
    that records between ``begin`` and the first of ``records`` may have left the topic before they were read.
    """

    epoch: int
    sequence: int
    partition: TopicPartition
    records: Sequence[Record]
    begin: int
    end: int
    behind: int = 0
    gone: bool = False


Divide = Callable[[bytes | None], Document | bytes | None]
"""Makes a record's value of its bytes while these are at hand (``core.converter.JsonConverter.divide``)."""


class FeedListener(Protocol):
    """Who takes what a feed brings. All calls come on the worker's event loop, one at a time."""

    async def put(self, chunk: Chunk) -> None:
        """Take a chunk. Returning late is the back-pressure: the feed stops fetching meanwhile."""

    async def assigned(self, epoch: int, partitions: Collection[TopicPartition]) -> None:
        """A new assignment begins; chunks of older epochs will not come any more."""

    async def revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Finish and commit what is in flight of ``partitions``, then forget the rest; within the feed's timeout."""

    def failed(self, error: BaseException) -> None:
        """The feed cannot go on."""


class Agent(Protocol):
    """Runs what one table of a task has to do, one call at a time, whenever it is woken."""

    async def start(self) -> None:
        """Begin."""

    def wake(self) -> None:
        """Call the body soon; once more if it runs already. Several calls before that count as one."""

    async def stop(self) -> None:
        """Cancel the call under way and make no other. Idempotent."""


OpenAgent = Callable[[str, Callable[[], Awaitable[None]]], Agent]
"""Makes an agent with a name and a body that never raises. It is not started yet."""


class Feed(Protocol):
    """The Kafka side of one sink task: a consumer group member."""

    async def start(self, listener: FeedListener) -> None:
        """Join the group and begin to fetch. Raises ConfigError or Retriable with the cause (wrong password, port…)."""

    async def stop(self) -> None:
        """Leave the group. Idempotent; nothing is put afterwards."""

    def pause(self) -> None:
        """Stop fetching but stay in the group; what was fetched already is still put."""

    def resume(self) -> None:
        """Fetch again."""

    def throttle(self, topics: Collection[str]) -> None:
        """Do not fetch from these topics until called again without them: their tables' queues are full."""

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit next offsets of the group. Raises Fenced when a partition belongs to somebody else.

        Each carries the newest note of its partition: that of ``note``, or else the one that the assignment began with.
        """

    def committed(self) -> Mapping[TopicPartition, OffsetNote]:
        """What the group had committed for the assigned partitions when the assignment began, 0 and "" for nothing.

        An offset that was set from outside of the group has no note.
        """

    def note(self, notes: Mapping[TopicPartition, str]) -> None:
        """Give the commits of these partitions' offsets another note, until the assignment ends."""

    def lag(self) -> Mapping[TopicPartition, int]:
        """Records between the committed offset and the end of each assigned partition, as last seen.

        Where nothing that was read is uncommitted, the fetch position counts instead: it passes what is no record.
        """


@dataclass(frozen=True, slots=True)
class ErrantRecord:
    """A record that could not be used, and why (for log and dead letter queue)."""

    record: Record
    stage: Stage
    class_name: str
    error: BaseException


class DeadLetterQueue(Protocol):
    """Where bad records go when ``errors.tolerance`` allows it."""

    async def report(self, errant: Sequence[ErrantRecord]) -> None:
        """Write the records with Connect's context headers; returns when they are durable."""

    async def close(self) -> None:
        """Let go of the connection."""


@dataclass(frozen=True, slots=True)
class Commit:
    """What a table commit says about itself, stored with it (``merge.md`` section 9).

    ``offsets`` are next offsets by topic and partition; ``watermark`` is the source time (microseconds) up to which all
    partitions are in, -1 if unknown. Without a ``group`` the commit is no batch of a topic (a repair): it says nothing
    of offsets itself. Whatever is stored carries on the offsets of the commit before it, see ``LakeTable.reached``.
    """

    batch_id: int
    connector: str
    group: str = ""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    watermark: int = -1


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge did: rows updated or inserted, and rows deleted."""

    upserted: int
    deleted: int


class LakeTable(Protocol):
    """One lakehouse table, and the ledger of its tombstones. One thread at a time calls it.

    A table or a ledger that cannot be read is never an empty one. A table that this handle has seen and that is gone
    raises TableMissing from every call, unless ``TableOptions.recreate``; storage or a catalog that does not answer
    raises Retriable.
    """

    def schema(self) -> pa.Schema | None:
        """The data columns (without ``__headrace_``), or None while the table does not exist."""

    def key_fields(self) -> tuple[str, ...]:
        """The columns of the row key, in the order of the table's canonical keys.

        Empty while the table does not exist, and where it was made by other means.
        """

    def evolve(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        """Create the table, or add and widen columns so that ``schema`` fits. Raises Fatal when it cannot be done."""

    def ledger(self) -> Mapping[str, RowVersion]:
        """The tombstones by canonical key; the floor of the last truncate stands under the empty key ``""``.

        Every table has a ledger: where the table exists and its ledger does not, this raises TableMissing, or begins
        an empty ledger with ``TableOptions.recreate``. Without a table the ledger holds what was recorded before the
        table's first batch; the ledger of a table that was dropped does not count for the next table of that name.
        """

    def ledger_moved(self) -> bool:
        """Whether somebody else may have added to the ledger since this handle has read it. Cheap."""

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add to the ledger, durably, before the deletes themselves. ``now`` in microseconds, for the retention.

        Before the table exists as well: the table that ``evolve`` creates later gets this ledger.
        """

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions that rank above the stored rows (``Actions`` says when), in one visible step per commit.

        An upsert that has no stored row is inserted only if it keeps no stored cell. Counts what was applied. A
        CARRIED cell is taken from the stored row of ``carry_from`` as it was before this merge, in the same commit;
        where that row does not stand, or not in the version that ``carried`` tells, the action does not apply.
        Without an action nothing is committed.
        """

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove every row that ``floor`` outranks."""

    def fill(self, column: str, value: pa.Scalar, before: RowVersion, commit: Commit) -> None:
        """Give rows that are older than ``before`` a value where they have a null; their versions stay as they are.

        Older by position, by source time where a row has none. A row that nothing of ours wrote stays as it is.
        """

    def append(self, rows: History, commit: Commit) -> None:
        """Add the rows to a history, in one commit; events whose coordinate stands there already are left out."""

    def reached(self, group: str) -> Mapping[TopicPartition, int] | None:
        """The next offsets up to which the commits of the table have a consumer group's records, as they are now.

        None where there is no table, or no commit that says so any more. Every commit, of upkeep and repairs as well,
        carries on what the commit before it said, the highest offset of each partition, so that the newest commit
        alone tells all; what a rollback or RESTORE has undone does not count. Cheap while nobody else commits.
        """

    def offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The same, and where no commit says so what the rows themselves tell (a history's are what is in it)."""

    def stored(self, actions: Actions) -> Mapping[str, RowVersion]:
        """The versions of the rows that stand under the actions' keys, by canonical key."""

    def topics(self) -> Collection[str]:
        """The topics that the rows come from, apart from rows that were written by other means."""

    def scan(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of every row, in pieces that fit memory and in any order; nothing without a table."""

    def read(self, keys: pa.Table) -> pa.Table:
        """The rows under ``keys`` (the key columns, in the table's types): all data columns and Headrace's own.

        A key that several rows have brings all of them. Empty without a table.
        """

    def maintain(self, now: int, tombstone_retention: int) -> None:
        """Compact, expire snapshots and old tombstones if it is due; cheap when nothing is. Times in microseconds."""


_TABLES = TableSettings()


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a connector says about its tables; ``properties`` are the format's own.

    Layout and properties are those of new tables. ``adopt`` lets a table be taken over that somebody else has made.
    ``history`` tables get every event appended and are never merged into. With ``soft_delete`` deleted rows stay and
    are marked; to everything that a ``LakeTable`` is asked they do not stand. ``recreate`` lets a table that is gone be
    created again, and a missing ledger begin empty.
    """

    format: str = _TABLES.format
    format_version: int = _TABLES.format_version
    properties: Mapping[str, str] = field(default_factory=dict)
    layout: TableLayout = field(default_factory=TableLayout)
    adopt: bool = _TABLES.adopt
    history: bool = _TABLES.history
    soft_delete: bool = _TABLES.soft_delete
    recreate: bool = _TABLES.recreate


class Lakehouse(Protocol):
    """The shared session. Safe to call from several threads; each table has a session of its own."""

    def table(self, namespace: str, name: str, options: TableOptions) -> LakeTable:
        """Open a table by name; nothing is created before ``evolve``."""

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause when the warehouse cannot be written."""

    def memory(self) -> int:
        """Bytes that the session's engine takes on this machine, outside of Python."""

    def close(self) -> None:
        """Stop the session. Idempotent."""


@dataclass(frozen=True, slots=True)
class Connections:
    """Connections to source databases, and how many servers are left alone for a while because they did not answer."""

    idle: int = 0
    used: int = 0
    left_alone: int = 0

    def __add__(self, other: Connections) -> Connections:
        return Connections(self.idle + other.idle, self.used + other.used, self.left_alone + other.left_alone)


class RowSource(Protocol):
    """The source database, as far as rows are read again. Safe to call from several threads.

    Every call may raise Retriable (connection lost, time-out, the event's transaction not visible yet) or Fatal (the
    server refused: no grant, no such column); ConfigError when the settings or the server cannot be right.
    """

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause when the database cannot be used (wrong password, TLS…)."""

    def catalog(self, table: TableId) -> CatalogTable | None:
        """What the database says about a table; None if there is no such table."""

    def schema(self, catalog: CatalogTable) -> Schema:
        """The ``after`` schema that Debezium sends for the table, for events that come without one."""

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        """Read the cells that ``request`` needs, in one statement and one snapshot, as Connect values."""

    def connections(self) -> Connections:
        """The connections that are open now. Never raises and asks no server."""

    def close(self) -> None:
        """Let go of all connections. Idempotent."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """How far the log of a source is, as parts of a source position (``core/model/positions.py``) of ``connector``.

    Whatever any reader saw before ``end`` was asked for lies below it. ``published`` is up to where the source
    connector has said that its events are in Kafka; None where that cannot be known.
    """

    connector: str
    end: tuple[Any, ...]
    published: tuple[Any, ...] | None = None


@runtime_checkable
class TableSource(RowSource, Protocol):
    """A row source that can also read tables whole, for `headrace verify`."""

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        """Every row of a table, all of one snapshot: pieces that fit memory, Connect values (or UNREADABLE) by column.

        Raises as ``fetch`` does, also between pieces.
        """

    def log_position(self) -> LogPosition:
        """How far the log is now."""


@dataclass(frozen=True, slots=True)
class RowStoreOptions:
    """What a store of the reselect cache's rows is opened with: its bounds, whose it is, and its type's own options.

    ``properties`` are the connector's ``reselect.cache.<type>.*`` without that prefix.
    """

    limits: CacheLimits
    connector: str
    task: int
    properties: Mapping[str, str] = field(default_factory=dict)


OpenRowStore = Callable[[RowStoreOptions], RowStore]
"""What an entry point of ``headrace.reselect_caches`` names; ``core.cache_rows.RowStore`` is the port."""


LogRecord = tuple[str, bytes | None]
"""Key and value of a record of a compacted log; no value removes the key."""


class CompactedLog(Protocol):
    """A keyed log of which the last value of every key counts: a compacted Kafka topic (``KafkaBasedLog``)."""

    async def start(self, applied: Callable[[str, bytes | None], None]) -> None:
        """Read the log to its end through ``applied``, then go on as records come, from whomever they come.

        Raises ConfigError or Retriable when the log cannot be reached or made.
        """

    async def append(self, records: Sequence[LogRecord]) -> None:
        """Write the records in order, all or none; when this returns ``applied`` has had them. Raises Retriable."""

    def position(self) -> int:
        """How far the log has been read. Comparable between readers of a log with one partition."""

    async def close(self) -> None:
        """Let go of the connections. Idempotent."""


class FencedLog(CompactedLog, Protocol):
    """A log that one worker of a group writes, and all read."""

    async def lead(self) -> None:
        """Shut out whoever led before: its later writes raise Fenced, and none of its earlier ones comes late.

        Who loses the lead by this to another has to ask again. Raises Retriable.
        """

    async def refresh(self) -> None:
        """Wait until everything that is in the log now has been applied. Raises Retriable."""


class WorkerMember(Protocol):
    """A worker in the group of all workers (Kafka Connect's ``WorkerGroupMember``)."""

    async def start(self, assigned: Callable[[Assignment], None]) -> None:
        """Join, and stay until ``stop``. ``assigned`` is called on the worker's event loop, now and at each change.

        Raises ConfigError, Retriable or Fatal when the group cannot be joined.
        """

    def offer(self, tasks: Collection[Task], offset: int) -> None:
        """What there is to do as of ``offset`` of the config topic, should this member be asked to share it out."""

    def rebalance(self) -> None:
        """Have it shared out anew."""

    async def confirm(self) -> None:
        """Raises Fenced unless the newest assignment of this member stood when it was called, and Retriable."""

    async def stop(self) -> None:
        """Leave the group. Idempotent."""


class GroupOffsets(Protocol):
    """The committed offsets of consumer groups, seen and changed from outside of the group.

    Every call raises Retriable when the brokers do not answer. A change raises Fenced while the group has members, and
    Fatal for a partition that does not exist.
    """

    async def committed(self, group: str) -> Mapping[TopicPartition, int]:
        """The next offset of every partition that the group has committed; empty for an unknown group."""

    async def alter(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Set the next offsets, which may lie beyond a partition's end; None removes one. Others stay as they are."""

    async def reset(self, group: str) -> None:
        """Remove all offsets of the group. Idempotent."""


class TopicOffsets(Protocol):
    """How far topics are, seen from outside of any group."""

    async def ends(self, pattern: str) -> Mapping[TopicPartition, int]:
        """The next offset of every partition of the topics whose whole name matches the regular expression.

        Raises Retriable when the brokers do not answer.
        """


class Stores(Protocol):
    """Where a worker keeps what must survive it: configurations with target states, and statuses."""

    configs: FencedLog
    statuses: CompactedLog

    async def start(self) -> None:
        """Connect. The logs are started by who reads them. Raises ConfigError or Retriable."""

    def member(self, worker: str) -> WorkerMember:
        """The membership of the worker that is reached as ``worker`` (``host:port``)."""

    def group_offsets(self, connector: str, settings: KafkaSettings) -> GroupOffsets:
        """The consumer groups of the cluster that the connector reads. Raises ConfigError for its client properties."""

    def topic_offsets(self, connector: str, settings: KafkaSettings) -> TopicOffsets:
        """The topics of that cluster. Raises ConfigError likewise."""

    async def cluster_id(self) -> str | None:
        """The Kafka cluster's id, None where there is none."""

    async def close(self) -> None:
        """Close everything. Idempotent."""
