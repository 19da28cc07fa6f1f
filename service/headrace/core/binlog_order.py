"""Changes of one row whose order MySQL's events do not contain: those of a compressed transaction.

With ``binlog_transaction_compression=ON`` the server writes a transaction as one event of the binary log. Debezium
gives its position (``source.file``, ``source.pos``) to every change in it, while ``source.row`` counts within each of
the row events inside. Two changes of one row by two statements then have equal positions, or positions in the wrong
order, and nothing else orders them: ``transaction.total_order`` starts again where the connector is restarted. The
later change would be taken for one that is delivered again, so it is refused.

A change that really is delivered again equals one that came before it. Without compression, all changes of one binary
log position come from one row event, so a row's changes come with rising numbers, or they repeat.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.core.errors import BadRecord
from headrace.core.events import NO_POSITION, Changes
from headrace.core.positions import BINLOG_ROW_WIDTH

CONNECTOR = "mysql"
"""MariaDB's server does not compress transactions, and its connector has a name of its own."""

LARGEST_GROUP = 10_000
"""Of a binary log position with more changes than this, those of earlier fetches are forgotten."""

REFUSAL = (
    "the change has the binary log position of another change of its row, so their order is not known: MySQL writes a "
    "compressed transaction as one event; set binlog_transaction_compression=OFF at the source, pass the records that "
    "the topic has already with errors.tolerance=all, and then run headrace verify --repair"
)

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Group:
    """The changes of one binary log position, as far as a partition's fetches have brought them.

    ``complete`` tells that they were read from the first on. ``contents`` has their contents by key and row number,
    ``highest`` each key's highest row number.
    """

    place: bytes = b""
    offset: int = -1
    complete: bool = False
    contents: dict[tuple[str, bytes], Hashable] = field(default_factory=dict)
    highest: dict[str, bytes] = field(default_factory=dict)

    def add(self, key: str, row: bytes, content: Hashable) -> bool:
        """Take in a change; False if it is another change of its row than those before it, and not above them."""
        if (key, row) in self.contents:
            return self.contents[key, row] == content
        if self.complete and row < self.highest.get(key, row):
            return False
        self.contents[key, row] = content
        self.highest[key] = max(row, self.highest.get(key, row))
        return True


class BinlogOrder:
    """Checks the changes of one topic of MySQL's connector, in order of arrival in each partition."""

    def __init__(self) -> None:
        self._last: dict[int, _Group] = {}

    def check(self, changes: Changes) -> None:
        """Raise BadRecord with the index of a change whose place among its row's changes is not known.

        ``changes`` are of one partition, and follow those of the call before. After an error call again without the
        change.
        """
        version = changes.version
        index = np.flatnonzero(version.position != NO_POSITION)
        if not len(index):
            return
        partition, offset = int(version.partition[0]), int(version.offset[index[-1]])
        last = self._last.get(partition, _Group())
        if version.offset[index[0]] <= last.offset:
            last = _Group()  # read again from an older offset
        position = version.position[index]
        places = position.astype(f"S{position.dtype.itemsize - BINLOG_ROW_WIDTH}")
        begins = np.flatnonzero(np.append(True, places[1:] != places[:-1]))
        bounds = np.append(begins, len(index)).tolist()
        first = _following(last, bytes(places[0]), bounds[1])
        _add_all(first, changes, index[: bounds[1]])
        for group in _unordered(position, places, begins):
            _add_all(_Group(complete=True), changes, index[bounds[group] : bounds[group + 1]])
        if len(begins) > 1:
            last = _Group(bytes(places[-1]), complete=True)
            _add_all(last, changes, index[bounds[-2] :])
        else:
            last = first
        last.offset = offset
        self._last[partition] = last


def _following(last: _Group, place: bytes, count: int) -> _Group:
    """The group of the first ``count`` changes of a fetch: the last one of the fetch before, or a new one."""
    follows = place == last.place
    if not follows or len(last.contents) + count > LARGEST_GROUP:
        return _Group(place, complete=not follows and last.place != b"")
    return _Group(place, last.offset, last.complete, dict(last.contents), dict(last.highest))


def _unordered(position: npt.NDArray[np.bytes_], places: npt.NDArray[np.bytes_], begins: Ints) -> list[int]:
    """The groups between the first and the last in which the row numbers do not rise."""
    falls = np.flatnonzero((places[1:] == places[:-1]) & (position[1:] <= position[:-1]))
    groups = np.unique(np.searchsorted(begins, falls, side="right") - 1)
    return [group for group in groups.tolist() if 0 < group < len(begins) - 1]


def _add_all(group: _Group, changes: Changes, index: Ints) -> None:
    keys = changes.key.take(index).to_pylist()
    for event, key in zip(index.tolist(), keys, strict=True):
        row = bytes(changes.version.position[event][-BINLOG_ROW_WIDTH:])
        if not group.add(key, row, _content(changes, event)):
            raise BadRecord(REFUSAL, index=event)


def _content(changes: Changes, event: int) -> Hashable:
    """What distinguishes a change from another one of its row, in few bytes.

    Without schemas, the other records of a fetch decide which columns a change has and whether a number is an integer:
    cells without a value do not count, and numbers count by their value.
    """
    cells = {column.name: column.values[event].as_py() for column in changes.columns}
    return hash(repr((int(changes.operation[event]), _plain(cells))))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return sorted((name, _plain(member)) for name, member in value.items() if member is not None)
    if isinstance(value, list | tuple):
        return [_plain(member) for member in value]
    if isinstance(value, int | float):
        return float(value)
    return value
