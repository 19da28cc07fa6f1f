"""What is checked before each write: that the table has no other writer, and lacks nothing that is not read again.

``TableOwnership``: rows of two source tables with equal keys would replace each other, and two connectors that write
one topic to one table would each commit offsets for what the other one may still undo. Nothing within a task shows a
writer in another task, connector, worker or cluster, or one before a restart. The table does: each of its sources is
stored in its properties (``merge.md`` section 11).

``WrittenTables``: every commit of a group's offset contains a note: which tables contain the records of its partition,
and up to which offset (``core/batch/offsets.py``). A table commit contains the offsets as well. Both are compared when
a task begins and before each batch. A table with a lower offset than the note was dropped, emptied or replaced by an
older copy, and the records in between would not be read again. Other tools that set the group's offsets write no note:
then the tables are accepted as they are.

Tests: ``tests/unit/runtime/task/test_table_ownership.py``, ``test_lost_tables.py``.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from headrace.core.batch.offsets import decode_note, encode_note, table_digest
from headrace.core.model.absent_columns import ColumnDefaults
from headrace.core.model.errors import Fatal, TableMissing
from headrace.core.model.events import Content
from headrace.core.tables.table_sources import TableSource, rivals
from headrace.ports import LakeTable, OffsetNote, TableReader, TopicPartition

log = logging.getLogger(__name__)


class TableOwnership:
    """The tables of a connector. Without state of its own: each batch reads what its table stores.

    ``shared`` is whether keys are unique across all sources. The connector adopts tables of the connectors in
    ``adopts_from``, which may contain itself: its tables of other source tables.
    """

    def __init__(self, connector: str, group: str, *, shared: bool, adopts_from: Collection[str] = ()) -> None:
        self._connector = connector
        self._group = group
        self._shared = shared
        self._adopts_from = adopts_from

    def register(self, name: str, table: LakeTable, content: Content, topic_ids: Mapping[str, str]) -> None:
        """Register the source of a batch, unless it is registered. Raises Fatal if the table has another writer.

        ``topic_ids`` are Kafka's ids of the topics that the task reads, as far as they are known.
        Called on a writing thread, before each batch: another connector may have adopted the table since.
        """
        if isinstance(content, ColumnDefaults):  # of the schema-change topic, which contains no rows
            return
        topic = content.version.topic
        source = TableSource(self._connector, self._group, topic, content.table, topic_ids.get(topic, ""))
        stored = table.sources()
        for writer in stored:
            if (writer.connector, writer.topic, writer.table) == (source.connector, source.topic, source.table):
                # A replay of dead letters has no group, and brokers may not have reported the id of the topic yet.
                source = replace(
                    source, group=source.group or writer.group, topic_id=source.topic_id or writer.topic_id
                )
        adopted = self._adopt(name, rivals(stored, source, shared=self._shared), source)
        # What the topic's tombstones or an earlier release have registered, or a connector of the same group.
        outdated = [writer for writer in stored if writer != source and writer.has_the_writer_of(source)]
        outdated = [writer for writer in outdated if writer.topic == source.topic and writer.may_be_of(source)]
        if not (source.table.name or adopted) and any(writer.connector == self._connector for writer in outdated):
            return  # its source table is known already
        if source in stored and not adopted and not outdated:
            return
        table.register(source, [*adopted, *outdated])
        # Another writer may have registered its own source at the same time: then neither of them writes.
        self._adopt(name, rivals(table.sources(), source, shared=self._shared), source)

    def _adopt(self, name: str, others: Sequence[TableSource], source: TableSource) -> Sequence[TableSource]:
        refused = [writer for writer in others if writer.connector not in self._adopts_from]
        if refused:
            raise Fatal(_refusal(name, refused, source, shared=self._shared))
        for writer in others:
            log.warning("%s: the table is adopted from %s by connector %s", name, writer, self._connector)
        return others


def _refusal(name: str, others: Sequence[TableSource], source: TableSource, *, shared: bool) -> str:
    writers = "; ".join(map(str, others[:3])) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    names = ",".join(dict.fromkeys(writer.connector for writer in others))
    if any(writer.is_of_former_topic(source) and writer.has_the_writer_of(source) for writer in others):
        return (
            f"{name}: topic {source.topic} was deleted and created again since the table was written: its snapshot "
            "reads would count as older than the rows of the former topic, so nothing was written; drop the table, so "
            f"that it is filled from the topic, or set table.adopt.from={source.connector} for the next start and run "
            "headrace verify --repair afterwards"
        )
    ways_out = ["write to another table (collection.name.format, table.namespace)"]
    if not shared and all(writer.topic != source.topic for writer in others):
        ways_out.append("set primary.key.fields to columns that are unique across all sources")
    ways_out.append(
        f"or, if the connector was renamed or its topic has moved, make sure that nothing writes the table any more "
        f"under that name or from that topic, and set table.adopt.from={names} for the next start"
    )
    return (
        f"{name}: the table belongs to another writer ({writers}), and this is {source}: rows with equal keys would "
        f"replace each other, so nothing was written; {', '.join(ways_out)}"
    )


Offsets = Mapping[TopicPartition, int]

_WAYS_OUT = (
    "restore it; or stop the connector and set the offsets of its group (PATCH /connectors/{connector}/offsets): back, "
    "so that the records are read again, or to where they are, to continue without them. table.missing=recreate, or "
    "for one table POST /connectors/{connector}/tables/<table>/restart?missing=recreate, continues without them as "
    "well; headrace resnapshot or headrace verify --repair then fills the table from the source"
)


class WrittenTables:
    """The notes of one assignment's partitions. Not thread-safe, except ``check``.

    ``notes`` are those that the group has committed. Records above the group's offset are read again, so they do not
    count. With ``recreate`` a table that is missing or behind continues at the group's offset.
    """

    def __init__(
        self, connector: str, group: str, notes: Mapping[TopicPartition, OffsetNote], *, recreate: bool = False
    ) -> None:
        self._connector = connector
        self._group = group
        self._recreate = recreate
        self._tables = {
            partition: {table: min(offset, committed.offset) for table, offset in decode_note(committed.note).items()}
            for partition, committed in notes.items()
        }
        self._partitions: dict[str, set[TopicPartition]] = {}  # by table; of hundreds, a table has one or a few
        for partition, tables in self._tables.items():
            for table in tables:
                self._partitions.setdefault(table, set()).add(partition)

    def required(self, name: str) -> Offsets:
        """Return the offsets up to which the table must contain the records, because they are not read again."""
        table = table_digest(name)
        offsets = {partition: self._tables[partition].get(table, 0) for partition in self._partitions.get(table, ())}
        return {partition: offset for partition, offset in offsets.items() if offset}

    def check(self, name: str, table: TableReader, required: Offsets, *, recreate: bool = False) -> None:
        """Raise TableMissing if the table does not contain records that are not read again.

        With ``recreate``, of all tables or of this one, accept the table as it is and discard the notes on it.
        """
        if not required:
            return
        lost = self._lost(table, required)
        if lost is None:
            return
        text = f"{name}: {lost}"
        if not (recreate or self._recreate):
            ways_out = _WAYS_OUT.format(connector=self._connector)
            raise TableMissing(f"{text}: the records in between would be missing; {ways_out}")
        log.warning("%s; it continues at the group's offsets, as table.missing=recreate or a restart requests", text)
        for tables in self._tables.values():
            tables.pop(table_digest(name), None)

    def _lost(self, table: TableReader, required: Offsets) -> str | None:
        """Describe what the table does not contain; None if it is complete, or if no commit contains its offsets."""
        reached = None
        try:
            if table.schema() is not None:
                reached = table.reached(self._group)
            missing = table.schema() is None  # which may have been found out just now
        except TableMissing:
            missing = True
        if missing:
            return f"the table does not exist, but group {self._group} has written it up to {_ranges(required)}"
        if reached is None:
            return None
        behind = {partition: offset for partition, offset in required.items() if reached.get(partition, 0) < offset}
        if not behind:
            return None
        held = {partition: reached.get(partition, 0) for partition in behind}
        return (
            f"the table has the records up to {_ranges(held)}, but group {self._group} has written it up to "
            f"{_ranges(behind)}: it is an older copy, or was rolled back"
        )

    def written(self, name: str, reached: Offsets | None) -> Mapping[TopicPartition, str]:
        """Register the offsets that the table's commits contain now. Return the notes that change."""
        if reached is None:
            return {}
        table = table_digest(name)
        partitions = self._partitions.setdefault(table, set())
        partitions |= reached.keys() & self._tables.keys()
        changed = {}
        for partition in sorted(partitions):
            tables = self._tables[partition]
            if tables.get(table, 0) != reached.get(partition, 0):
                tables[table] = reached.get(partition, 0)
                changed[partition] = encode_note({digest: offset for digest, offset in tables.items() if offset})
        return changed


def _ranges(offsets: Offsets) -> str:
    return ", ".join(f"{topic}-{number}@{offset}" for (topic, number), offset in sorted(offsets.items()))
