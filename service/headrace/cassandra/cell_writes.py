"""The rows of a Cassandra table from writes in any order: each cell has its own write time (``merge.md`` section 7).

Each replica sends a write once, in its own order, so the result must not depend on order or number: applying a write is
commutative, associative and idempotent, as in Cassandra's own replicas. Deletes stay in the state; ``visible`` omits
what they cover.

All times are microseconds since the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.model.versioned_writes import Key

NEVER = -(2**63)
"""Older than every write."""

SNAPSHOT_TIME = 0
"""The write time of snapshot rows: theirs is unknown, and the commit log contains their writes again."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One version of a cell. ``expires`` is the end of its TTL. A deleted cell has neither a value nor an expiry time.

    A cell with an expiry time but without a value has expired, and its value is no longer stored: it is not a deletion.
    ``comparison_bytes`` is the value in Cassandra's format: of two values with one write time, the larger wins.
    """

    written: int
    value: Any = None
    comparison_bytes: bytes = b""
    expires: int | None = None

    @property
    def rank(self) -> tuple[int, bool, bool, int, bytes]:
        """A sort key: the version with the larger rank wins, as in ``Cells.resolveRegular`` since CASSANDRA-14592.

        The later write wins. At one write time, a version that expires wins over one that does not, a deletion over a
        TTL, the later expiry, and then the larger value.
        """
        deleted = self.value is None and self.expires is None
        ends = deleted or self.expires is not None
        return self.written, ends, deleted, self.expires or 0, self.comparison_bytes

    def is_live(self, deleted: int, now: int) -> bool:
        """Return whether a read at ``now`` returns a value, if everything up to ``deleted`` was deleted."""
        return self.value is not None and self.written > deleted and (self.expires is None or self.expires > now)


MARKED = True
"""The value of a row's insert marker, which keeps a row without cells alive."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A bound of a range of rows: a prefix of the clustering columns. An empty prefix is the bound of the partition."""

    prefix: Key = ()
    inclusive: bool = True


@dataclass(frozen=True, slots=True)
class Range:
    """The rows between two bounds, in clustering order; ``descending`` is whether each column sorts descending."""

    start: Bound = Bound()
    end: Bound = Bound()
    descending: tuple[bool, ...] = ()

    def covers(self, clustering: Key) -> bool:
        """Return whether the range contains a row."""
        after, before = self._beside(clustering, self.start.prefix), self._beside(clustering, self.end.prefix)
        return (after > 0 or (after == 0 and self.start.inclusive)) and (
            before < 0 or (before == 0 and self.end.inclusive)
        )

    def _beside(self, clustering: Key, prefix: Key) -> int:
        """Return below 0 if the row is before ``prefix``, above 0 if it is after it, 0 if it begins with it."""
        for index, (value, bound) in enumerate(zip(clustering, prefix, strict=False)):
            if value != bound:
                descending = index < len(self.descending) and self.descending[index]
                return -1 if (value < bound) != descending else 1
        return 0


@dataclass(frozen=True, slots=True)
class CellWrites:
    """The writes of an INSERT or UPDATE to the row with primary key ``key``; only an INSERT has a ``marker``."""

    key: Key
    cells: Mapping[str, Cell] = field(default_factory=dict)
    marker: Cell | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete of the rows whose primary key begins with ``key`` and whose other columns are in ``range``.

    With a complete primary key it deletes a row, with the partition key a partition or a range of it. Events do not
    contain which columns are the partition key, and it is not needed here.
    """

    key: Key
    written: int
    range: Range = Range()


Write = CellWrites | Delete


@dataclass(slots=True)
class RowState:
    """The newest version of every cell of a row, and of its insert marker. Writes up to ``deleted`` are deleted."""

    cells: dict[str, Cell] = field(default_factory=dict)
    marker: Cell | None = None
    deleted: int = NEVER

    def visible(self, now: int) -> dict[str, Any] | None:
        """Return the cells with a value at ``now``; None if the row does not exist."""
        cells = {name: cell.value for name, cell in self.cells.items() if cell.is_live(self.deleted, now)}
        marked = self.marker is not None and self.marker.is_live(self.deleted, now)
        return cells if cells or marked else None


class CassandraTable:
    """The state of a table. It keeps all deletes, because a write that they cover may arrive at any time."""

    def __init__(self) -> None:
        self._rows: dict[Key, RowState] = {}
        self._deletes: dict[Key, dict[Range, int]] = {}

    def apply(self, write: Write) -> None:
        """Merge a write into the state."""
        if isinstance(write, Delete):
            ranges = self._deletes.setdefault(write.key, {})
            ranges[write.range] = max(write.written, ranges.get(write.range, NEVER))
            return
        row = self._rows.setdefault(write.key, RowState())
        if write.marker is not None:
            row.marker = max(row.marker or write.marker, write.marker, key=lambda version: version.rank)
        for name, cell in write.cells.items():
            row.cells[name] = max(cell, row.cells.get(name, cell), key=lambda version: version.rank)

    def rows(self) -> dict[Key, RowState]:
        """Return every row that was ever written, by primary key, with the newest delete that covers it."""
        return {key: replace(row, deleted=self._deletion_time(key)) for key, row in self._rows.items()}

    def visible(self, now: int) -> dict[Key, dict[str, Any]]:
        """Return the rows that a read of all replicas returns at ``now``, by primary key: their cells with a value."""
        return {key: cells for key, row in self.rows().items() if (cells := row.visible(now)) is not None}

    def _deletion_time(self, key: Key) -> int:
        """Return the time up to which all writes to the row are deleted."""
        covering = (
            written
            for length in range(1, len(key) + 1)
            for covered, written in self._deletes.get(key[:length], {}).items()
            if covered.covers(key[length:])
        )
        return max(covering, default=NEVER)


# -- values as Cassandra compares them --------------------------------------------------------------------------------

_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}


def comparison_bytes(schema_type: str, value: Any) -> bytes:
    """Return the bytes that Cassandra compares for two values of a Connect type with the same write time.

    Types that the connector converts (uuid and inet to text, decimal to double) are compared in the converted form: the
    winner of two of their values with one write time may differ from Cassandra's.
    """
    if schema_type in _WIDTHS:
        return int(value).to_bytes(_WIDTHS[schema_type], "big", signed=True)
    if schema_type == "boolean":
        return bytes([bool(value)])
    if schema_type in ("float", "double"):  # float(): in JSON, NaN is text
        return struct.pack(">f" if schema_type == "float" else ">d", float(value))
    return value if isinstance(value, bytes) else str(value).encode()
