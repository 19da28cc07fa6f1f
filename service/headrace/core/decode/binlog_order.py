"""Detect changes of one row whose order MySQL's events do not contain: those of a compressed transaction.

With ``binlog_transaction_compression=ON``, the server writes a transaction as one event of the binary log. Debezium
gives its position (``source.file``, ``source.pos``) to every change in it, while ``source.row`` counts within each of
the row events inside. Two changes of one row by two statements then have equal positions, or positions in the wrong
order, and no other field orders them: ``transaction.total_order`` restarts with the connector. The later change would
count as a repeated delivery, so it is rejected.

A repeated delivery equals a change before it. Without compression, all changes of one binary log position are of one
row event, so the changes of a row have increasing numbers, or they repeat.

A decreasing number proves a second statement only if the row event was read from its first change on. A restarted
connector may begin within a row event, and earlier after another restart. It never begins after the changes that it has
sent, so a position that directly follows a lower one in its partition is read from its first change on. If offsets are
missing (compaction, another offset to resume from), a missing record may have been the first change.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from headrace.core.model.errors import BadRecord
from headrace.core.model.events import NO_POSITION, Changes, Ints, TableId
from headrace.core.model.positions import BINLOG_ROW_WIDTH

CONNECTOR = "mysql"
"""The connector's name. MariaDB does not compress transactions, and its connector has another name."""

LARGEST_GROUP = 10_000
"""The limit on changes of a binary log position: above it, the changes of earlier fetches are discarded."""

REFUSAL = (
    "the change has the binary log position of another change of its row, so their order is not known: MySQL writes a "
    "compressed transaction as one event; set binlog_transaction_compression=OFF at the source, pass the records that "
    "the topic has already with errors.tolerance=all, and then run headrace verify --repair"
)

RowKey = tuple[TableId, str]


@dataclass(slots=True)
class _Group:
    """The changes of one binary log position that a partition's fetches contained so far.

    ``complete`` is whether no change before the last of them is missing. ``contents`` maps row key and row number to
    the hash of a change, ``highest`` each row key to its highest row number. ``end`` is the offset up to which the
    partition has been read, ``gap`` is whether records are missing between the last change and ``end``.
    """

    log_position: bytes = b""
    complete: bool = False
    contents: dict[tuple[RowKey, bytes], Hashable] = field(default_factory=dict)
    highest: dict[RowKey, bytes] = field(default_factory=dict)
    end: int = -1
    gap: bool = True

    def add(self, key: RowKey, row: bytes, content: Hashable) -> bool:
        """Add a change; return False if it is a new change of its row whose number is not higher than before."""
        if (key, row) in self.contents:
            return self.contents[key, row] == content
        if self.complete and row < self.highest.get(key, row):
            return False
        self.contents[key, row] = content
        self.highest[key] = max(row, self.highest.get(key, row))
        return True


class BinlogOrder:
    """Check the changes of one topic of MySQL's connector, in order of arrival in each partition."""

    def __init__(self) -> None:
        self._last: dict[int, _Group] = {}
        self._refused: dict[int, set[int]] = {}

    def check(self, changes: Changes) -> None:
        """Raise BadRecord with the index of a change whose order among its row's changes is unknown.

        ``changes`` are of one partition, and follow those of the last call. After an error, call again without the
        change.
        """
        version = changes.version
        partition = int(version.partition[0])
        last = self._last.get(partition, _Group())
        if version.offset[0] <= last.end:
            last = _Group()  # read again from an older offset
        refused = self._refused.setdefault(partition, set())
        # A gap is before a record if offsets are missing between it and the one before, except rejected records.
        offsets = np.append(last.end, version.offset)
        refused_before = np.searchsorted(np.array(sorted(refused), np.int64), offsets)
        gaps = int(last.gap) + np.cumsum(np.diff(offsets) - np.diff(refused_before) > 1)
        try:
            last = _check_groups(changes, last, gaps)
        except BadRecord as error:
            if error.index is not None:
                refused.add(int(version.offset[error.index]))
            raise
        last.end = int(version.offset[-1])
        self._last[partition] = last
        self._refused[partition] = {offset for offset in refused if offset > last.end}


def _check_groups(changes: Changes, last: _Group, gaps: Ints) -> _Group:
    """Return the last group after ``changes``; ``gaps`` counts the gaps between a change and the last of ``last``."""
    position = changes.version.position
    index = np.flatnonzero(position != NO_POSITION)
    if not len(index):
        last.gap = bool(gaps[-1])
        return last
    position, torn = position[index], np.diff(gaps[index], prepend=0) > 0
    places = position.astype(f"S{position.dtype.itemsize - BINLOG_ROW_WIDTH}")
    before = np.append(np.array([last.log_position], places.dtype), places[:-1])
    begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
    bounds = np.append(begins, len(index)).tolist()
    complete = (places > before) & ~torn
    follows = before[0] == places[0] and len(last.contents) + bounds[1] <= LARGEST_GROUP
    group = _Group()
    # Check the first and the last group, and those between them in which the row numbers do not increase.
    falls = np.flatnonzero((places[1:] == places[:-1]) & (position[1:] <= position[:-1]))
    unordered = np.unique(np.searchsorted(begins, falls, side="right") - 1).tolist()
    for number in sorted({0, *unordered, len(begins) - 1}):
        begin, end = bounds[number], bounds[number + 1]
        group = _Group(bytes(places[begin]), bool(complete[begin]))
        if number == 0 and follows:
            group = replace(last, contents=dict(last.contents), highest=dict(last.highest))
        keys = changes.key.take(index[begin:end]).to_pylist()
        for event, key, gap in zip(index[begin:end].tolist(), keys, torn[begin:end].tolist(), strict=True):
            row = bytes(changes.version.position[event][-BINLOG_ROW_WIDTH:])
            group.complete &= not gap
            # A hash distinguishes a change from others of its row. Without schemas, the other records of a fetch decide
            # which columns a change has and whether a number is an integer: so nulls are ignored, and 1 equals 1.0.
            cells = {column.name: column.values[event].as_py() for column in changes.columns}
            if not group.add((changes.table, key), row, hash(repr((int(changes.operation[event]), _plain(cells))))):
                raise BadRecord(REFUSAL, index=event)
    group.gap = bool(gaps[-1] > gaps[index[-1]])
    return group


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return sorted((name, _plain(member)) for name, member in value.items() if member is not None)
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, int | float):
        return float(value)
    return value
