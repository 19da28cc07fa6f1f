"""Offsets of partitions: the check of chunks, the offsets that may be committed, and the note stored with them.

See ``merge.md`` sections 9 and 10, and ``kafka-client.md`` section 2.4.

An offset is a number. After an unclean election, a restored disk, or when a topic was deleted and created again, the
log may contain other records below it, and those that the broker lost would never be read. So the note of each
committed offset also identifies the last record before it: Kafka's id of the topic (KIP-516), the epoch of the leader
that wrote the record (KIP-320), and the record's timestamp and checksum.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

from headrace.core.model.errors import Fatal
from headrace.core.model.events import TopicPartition


class ChunkSequence:
    """Checks that the chunks of one assignment arrive without a gap.

    Any defect between consumer and task (a dropped chunk, an unexpected restart) shows as a gap in the sequence numbers
    or in a partition's offsets. The task then fails without a further commit, so that no record is lost.
    """

    def __init__(self) -> None:
        self._next = 0
        self._ends: dict[TopicPartition, int] = {}

    def admit(self, sequence: int, partition: TopicPartition, begin: int, end: int) -> None:
        """Register the next chunk. Raises Fatal if a chunk or a record before it is missing.

        Sequence numbers begin at 0, and each partition at the offset of the group.
        """
        expected = self._ends.get(partition, begin)
        if sequence != self._next or begin != expected or end < begin:
            raise Fatal(
                f"{partition}: a gap in the fetched records: chunk {sequence} contains offsets {begin} to {end}, but "
                f"chunk {self._next} from offset {expected} was due; nothing was committed, restart the task"
            )
        self._next += 1
        self._ends[partition] = end


@dataclass(slots=True, eq=False)
class Origin:
    """The chunk that changes belong to.

    ``end`` is the offset behind it, ``since`` the time of its read (monotonic seconds), and ``behind`` the number of
    the partition's records that were still in Kafka then. ``missing`` is the number of its parts that are not durable
    yet; one that cannot be written is never subtracted, so that its partition's offset stays before the chunk.
    """

    partition: TopicPartition
    end: int
    since: float
    behind: int = 0
    missing: int = 0


class OffsetTracker:
    """The chunks of one assignment, in order per partition.

    A partition's offset passes a chunk when every table that got changes of it is durable, and only in order.
    """

    def __init__(self) -> None:
        self._chunks: dict[TopicPartition, deque[Origin]] = {}

    def begin(self, partition: TopicPartition, end: int, since: float, behind: int = 0) -> Origin:
        """Register a chunk. Its distribution to tables counts as one part, which has to be subtracted."""
        origin = Origin(partition, end, since, behind, missing=1)
        self._chunks.setdefault(partition, deque()).append(origin)
        return origin

    def durable(self) -> Mapping[TopicPartition, int]:
        """Return the partitions whose offset advances, each with the end of its last chunk without a gap before it."""
        moved: dict[TopicPartition, int] = {}
        for partition, chunks in self._chunks.items():
            while chunks and chunks[0].missing == 0:  # proven: offsets-in-order
                moved[partition] = chunks.popleft().end
        return moved


# -- the note of a committed offset -----------------------------------------------------------------------------------
# Kafka stores it as the metadata of a consumer group's offset: which tables contain the partition's records, and up to
# which offset. A table is named by a digest, so that the notes of about two hundred tables that share a partition fit
# into what brokers accept (``offset.metadata.max.bytes``, 4096 by default), with the entry of the log's position.

MAX_CHARACTERS = 3900
NOTE_FORM = "headrace1:"
_DIGEST_BYTES = 6


@lru_cache(maxsize=4096)
def table_digest(table: str) -> str:
    return urlsafe_b64encode(blake2b(table.encode(), digest_size=_DIGEST_BYTES).digest()).decode()


def encode_note(tables: Mapping[str, int]) -> str:
    """Return the note of next offsets by table digest, "" if there are none.

    If they exceed a note, it omits the tables with the lowest offsets.
    """
    if not tables:
        return ""
    entries: list[str] = []
    size = len(NOTE_FORM)
    for table, offset in sorted(tables.items(), key=lambda entry: -entry[1]):
        entries.append(f"{table}:{offset}")
        size += len(entries[-1]) + 1
        if size > MAX_CHARACTERS:
            entries.pop()
            break
    return NOTE_FORM + ",".join(entries)


def decode_note(note: str) -> dict[str, int]:
    """Return the next offsets by table digest; empty for metadata of another writer."""
    if not note.startswith(NOTE_FORM):
        return {}
    try:
        entries = note.removeprefix(NOTE_FORM).split(",")
        pairs = [entry.rsplit(":", 1) for entry in entries if not entry.startswith("@")]  # a log position
        return {table: int(offset) for table, offset in pairs}
    except ValueError:
        return {}


# -- the log up to a committed offset ----------------------------------------------------------------------------------

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

    def difference(self, record: LogPosition) -> str | None:
        """Return why ``record``, read at the same offset, is not the same record; None if it is."""
        if record.offset < self.offset:
            return f"the log ended before offset {self.offset}"
        if record.offset > self.offset:
            return None  # compaction has removed the record
        if (record.timestamp, record.checksum) != (self.timestamp, self.checksum):
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
        read = self._read.get(partition)
        return read[-1][1] if read else None

    def before(self, partition: TopicPartition, offset: int) -> LogPosition | None:
        """Return the last position that was read before an offset to commit; offsets only grow."""
        read = self._read.get(partition)
        while read and len(read) > 1 and read[1][0] <= offset:
            read.popleft()
        return read[0][1] if read and read[0][0] <= offset else None
