"""Rows of a Cassandra table from writes in any order: every cell has a write time of its own (``merge.md`` section 7).

Replicas send a write once each, in no common order, so nothing here depends on order or number: a state is the join of
what it was made of. Applying is commutative, associative and idempotent, which is how Cassandra's own replicas agree.
Deleted things stay in the state as what deleted them; ``visible`` leaves them out.

All times are microseconds since the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

NEVER = -(2**63)
"""Older than every write."""

SNAPSHOT_TIME = 0
"""The write time of snapshot rows: theirs is not known, and their true writes come again from the commit log."""

Key = tuple[Any, ...]
"""Values of the partition key's or the clustering columns, in their order."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One version of a cell. ``expires`` is the end of its TTL. A deleted cell has neither a value nor an end.

    A cell with an end but without a value has ended, and its value is no longer known: it is still not a deletion.
    ``octets`` is the value in Cassandra's own bytes: of two values that were written at the same time the larger wins.
    """

    written: int
    value: Any = None
    octets: bytes = b""
    expires: int | None = None

    @property
    def rank(self) -> tuple[int, bool, bool, int, bytes]:
        """Which of two versions wins, as ``Cells.resolveRegular`` has it since CASSANDRA-14592.

        The later write; at one time what ends before what does not, a deletion before a TTL, the later end, and then
        the larger value.
        """
        deleted = self.value is None and self.expires is None
        ends = deleted or self.expires is not None
        return self.written, ends, deleted, self.expires or 0, self.octets

    def stands(self, deleted: int, now: int) -> bool:
        """Whether a reader at ``now`` sees a value, where everything up to ``deleted`` was deleted."""
        return self.value is not None and self.written > deleted and (self.expires is None or self.expires > now)


MARKED = True
"""The value of a row's insert marker, which keeps a row alive that has no cells."""


@dataclass(frozen=True, slots=True)
class Bound:
    """An end of a range of rows: a prefix of the clustering columns. An empty one is the partition's own end."""

    prefix: Key = ()
    inclusive: bool = True


@dataclass(frozen=True, slots=True)
class Range:
    """The rows between two bounds, in clustering order; ``descending`` tells which columns are turned round."""

    start: Bound = Bound()
    end: Bound = Bound()
    descending: tuple[bool, ...] = ()

    def covers(self, clustering: Key) -> bool:
        """Whether a row lies within."""
        after, before = self._beside(clustering, self.start.prefix), self._beside(clustering, self.end.prefix)
        return (after > 0 or (after == 0 and self.start.inclusive)) and (
            before < 0 or (before == 0 and self.end.inclusive)
        )

    def _beside(self, clustering: Key, prefix: Key) -> int:
        """Below 0 if the row stands before ``prefix``, above 0 behind it, 0 if it begins with it."""
        for place, (own, other) in enumerate(zip(clustering, prefix, strict=False)):
            if own != other:
                turned = place < len(self.descending) and self.descending[place]
                return -1 if (own < other) != turned else 1
        return 0


@dataclass(frozen=True, slots=True)
class CellWrites:
    """What an INSERT or UPDATE does to the row of primary key ``key``; ``marker`` is that of an INSERT."""

    key: Key
    cells: Mapping[str, Cell] = field(default_factory=dict)
    marker: Cell | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    """Of the rows whose primary key begins with ``key``, those whose other columns ``range`` covers are gone.

    With the whole key it is a row that is deleted, with the partition key a partition or a range of it. Events do not
    say which columns are the partition key, and nothing here needs to know.
    """

    key: Key
    written: int
    range: Range = Range()


Write = CellWrites | Delete


@dataclass(slots=True)
class RowState:
    """The newest version of every cell of a row, and of its insert marker. ``deleted`` covers the row up to there."""

    cells: dict[str, Cell] = field(default_factory=dict)
    marker: Cell | None = None
    deleted: int = NEVER

    def visible(self, now: int) -> dict[str, Any] | None:
        """The cells with a value that a reader sees at ``now``; None if there is no row."""
        cells = {name: cell.value for name, cell in self.cells.items() if cell.stands(self.deleted, now)}
        marked = self.marker is not None and self.marker.stands(self.deleted, now)
        return cells if cells or marked else None


class CassandraTable:
    """The state of a table. Deletes are kept as long as the state is: a write that they cover may come at any time."""

    def __init__(self) -> None:
        self._rows: dict[Key, RowState] = {}
        self._deletes: dict[Key, dict[Range, int]] = {}

    def apply(self, write: Write) -> None:
        """Join a write into the state."""
        if isinstance(write, Delete):
            ranges = self._deletes.setdefault(write.key, {})
            ranges[write.range] = max(write.written, ranges.get(write.range, NEVER))
            return
        row = self._rows.setdefault(write.key, RowState())
        row.marker = _later(row.marker, write.marker)
        for name, cell in write.cells.items():
            row.cells[name] = max(cell, row.cells.get(name, cell), key=lambda each: each.rank)

    def rows(self) -> dict[Key, RowState]:
        """Every row that was ever written, by primary key, with the deletes that cover it."""
        return {key: replace(row, deleted=self._deleted(key)) for key, row in self._rows.items()}

    def visible(self, now: int) -> dict[Key, dict[str, Any]]:
        """The rows that a read with all replicas returns at ``now``, by primary key: their cells with a value."""
        return {key: cells for key, row in self.rows().items() if (cells := row.visible(now)) is not None}

    def _deleted(self, key: Key) -> int:
        """The time up to which everything of the row is deleted."""
        covering = (
            written
            for length in range(1, len(key) + 1)
            for covered, written in self._deletes.get(key[:length], {}).items()
            if covered.covers(key[length:])
        )
        return max(covering, default=NEVER)


def _later(one: Cell | None, other: Cell | None) -> Cell | None:
    if one is None or other is None:
        return one or other
    return max(one, other, key=lambda cell: cell.rank)


# -- values as Cassandra compares them --------------------------------------------------------------------------------

_WIDTHS = {"int8": 1, "int16": 2, "int32": 4, "int64": 8}


def octets(kind: str, value: Any) -> bytes:
    """A value of a Connect type in the bytes that Cassandra compares when two were written at the same time.

    Of types that the connector sends in another form (uuid and inet as text, decimal as double) the order is that of
    the form: a tie of two of their values may then be decided otherwise than in Cassandra.
    """
    return _OCTETS.get(kind, _text)(kind, value)


def _number(kind: str, value: Any) -> bytes:
    return int(value).to_bytes(_WIDTHS[kind], "big", signed=True)


def _text(kind: str, value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


_OCTETS: Mapping[str, Callable[[str, Any], bytes]] = {
    **dict.fromkeys(_WIDTHS, _number),
    "boolean": lambda kind, value: bytes([bool(value)]),
    "float": lambda kind, value: struct.pack(">f", float(value)),
    "double": lambda kind, value: struct.pack(">d", float(value)),  # JSON spells NaN as text,
}
