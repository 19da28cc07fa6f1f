"""What identifies the log up to a committed offset, so that another log is not continued at that offset.

An offset is a number. After an unclean election, a restored disk, or when a topic was deleted and created again, the
log may contain other records below it, and those that the broker lost would never be read. So each committed offset
carries the position of the last record before it, in the note of ``offsets.py``: Kafka's id of the topic (KIP-516), the
epoch of the leader that wrote the record (KIP-320), and the record's timestamp and checksum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.batch.offsets import NOTE_FORM
from headrace.core.model.topic_partition import TopicPartition

_MARK = "@"
"""The first character of the entry. No digest of a table contains it; earlier releases take the entry for a table."""


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A record, and the log that contains it. ``timestamp`` is the record's, in milliseconds.

    ``topic_id`` is "" and ``leader_epoch`` -1 where brokers do not report them.
    """

    offset: int
    timestamp: int
    checksum: int
    leader_epoch: int = -1
    topic_id: str = ""

    def difference(self, found: LogPosition) -> str | None:
        """Return why ``found``, read at the same offset, is not the same record; None if it is."""
        if found.offset < self.offset:
            return f"the log ended before offset {self.offset}"
        if found.offset > self.offset:
            return None  # compaction has removed the record
        if (found.timestamp, found.checksum) != (self.timestamp, self.checksum):
            return f"another record is at offset {self.offset}"
        return None


def with_log_position(note: str, position: LogPosition | None, committed: int) -> str:
    """Return the note of a committed offset with the position of the last record before it.

    Metadata of another writer stays as it is.
    """
    if note and not note.startswith(NOTE_FORM):
        return note
    entries = [entry for entry in note.removeprefix(NOTE_FORM).split(",") if entry and not entry.startswith(_MARK)]
    if position is not None:
        fields = (position.topic_id, position.leader_epoch, position.offset, position.timestamp, position.checksum)
        entries.insert(0, f"{_MARK}{'.'.join(map(str, fields))}:{committed}")
    return NOTE_FORM + ",".join(entries) if entries else ""


def log_position(note: str, committed: int) -> LogPosition | None:
    """Return the position in the note of a committed offset; None if it has none, or one of another offset.

    An earlier release repeats the entry with offsets that it commits later.
    """
    entry = note.removeprefix(NOTE_FORM).partition(",")[0]
    if not note.startswith(NOTE_FORM) or not entry.startswith(_MARK):
        return None
    try:
        fields, _, of = entry.removeprefix(_MARK).rpartition(":")
        topic_id, leader_epoch, offset, timestamp, checksum = fields.split(".")
        position = LogPosition(int(offset), int(timestamp), int(checksum), int(leader_epoch), topic_id)
        return position if int(of) == committed else None
    except ValueError:
        return None


class ReadLogs:
    """The positions of the logs of one assignment: those that were committed, and those that were read since."""

    def __init__(self, committed: Iterable[tuple[TopicPartition, tuple[int, str]]] = ()) -> None:
        """``committed`` are partitions with their next offset and its note."""
        self._read: dict[TopicPartition, deque[tuple[int, LogPosition]]] = {}
        for partition, (offset, note) in committed:
            position = log_position(note, offset)
            if position is not None:
                self.read(partition, position, offset)

    def read(self, partition: TopicPartition, position: LogPosition, end: int) -> None:
        """Register the last record before the fetch position ``end``."""
        self._read.setdefault(partition, deque()).append((end, position))

    def last(self, partition: TopicPartition) -> LogPosition | None:
        """Return the position of the last record that was read."""
        read = self._read.get(partition)
        return read[-1][1] if read else None

    def before(self, partition: TopicPartition, offset: int) -> LogPosition | None:
        """Return the last position that is known to be before an offset to commit; offsets only grow."""
        read = self._read.get(partition)
        while read and len(read) > 1 and read[1][0] <= offset:
            read.popleft()
        return read[0][1] if read and read[0][0] <= offset else None
