"""The data of the core: change events in columns, and the actions that they are folded to.

A batch of records is stored in columns (pyarrow, numpy), without an object per record: ``Changes`` contains events of
one table in order of arrival, ``Actions`` contains one action per row key. Index ``i`` is the same event (or action) in
every array of one object. All of them are immutable: arrays are not written after the object has been built.

``outranks`` and ``succeed`` compare two changes of one key (``merge.md`` section 2). The fold applies the same rules to
complete columns, and the writers inside their MERGE; both are tested against this plain form, which ledgers and memory
tables use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.schema import Schema

NO_POSITION = b""
"""The source position of an event without one (snapshot reads, tombstones without a delete)."""

OWN_PREFIX = "__headrace_"
"""The prefix of Headrace's own columns of a lake table; source columns must not have it."""


class Operation(IntEnum):
    """The operation of an event: Debezium's ``op``, and the tombstone for Kafka's compaction."""

    CREATE = 1
    UPDATE = 2
    DELETE = 3
    READ = 4
    TRUNCATE = 5
    TOMBSTONE = 6


class CellState(IntEnum):
    """The state of one cell (``reselect.md`` section 2.5).

    DOUBTFUL is an UNKNOWN with a fallback in ``values`` (null for NULL). It is reselected like an UNKNOWN; without a
    result, the fallback is used.

    ``Actions`` for a writer have only VALUE, NULL, UNCHANGED (keep the cell of the stored row) and CARRIED (copy the
    cell of the stored row of ``carry_from``).
    """

    VALUE = 0
    NULL = 1
    UNCHANGED = 2
    UNKNOWN = 3
    ABSENT = 4
    CARRIED = 5
    DOUBTFUL = 6


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


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a batch. ``states`` is None if every cell is VALUE or NULL, by the validity of ``values``.

    Otherwise it contains a CellState per row; ``values`` is null where the state is neither VALUE nor DOUBTFUL.
    """

    name: str
    schema: Schema
    values: pa.Array
    states: npt.NDArray[np.uint8] | None = None


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
        return new.offset > old.offset
    return new.source_time > old.source_time


def outranks(new: RowVersion, old: RowVersion) -> bool:
    """Return whether ``new`` applies to a row with version ``old``: by position if it has one, else by arrival."""
    if new.position == NO_POSITION:
        return arrived_later(new, old)
    return new.position > old.position


def succeed(new: RowVersion, old: RowVersion | None) -> RowVersion:
    """Return the version of a row after ``new`` was applied to ``old``; a stored position never decreases."""
    if old is None:
        return new
    if not outranks(new, old):
        return old
    return replace(new, position=max(new.position, old.position))


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
        """Return the versions of rows of one topic."""
        return cls(
            topic,
            np.array([row.position for row in rows], np.bytes_),
            np.array([row.partition for row in rows], np.int32),
            np.array([row.offset for row in rows], np.int64),
            np.array([row.source_time for row in rows], np.int64),
        )

    def take(self, index: npt.NDArray[np.int64]) -> Versions:
        """The versions at ``index``, in that order."""
        return Versions(
            self.topic, self.position[index], self.partition[index], self.offset[index], self.source_time[index]
        )

    def row(self, index: int) -> RowVersion:
        """The version of one row."""
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

    def take(self, index: npt.NDArray[np.int64]) -> LogServers:
        """The servers at ``index``, in that order."""
        return LogServers(self.server.take(pa.array(index)), self.number[index])


@dataclass(frozen=True, slots=True)
class Changes:
    """Change events of one table in order of arrival.

    ``key`` is the canonical text of the row key (``core/model/keys.py``). ``transaction`` is the source's transaction
    id (Oracle: the commit SCN) or -1. ``old_key`` maps the index of the second half of a key change to the key that the
    row had before. ``moved`` contains the indexes of first halves (deletes with the newkey header); ``new_key`` maps
    those with a readable header to the key that the row has afterwards. Key columns are filled in every row, deletes
    included. Truncates are not included: a Truncate is between two Changes. ``lost`` is, for each event, the number of
    records of its partition before it that were not applied; None if all were. ``displaced`` contains the first halves
    (and their tombstones) whose row had lost its key to another row before, with the index of the event that took the
    key, or -1 (``core/merge/key_changes.py``). ``omits_generated`` is whether the source's streamed events lack
    generated columns (``core/model/absent_columns.py``). ``servers`` is None if no event contains its server.
    """

    table: TableId
    key_fields: tuple[str, ...]
    operation: npt.NDArray[np.uint8]
    key: pa.StringArray
    version: Versions
    transaction: npt.NDArray[np.int64]
    columns: tuple[Column, ...]
    old_key: Mapping[int, str] = field(default_factory=dict)
    moved: frozenset[int] = frozenset()
    new_key: Mapping[int, str] = field(default_factory=dict)
    lost: npt.NDArray[np.int64] | None = None
    displaced: Mapping[int, int] = field(default_factory=dict)
    omits_generated: bool = False
    servers: LogServers | None = None

    def losses(self) -> npt.NDArray[np.int64]:
        """``lost``, with zeros instead of None."""
        return np.zeros(len(self), np.int64) if self.lost is None else self.lost

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(frozen=True, slots=True)
class Barrier:
    """An event of a complete table at ``version``, which is applied between batches of rows."""

    table: TableId
    version: RowVersion


@dataclass(frozen=True, slots=True)
class Truncate(Barrier):
    """A delete of all rows of a table that ``version`` outranks; ``servers`` has one entry."""

    servers: LogServers | None = None


@dataclass(frozen=True, slots=True)
class Actions:
    """The actions of a batch on a table: at most one per row key.

    ``delete`` marks deletes; the others are upserts. ``version`` is that of the last event; ``first_position`` and
    ``first`` are those of the oldest event whose cells the action still contains (for a delete: of the delete). An
    action applies to a stored row if

    - ``first_position`` is b"" or higher than the stored position (or none is stored), and
    - where ``by_arrival`` is set (that oldest event had no position): it arrived later than the stored row's event, in
      the same topic and partition with a higher offset, or in another partition with a later source time.

    ``fresh`` rows are new incarnations that must not keep stored cells. A ``fresh`` delete is of a row that was created
    in the same batch, so that there may be no stored row. ``carry_from`` is the index of the action whose stored row
    CARRIED cells are copied from, or -1. ``carried`` contains, by key, the versions of these rows when they were read:
    a row with another version at the merge is another row, and its cells are not copied. ``transaction`` is that of the
    last event, -1 if unknown. ``hiding`` marks deletes that replace reads without a position: if the delete is stale,
    these may still apply. ``buried`` contains, by key, the tombstones of deletes within the batch that the action's own
    version does not include: of deletes before a row without a position, and of deletes that outrank the last delete.
    ``read`` marks rows whose last event is of a snapshot, even if earlier events gave the row a position. ``stale`` are
    the keys without an action, because none of their events applies.
    """

    table: TableId
    key_fields: tuple[str, ...]
    key: pa.StringArray
    delete: npt.NDArray[np.bool_]
    fresh: npt.NDArray[np.bool_]
    version: Versions
    first_position: npt.NDArray[np.bytes_]
    first: Versions
    by_arrival: npt.NDArray[np.bool_]
    carry_from: npt.NDArray[np.int64]
    transaction: npt.NDArray[np.int64]
    columns: tuple[Column, ...]
    hiding: npt.NDArray[np.bool_] | None = None
    buried: Mapping[str, RowVersion] = field(default_factory=dict)
    carried: Mapping[str, RowVersion] = field(default_factory=dict)
    read: npt.NDArray[np.bool_] | None = None
    stale: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.delete)
