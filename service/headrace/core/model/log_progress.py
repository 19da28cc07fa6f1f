"""How far the logs of a source's servers have been read, per partition: a property of table commits.

It shows whether a change is of a transaction that was read before, also after a restart (``merge.md`` section 2.6).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.core.model.positions import EPOCH, POSITION_FORMATS

TRUNCATE = -1
"""In place of a partition: what had been read of the partition with the table's last truncate when that arrived."""

_BINLOG = POSITION_FORMATS["mysql"]
_GTID_WIDTH = 20


class Place(NamedTuple):
    """A partition of a topic, as the events of one connector (its logical ``name``) are read from it."""

    topic: str
    name: str
    partition: int


@dataclass(frozen=True, slots=True)
class LogProgress:
    """The highest position that was read, and the highest number of each server (``events.LogServers``).

    ``time`` is the latest time of a commit, in microseconds since the epoch, ``offset`` the highest of a record.
    """

    position: bytes = b""
    numbers: Mapping[str, bytes] = field(default_factory=dict)
    time: int = 0
    offset: int = -1

    def join(self, other: LogProgress) -> LogProgress:
        """Return the higher of each value."""
        numbers = {
            server: max(read.numbers.get(server, b"") for read in (self, other))
            for server in {**self.numbers, **other.numbers}
        }
        return LogProgress(
            max(self.position, other.position), numbers, max(self.time, other.time), max(self.offset, other.offset)
        )


Progress = Mapping[Place, LogProgress]


def furthest(*parts: Progress) -> Progress:
    """Return the furthest progress of each place. Two truncates are not joined: the later one counts."""
    result: dict[Place, LogProgress] = {}
    for part in parts:
        for place, progress in part.items():
            other = result.get(place, LogProgress())
            if place.partition == TRUNCATE:
                result[place] = max(other, progress, key=lambda read: read.position)
            else:
                result[place] = other.join(progress)
    return result


def to_text(progress: Progress) -> str:
    """Return JSON: ``{"servers": [...], "partitions": [...]}``.

    Each partition is ``[topic, name, partition, position, time, offset, {index of the server: number}]``. Positions and
    numbers are without the zeros that fill them.
    """
    servers = list(dict.fromkeys(server for read in progress.values() for server in read.numbers))
    partitions = [
        [
            *place,
            _short(read.position),
            read.time,
            read.offset,
            {servers.index(s): _short(n) for s, n in read.numbers.items()},
        ]
        for place, read in progress.items()
    ]
    return json.dumps({"servers": servers, "partitions": partitions}, separators=(",", ":"))


def from_text(text: str) -> Progress:
    """Return what ``to_text`` wrote."""
    stored = json.loads(text)
    return {
        Place(topic, name, partition): LogProgress(
            _full(position), {stored["servers"][int(index)]: _full(n) for index, n in numbers.items()}, time, offset
        )
        for topic, name, partition, position, time, offset, numbers in stored["partitions"]
    }


def _short(text: bytes) -> str:
    return ".".join(str(int(part)) for part in text.decode().split("."))


def _full(text: str) -> bytes:
    """Return a position, a position without epoch, or the number of a GTID, by the number of its parts."""
    parts, widths = text.split("."), [part.width for part in _BINLOG.parts]
    if len(parts) > len(widths):
        widths.insert(0, len(EPOCH % 0))
    elif len(parts) < len(widths):
        widths = [_GTID_WIDTH]
    return ".".join(part.zfill(width) for part, width in zip(parts, widths, strict=True)).encode()


def newest(texts: Iterable[str]) -> Progress:
    """Return the furthest progress of several texts; empty ones contain none."""
    return furthest(*(from_text(text) for text in texts if text))
