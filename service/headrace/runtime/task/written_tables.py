"""Detect tables that are missing or older than the group's offsets, so that no records between them are lost.

Every commit of a group's offset contains a note: which tables contain the records of its partition, and up to which
offset (``core/batch/offsets.py``). A table commit contains the offsets as well. Both are compared when a task begins
and before each batch. A table with a lower offset than the note was dropped, emptied or replaced by an older copy, and
the records in between would not be read again. Other tools that set the group's offsets write no note: then the tables
are accepted as they are.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headrace.core.batch.offsets import decode_note, encode_note, table_digest
from headrace.core.model.errors import TableMissing
from headrace.ports import OffsetNote, TableReader, TopicPartition

log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]

_WAYS_OUT = (
    "restore it; or stop the connector and set the offsets of its group (PATCH /connectors/{connector}/offsets): back, "
    "so that the records are read again, or to where they are, to continue without them. table.missing=recreate "
    "continues without them as well; headrace verify --repair then fills the table from the source"
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

    def required(self, name: str) -> Offsets:
        """Return the offsets up to which the table must contain the records, because they are not read again."""
        table = table_digest(name)
        return {partition: tables[table] for partition, tables in self._tables.items() if tables.get(table)}

    def check(self, name: str, table: TableReader, required: Offsets) -> None:
        """Raise TableMissing if the table does not contain records that are not read again.

        With ``recreate``, accept the table as it is and discard the notes on it.
        """
        if not required:
            return
        lost = self._lost(table, required)
        if lost is None:
            return
        text = f"{name}: {lost}"
        if not self._recreate:
            ways_out = _WAYS_OUT.format(connector=self._connector)
            raise TableMissing(f"{text}: the records in between would be missing; {ways_out}")
        log.warning("%s; it continues at the group's offsets, since table.missing=recreate", text)
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
        found = {partition: reached.get(partition, 0) for partition in behind}
        return (
            f"the table has the records up to {_ranges(found)}, but group {self._group} has written it up to "
            f"{_ranges(behind)}: it is an older copy, or was rolled back"
        )

    def written(self, name: str, reached: Offsets | None) -> Mapping[TopicPartition, str]:
        """Register the offsets that the table's commits contain now. Return the notes that change."""
        if reached is None:
            return {}
        table = table_digest(name)
        changed = {}
        for partition, tables in self._tables.items():
            if tables.get(table, 0) != reached.get(partition, 0):
                tables[table] = reached.get(partition, 0)
                changed[partition] = encode_note({each: offset for each, offset in tables.items() if offset})
        return changed


def _ranges(offsets: Offsets) -> str:
    return ", ".join(f"{topic}-{number}@{offset}" for (topic, number), offset in sorted(offsets.items()))
