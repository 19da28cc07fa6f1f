"""The nouns of the core: change events in columns, and the actions they fold into.

On the path of every record the value is a batch in columns (pyarrow, numpy), not an object per record: ``Changes``
holds a run of events of one table in order of arrival, ``Actions`` holds one action per row key. Index ``i`` means the
same event (or action) in every array of one value. All of them are immutable by convention: nobody writes into an
array after the value has been built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.schema import Schema

NO_POSITION = b""
"""The source position of an event that has none (snapshot reads, tombstones on their own)."""

OWN_PREFIX = "__headrace_"
"""Columns of a lake table that are Headrace's own start with this; no source column may."""


class Operation(IntEnum):
    """What an event does to its row: Debezium's ``op``, and the tombstone that Kafka compaction understands."""

    CREATE = 1
    UPDATE = 2
    DELETE = 3
    READ = 4
    TRUNCATE = 5
    TOMBSTONE = 6


class CellState(IntEnum):
    """What is known about one cell (``reselect.md`` section 2.5).

    DOUBTFUL is an UNKNOWN for which the batch has a last resort: ``values`` holds it (null for a NULL). It is read
    again like an UNKNOWN; if that brings nothing, the last resort stands.

    In ``Actions`` that go to a writer only VALUE, NULL, UNCHANGED (keep what the stored row has) and CARRIED (take what
    the stored row of ``carry_from`` has) are left.
    """

    VALUE = 0
    NULL = 1
    UNCHANGED = 2
    UNKNOWN = 3
    ABSENT = 4
    CARRIED = 5
    DOUBTFUL = 6


@dataclass(frozen=True, slots=True)
class TableId:
    """A source table as Debezium's source block names it: ``name`` is the connector's logical name (topic prefix)."""

    name: str
    database: str
    schema: str
    table: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a batch. ``states`` is None when every cell is VALUE or NULL, as ``values`` validity tells.

    Otherwise it holds a CellState per row; ``values`` is null wherever the state is neither VALUE nor
    DOUBTFUL.
    """

    name: str
    schema: Schema
    values: pa.Array
    states: npt.NDArray[np.uint8] | None = None


@dataclass(frozen=True, slots=True)
class RowVersion:
    """Which change a row reflects: the source position (text that sorts, b"" for none) and the coordinate of its event.

    ``source_time`` is the source's commit time in microseconds since the epoch.
    """

    position: bytes
    topic: str
    partition: int
    offset: int
    source_time: int


@dataclass(frozen=True, slots=True)
class Versions:
    """A RowVersion per row, in columns; all rows come from one topic. ``position`` has a numpy bytes dtype."""

    topic: str
    position: npt.NDArray[np.bytes_]
    partition: npt.NDArray[np.int32]
    offset: npt.NDArray[np.int64]
    source_time: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offset)

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
class Changes:
    """Change events of one table in order of arrival.

    ``key`` is the canonical text of the row key (``core/model/keys.py``). ``transaction`` is the source's transaction
    id (Oracle: the commit SCN) or -1. ``old_key`` maps the index of the second half of a key change to the key the row
    had before; ``moved`` holds the indexes of first halves (deletes that carry the newkey header), ``new_key`` maps
    those with a readable header to the key that the row has afterwards. Key columns are filled in every row, deletes
    included. Truncates are not among them: a Truncate stands between two Changes. ``lost`` is for each event how many
    records of its partition had not been applied before it; None where there were none. ``displaced`` has the first
    halves (and their tombstones) whose row had lost its key to another row before, with the index of the event that
    took the key, or -1 (``core/merge/displaced.py``).
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

    def losses(self) -> npt.NDArray[np.int64]:
        """``lost`` in full."""
        return np.zeros(len(self), np.int64) if self.lost is None else self.lost

    def __len__(self) -> int:
        return len(self.operation)


@dataclass(frozen=True, slots=True)
class Barrier:
    """What happens to a whole table at ``version``: it stands alone between batches of rows."""

    table: TableId
    version: RowVersion


@dataclass(frozen=True, slots=True)
class Truncate(Barrier):
    """All rows of a table that ``version`` outranks are gone."""


@dataclass(frozen=True, slots=True)
class Actions:
    """What a batch does to a table: at most one action per row key.

    ``delete`` tells deletes from upserts. ``version`` is that of the last event; ``first_position`` and ``first`` are
    those of the oldest event whose cells the action still contains (for a delete: of the delete). An action applies to
    a stored row if

    - ``first_position`` is b"" or higher than the stored position (or none is stored), and
    - where ``by_arrival`` is set (that oldest event had no position): it arrived later than the stored row's event, the
      same topic and partition with a higher offset, or another partition with a later source time.

    ``fresh`` rows are new incarnations that must not keep stored cells; of a delete it says that the row was made
    within the same batch, so that there may be none to remove. ``carry_from`` is the index of the action whose stored
    row CARRIED cells come from, or -1; ``carried`` has the versions, by key, of such rows as they were read: one that
    has another version when it is merged is another row, and supplies nothing. ``transaction`` is that of the last
    event, -1 if unknown. ``hiding`` marks the deletes that stand for reads without a position as well: should the
    delete be stale, those may still apply. ``buried`` has, by key, the tombstones of deletes within the batch that the
    action's own version does not tell: of those on which a row without a position stands, and of those that outrank the
    last delete. ``read`` marks the rows whose last event is a snapshot's, also where events before it have given the
    row a position. ``stale`` are the keys that have no action, since none of their events applies.
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
