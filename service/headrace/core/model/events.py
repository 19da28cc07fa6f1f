"""The data of the core, from one record to the columns of a batch: change events, and the versions that order them.

A batch of records is stored in columns (pyarrow, numpy), without an object per record: ``Changes`` contains events of
one table in order of arrival, ``Actions`` (``core/model/actions.py``) one action per row key. Index ``i`` is the same
event (or action) in every array of one object. All of them are immutable: arrays are not written after the object has
been built.

``outranks`` and ``succeed`` compare two changes of one key (``merge.md`` section 2). The fold applies the same rules to
complete columns, and the writers inside their MERGE; both are tested against this plain form, which ledgers and memory
tables use.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.schema import Schema

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

OWN_PREFIX = "__headrace_"
"""The prefix of Headrace's own columns of a lake table; source columns must not have it."""


# -- one record --------------------------------------------------------------------------------------------------------


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class TableId:
    """A source table, with the names of Debezium's source block; ``name`` is the connector's logical name."""

    name: str
    database: str
    schema: str
    table: str


class Operation(IntEnum):
    """The operation of an event: Debezium's ``op``, and the tombstone for Kafka's compaction."""

    CREATE = 1
    UPDATE = 2
    DELETE = 3
    READ = 4
    TRUNCATE = 5
    TOMBSTONE = 6


NO_POSITION = b""
"""The source position of an event without one (snapshot reads, tombstones without a delete)."""


@dataclass(frozen=True, slots=True)
class RowVersion:
    """The version of a row: source position (text that sorts, b"" for none) and coordinate of the newest change.

    ``source_time`` is the source's commit time in microseconds since the epoch.
    """

    position: bytes
    topic: str
    partition: int
    offset: int
    source_time: int


UNVERSIONED = RowVersion(NO_POSITION, "", -1, -1, -(2**63))
"""The version of a row that Headrace has not written: every change outranks it."""


def arrived_later(new: RowVersion, old: RowVersion) -> bool:
    """Return whether ``new`` came after ``old``: by offset within a partition, by source time across partitions."""
    if (new.topic, new.partition) == (old.topic, old.partition):
        return new.offset > old.offset  # proven: later-offset
    return new.source_time > old.source_time


def outranks(new: RowVersion, old: RowVersion) -> bool:
    """Return whether ``new`` applies to a row with version ``old``: by position if it has one, else by arrival."""
    if new.position == NO_POSITION:
        return arrived_later(new, old)
    return new.position > old.position  # proven: equal-position


def succeed(new: RowVersion, old: RowVersion | None) -> RowVersion:
    """Return the version of a row after ``new`` was applied to ``old``; a stored position never decreases."""
    if old is None:
        return new
    if not outranks(new, old):
        return old
    return replace(new, position=max(new.position, old.position))  # proven: highest-position


# -- many records, in columns ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Versions:
    """A RowVersion per row, in columns; all rows are of one topic. ``position`` has a numpy bytes dtype."""

    topic: str
    position: npt.NDArray[np.bytes_]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    source_time: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offset)

    @classmethod
    def of(cls, topic: str, rows: Sequence[RowVersion]) -> Versions:
        return cls(
            topic,
            np.array([row.position for row in rows], np.bytes_),
            np.array([row.partition for row in rows], np.int32),
            np.array([row.offset for row in rows], np.int64),
            np.array([row.source_time for row in rows], np.int64),
        )

    @classmethod
    def concatenate(cls, parts: Sequence[Versions]) -> Versions:
        return cls(
            parts[0].topic,
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.partition for part in parts]),
            np.concatenate([part.offset for part in parts]),
            np.concatenate([part.source_time for part in parts]),
        )

    def take(self, index: Ints | slice) -> Versions:
        """Return the versions at ``index``, in that order. A slice does not copy them."""
        return Versions(
            self.topic, self.position[index], self.partition[index], self.offset[index], self.source_time[index]
        )

    def row(self, index: int) -> RowVersion:
        return RowVersion(
            bytes(self.position[index]),
            self.topic,
            int(self.partition[index]),
            int(self.offset[index]),
            int(self.source_time[index]),
        )


@dataclass(frozen=True, slots=True)
class LogServers:
    """The server that committed each change, and the number of its transaction there (MySQL, MariaDB), in columns.

    ``server`` is the ``server_id`` and, with GTIDs, their source (MySQL: the UUID and tag; MariaDB: domain and server),
    separated by a blank; "" for an event without them. ``number`` is text that increases with each transaction of a
    server: the number of the GTID, or without GTIDs the position in the server's log without the epoch.
    """

    server: pa.StringArray
    number: npt.NDArray[np.bytes_]

    def take(self, index: Ints) -> LogServers:
        return LogServers(self.server.take(pa.array(index)), self.number[index])

    def slice(self, part: slice) -> LogServers:
        return LogServers(self.server[part], self.number[part])


class CellState(IntEnum):
    """The state of one cell (``reselect.md`` section 2.5).

    DOUBTFUL is an UNKNOWN with a fallback in ``values`` (null for NULL). It is reselected like an UNKNOWN; without a
    result, the fallback is used.

    ``Actions`` for a writer have only VALUE, NULL, UNCHANGED (keep the cell of the stored row) and CARRIED (copy the
    cell of the row that is stored under the old key).
    """

    VALUE = 0
    NULL = 1
    UNCHANGED = 2
    UNKNOWN = 3
    ABSENT = 4
    CARRIED = 5
    DOUBTFUL = 6


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a batch. ``states`` is None if every cell is VALUE or NULL, by the validity of ``values``.

    Otherwise it contains a CellState per row; ``values`` is null where the state is neither VALUE nor DOUBTFUL.
    """

    name: str
    schema: Schema
    values: pa.Array
    states: npt.NDArray[np.uint8] | None = None

    def take(self, index: Ints) -> Column:
        states = None if self.states is None else self.states[index]
        return Column(self.name, self.schema, self.values.take(pa.array(index)), states)

    def slice(self, part: slice) -> Column:
        return Column(self.name, self.schema, self.values[part], None if self.states is None else self.states[part])


@dataclass(frozen=True, slots=True)
class KeyChanges:
    """The halves of key changes among events, by the index of their event.

    ``UPDATE t SET id = 2 WHERE id = 1`` sends d(1) tombstone(1) c(2): events 0 and 1 are first halves, 2 is the second.

    Debezium sends a key change as a delete of the old key with the header ``__debezium.newkey`` (the first half), its
    tombstone, and an insert of the new key with the header ``__debezium.oldkey`` (the second half). ``old_keys`` maps
    second halves to the key that the row had before. ``first_halves`` contains the deletes, and tombstones with the
    header; ``new_keys`` maps those with a readable header to the key that the row has afterwards.

    ``displaced`` contains the first halves (and their tombstones) whose row had lost its key to another row before,
    with the index of the event that took the key, or -1 (``core/merge/key_changes.py``).
    """

    old_keys: Mapping[int, str] = field(default_factory=dict)
    first_halves: frozenset[int] = frozenset()
    new_keys: Mapping[int, str] = field(default_factory=dict)
    displaced: Mapping[int, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.old_keys or self.first_halves)

    @property
    def halves(self) -> set[int]:
        """The indexes of all halves, and of tombstones with the header of a first half."""
        return {*self.old_keys, *self.first_halves}

    @classmethod
    def concatenate(cls, parts: Iterable[tuple[int, KeyChanges]]) -> KeyChanges:
        """Return the key changes of several parts, each with the index of its first event."""
        moved = [part.moved_by(begin) for begin, part in parts if part]
        return cls(
            {index: key for part in moved for index, key in part.old_keys.items()},
            frozenset(index for part in moved for index in part.first_halves),
            {index: key for part in moved for index, key in part.new_keys.items()},
            {index: other for part in moved for index, other in part.displaced.items()},
        )

    def moved_by(self, distance: int) -> KeyChanges:
        return self._renumber(lambda index: index + distance)

    def take(self, index: Ints) -> KeyChanges:
        """Return the key changes of the events at ``index``, in that order."""
        if not self:
            return self
        new_index = {old: new for new, old in enumerate(index.tolist())}
        return self._renumber(lambda old: new_index.get(old, -1))

    def slice(self, begin: int, end: int) -> KeyChanges:
        return self._renumber(lambda index: index - begin if index < end else -1) if self else self

    def with_keys(self, change: Callable[[str], str]) -> KeyChanges:
        """Return the key changes with other texts of keys."""
        return replace(
            self,
            old_keys={index: change(key) for index, key in self.old_keys.items()},
            new_keys={index: change(key) for index, key in self.new_keys.items()},
        )

    def _renumber(self, new_index: Callable[[int], int]) -> KeyChanges:
        """Return the key changes of the events whose new index is not negative."""
        return KeyChanges(
            {new: key for old, key in self.old_keys.items() if (new := new_index(old)) >= 0},
            frozenset(new for old in self.first_halves if (new := new_index(old)) >= 0),
            {new: key for old, key in self.new_keys.items() if (new := new_index(old)) >= 0},
            {
                new: max(new_index(taker), -1) if taker >= 0 else -1
                for old, taker in self.displaced.items()
                if (new := new_index(old)) >= 0
            },
        )


NO_KEY_CHANGES = KeyChanges()


# -- what a chunk contains for a table ---------------------------------------------------------------------------------


class Content(ABC):
    """What a chunk contains for one table, and what a batch is made of. Its length is the number of its events."""

    __slots__ = ()

    is_barrier: ClassVar[bool] = False
    """Whether it concerns the complete table, so that it has a batch of its own."""
    table: TableId
    version: Versions | RowVersion

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def size(self) -> int:
        """The approximate bytes in memory."""

    @property
    @abstractmethod
    def newest_source_time(self) -> int:
        """The newest commit time at the source, in microseconds since the epoch; 0 if it is unknown."""

    def source_times(self) -> Iterator[tuple[TopicPartition, int]]:
        """Return the partitions whose changes arrive in the order of their source times, with the newest time."""
        return iter(())


_TIMED = (Operation.CREATE, Operation.UPDATE, Operation.DELETE)
"""A snapshot's read and a tombstone have the time of the read or of sending: older changes follow them."""


@dataclass(frozen=True, slots=True)
class Changes(Content):
    """Change events of one table in order of arrival.

    ``key`` is the canonical text of the row key (``core/model/keys.py``). ``transaction`` is the source's transaction
    id (Oracle: the commit SCN) or -1. Key columns are filled in every row, deletes included. Truncates are not
    included: a Truncate is between two Changes. ``lost`` is, for each event, the number of records of its partition
    before it that were not applied; None if all were. ``omits_generated`` is whether the source's streamed events lack
    generated columns (``core/model/absent_columns.py``). ``servers`` is None if no event contains its server.
    """

    table: TableId
    key_fields: tuple[str, ...]
    operation: npt.NDArray[np.uint8]
    key: pa.StringArray
    version: Versions
    transaction: npt.NDArray[np.int64]
    columns: tuple[Column, ...]
    key_changes: KeyChanges = NO_KEY_CHANGES
    lost: npt.NDArray[np.int64] | None = None
    omits_generated: bool = False
    servers: LogServers | None = None
    _size: int = field(default=-1, init=False, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.operation)

    @property
    def size(self) -> int:
        # Determined once: PyArrow releases Python's lock for each column, and gets it back late if others work.
        if self._size < 0:
            size = sum(column.values.nbytes for column in self.columns) + 64 * len(self)
            object.__setattr__(self, "_size", int(size))
        return self._size

    @property
    def newest_source_time(self) -> int:
        return int(self.version.source_time.max(initial=0))

    def source_times(self) -> Iterator[tuple[TopicPartition, int]]:
        version, timed = self.version, np.isin(self.operation, _TIMED)
        for partition in np.flatnonzero(np.bincount(version.partition[timed])).tolist():
            times = version.source_time[timed & (version.partition == partition)]
            yield TopicPartition(version.topic, partition), int(times.max())

    def losses(self) -> npt.NDArray[np.int64]:
        """``lost``, with zeros instead of None."""
        return np.zeros(len(self), np.int64) if self.lost is None else self.lost

    def take(self, index: Ints) -> Changes:
        """Return the events at ``index``, in that order."""
        return replace(
            self,
            operation=self.operation[index],
            key=self.key.take(pa.array(index)),
            version=self.version.take(index),
            transaction=self.transaction[index],
            columns=tuple(column.take(index) for column in self.columns),
            key_changes=self.key_changes.take(index),
            lost=None if self.lost is None else self.lost[index],
            servers=None if self.servers is None else self.servers.take(index),
        )

    def slice(self, begin: int, end: int) -> Changes:
        """Return the events from ``begin`` up to ``end``. Their cells are not copied."""
        part = slice(begin, end)
        return replace(
            self,
            operation=self.operation[part],
            key=self.key[part],
            version=self.version.take(part),
            transaction=self.transaction[part],
            columns=tuple(column.slice(part) for column in self.columns),
            key_changes=self.key_changes.slice(begin, end),
            lost=None if self.lost is None else self.lost[part],
            servers=None if self.servers is None else self.servers.slice(part),
        )


@dataclass(frozen=True, slots=True)
class Barrier(Content):
    """An event of a complete table at ``version``, which is applied between batches of rows."""

    is_barrier: ClassVar[bool] = True

    table: TableId
    version: RowVersion

    def __len__(self) -> int:
        return 1

    @property
    def size(self) -> int:
        return 0

    @property
    def newest_source_time(self) -> int:
        return self.version.source_time


@dataclass(frozen=True, slots=True)
class Truncate(Barrier):
    """A delete of all rows of a table that ``version`` outranks; ``servers`` has one entry."""

    servers: LogServers | None = None

    def source_times(self) -> Iterator[tuple[TopicPartition, int]]:
        yield TopicPartition(self.version.topic, self.version.partition), self.version.source_time
