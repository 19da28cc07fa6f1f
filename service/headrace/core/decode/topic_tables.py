"""Determine the source table of each record of a topic.

Every event names its table, a tombstone does not. Debezium writes it directly behind the delete of its row, so it is of
the table that its own partition had last, never of one that another partition has shown. Where lake tables are named
after source tables, a wrong guess deletes a row of another table: a tombstone is then applied only if its table is
certain.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from itertools import islice

from msgspec import structs

from headrace.core.decode.codec import SOURCE_NAMES, Codec, Names
from headrace.core.decode.envelope_events import NO_SOURCE, Events, Run
from headrace.core.decode.records import KafkaRecord
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.events import Operation, TableId
from headrace.core.model.notes import Note

RECENT = 100
"""The limit on deletes whose tombstones may follow. A tombstone is the next record, unless producers interleave."""

TABLE_UNKNOWN = (
    "a tombstone whose table is unknown: its topic has several tables, and no delete of its key precedes it; give each "
    "table a topic of its own, or have the source connector leave tombstones out (tombstones.on.delete=false; where "
    "ExtractNewRecordState writes deletes as tombstones, add.headers=op,source.table names their table)"
)

IGNORED_TOMBSTONES = Note(
    "tombstones with which the reading of a partition begins are ignored: collection.name.format depends on the source "
    "table, nothing says which one they are of, and the delete that precedes each has removed its row"
)


class Unapplied(Enum):
    """Why a tombstone is not applied to the table of the event before it."""

    REPEATED = auto()
    """Its delete, of another table, was before it and has removed the row."""
    EARLY = auto()
    """Its delete may be before the first record that was read of the partition."""
    UNKNOWN = auto()
    """Its table is unknown."""


@dataclass(slots=True)
class Tail:
    """The last records of a partition that were read without a gap.

    ``begin`` is the offset of the first one. ``names`` and ``codec`` are those of the last event. ``deleted`` has the
    keys of the last deletes that no event of the same key has followed, with table and codec.
    """

    begin: int = 0
    next_offset: int = -1
    codec: Codec | None = None
    names: Names | None = None
    deleted: dict[Hashable, tuple[Names, Codec]] = field(default_factory=dict)


class TopicTables:
    """The source tables of one topic, and the tail of each of its partitions.

    ``apart`` is whether lake tables are named after source tables, so that one topic may have several.
    ``key_schema_name`` returns the name of the schema of a record's key.
    """

    def __init__(self, topic: str, apart: bool, key_schema_name: Callable[[KafkaRecord], str | None]) -> None:
        self._topic = topic
        self._apart = apart
        self._key_schema_name = key_schema_name
        self._seen: set[Names] = set()
        self._tails: dict[int, Tail] = {}
        self._last: Names | None = None
        self.tail = Tail()
        self.current = TableId("", "", "", topic)

    # -- the state of each partition ---------------------------------------------------------------------------

    def begin(self, records: Sequence[KafkaRecord]) -> None:
        """Begin records of one partition. The partition's tail is valid only if no record is missing in between."""
        first = records[0]
        tail = self._tails.get(first.partition)
        if tail is None or tail.next_offset != first.offset:
            tail = self._tails[first.partition] = Tail(first.offset)
        self.tail = tail

    def end(self, records: Sequence[KafkaRecord]) -> None:
        self.tail.next_offset = records[-1].offset + 1

    def complete(self, events: Events) -> list[int]:
        """Complete the source blocks of flattened deletes whose headers do not name their table.

        ``ExtractNewRecordState`` adds fields to rows, and headers to all records: a delete that it writes as a null has
        only what ``add.headers`` contains. If the topic has one table, the delete is of that table. Returns the indexes
        of deletes whose table is unknown.
        """
        deletes = [index for index, operation in enumerate(events.operations) if operation is Operation.DELETE]
        of_rows = {
            source.names
            for source, operation in zip(events.sources, events.operations, strict=True)
            if deletes and source is not NO_SOURCE and operation is not Operation.DELETE
        }
        tables = [names for names in self._seen | of_rows if not self._is_unnamed(names)]
        unknown = []
        for index in deletes:
            record, source = events.records[index], events.sources[index]
            fitting = [  # the tables whose names agree with those that the source block has
                names
                for names in tables
                if all(not given or given == name for given, name in zip(source.names, names, strict=True))
            ]
            is_of_table = len(fitting) == 1 and source.names not in tables
            if is_of_table and self._apart and record.offset - self.tail.begin < RECENT:
                is_of_table = self._is_proven(record, fitting[0], len(tables) == 1)
            if is_of_table:
                events.sources[index] = structs.replace(source, **dict(zip(SOURCE_NAMES, fitting[0], strict=True)))
            elif source.table is None and self._apart and len(tables) == len(self._seen | of_rows):
                unknown.append(index)
            elif source.table is None:
                events.sources[index] = structs.replace(source, table=self._topic)
        return unknown

    def _is_unnamed(self, names: Names) -> bool:
        """Whether names are of flattened records that contain none, so that the topic's name replaces the table's."""
        name, _, database, schema, table = names
        return table == self._topic and not (name or database or schema)

    def see(self, events: Events) -> None:
        """Register the tables of events that are not split by table yet."""
        if events.common is not None:
            self._seen.add(events.common)
        else:
            self._seen.update(source.names for source in events.sources if source is not NO_SOURCE)

    def enter(self, events: Events, index: int) -> None:
        """The event at ``index`` begins a piece of one table, which becomes ``current``.

        A tombstone that nothing precedes is of the first table after it, or else of the topic's last one.
        """
        source, names = events.sources[index], self.tail.names  # proven: table-of-tombstone
        if source is not NO_SOURCE:
            names = source.names
        elif names is None:
            names = next((source.names for source in events.sources if source is not NO_SOURCE), self._last)
        self.tail.names = names
        if names is not None and names != self._last:
            self._last = names
            name, _, database, schema, table = names
            self.current = TableId(name or "", database or "", schema or "", table or "")

    def store_deletes(self, codec: Codec, events: Events) -> None:
        """Store the deletes that later tombstones may refer to."""
        deleted, begin = self.tail.deleted, max(0, len(events) - RECENT)
        last = zip(events.records[begin:], events.operations[begin:], events.sources[begin:], strict=True)
        for record, operation, source in last:
            key = key_identity(record)
            deleted.pop(key, None)
            if operation is Operation.DELETE:
                deleted[key] = source.names, codec
        for key in list(islice(deleted, max(0, len(deleted) - RECENT))):
            del deleted[key]

    # -- the table of a tombstone ------------------------------------------------------------------------------

    @property
    def begins_unknown(self) -> bool:
        """Whether a tombstone that comes next has no certain table, and needs one."""
        return self._apart and self.tail.names is None

    def certain(self, record: KafkaRecord, events: Events) -> bool:
        """Whether a tombstone at the begin of a partition is of the table of ``events``, which follow it."""
        self.see(events)
        names = next((source.names for source in events.sources if source is not NO_SOURCE), self._last)
        if names is None:
            return False
        return self._is_proven(record, names, len(self._seen) == 1)

    def drop_repeated(self, codec: Codec, records: Sequence[KafkaRecord], run: Run) -> int:
        """Drop tombstones of a run whose delete was of another schema, so that its codec cannot read their keys.

        The deletes have removed their rows. Returns how many these are.
        """
        foreign = {key for key, (_, other) in self.tail.deleted.items() if other is not codec}
        if not foreign or None not in run.payloads:
            return 0
        dropped: list[int] = []
        passed: set[Hashable] = set()
        for place, index in enumerate(run.indexes):
            key = key_identity(records[index])
            if run.payloads[place] is None and key in foreign - passed:
                dropped.append(place)
            passed.add(key)
        for place in reversed(dropped):
            del run.indexes[place], run.payloads[place]
        return len(dropped)

    def tombstones_to_omit(self, events: Events) -> dict[int, Unapplied]:
        """Return tombstones that may not be of the table of the event before them, by index, in ascending order."""
        if len(self._seen) < 2 and not self._apart:
            return {}
        omitted: dict[int, Unapplied] = {}
        deleted = {key: names for key, (names, _) in self.tail.deleted.items()}
        names, only = self.tail.names, len(self._seen) == 1
        for place, (record, operation, source) in enumerate(
            zip(events.records, events.operations, events.sources, strict=True)
        ):
            key = key_identity(record)
            names = names if source is NO_SOURCE else source.names
            of = deleted.pop(key, None)
            if names is None or of == names:
                continue
            if operation is Operation.DELETE:
                deleted[key] = names
            elif operation is Operation.TOMBSTONE and of is not None:
                omitted[place] = Unapplied.REPEATED
            elif operation is Operation.TOMBSTONE and self._apart and not self._is_proven(record, names, only):
                if record.offset - self.tail.begin < RECENT:
                    omitted[place] = Unapplied.EARLY
                elif len(self._seen) > 1:
                    omitted[place] = Unapplied.UNKNOWN
        return omitted

    def _is_proven(self, record: KafkaRecord, names: Names, only: bool) -> bool:
        """Whether a tombstone's key schema, or the topic, has Debezium's name for the table.

        ``only`` is whether the topic has shown no other table: otherwise its name proves nothing.
        """
        key_names = (self._key_schema_name(record) or "").removesuffix(".Key")
        return _is_named_after(key_names, names) or (only and _is_named_after(self._topic, names))


def key_identity(record: KafkaRecord) -> Hashable:
    """Return a hash of a key in one partition; converted keys are hashed in their original form."""
    key = getattr(record, "original_key", record.key)
    return repr(key.value) if isinstance(key, SchemaAndValue) else key


def _is_named_after(text: str, names: Names) -> bool:
    """Return whether a topic or a schema has Debezium's name for a table."""
    name, *_, table = names
    if not table:
        return False
    return text == table or (text.endswith(f".{table}") and (not name or text.startswith(f"{name}.")))
