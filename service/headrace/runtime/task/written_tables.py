"""Which tables the group has written, and how far: a table that is missing or behind is not filled from the middle.

Every commit of a group's offset carries a note of the tables that have committed records of its partition, and up to
which offset (``core/batch/offsets.py``). A table commit carries the offsets as well. So when a task begins, and
before each batch, both sides can be compared: a table that tells a lower offset than the note has been dropped, emptied
or replaced by an older copy, and the records in between would not be read again. Whoever else sets the group's offsets
writes no note, and with that takes the tables as they are.
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
    """The notes of one task's partitions, from one assignment to the next. Of one event loop, except ``check``.

    With ``recreate`` a table that is missing or behind continues at the group's offset.
    """

    def __init__(self, connector: str, group: str, *, recreate: bool = False) -> None:
        self._connector = connector
        self._group = group
        self._recreate = recreate
        self._tables: dict[TopicPartition, dict[str, int]] = {}

    def begin(self, notes: Mapping[TopicPartition, OffsetNote]) -> None:
        """Another assignment begins, of these partitions. What lies beyond the group's offset is read again."""
        self._tables = {
            partition: {table: min(offset, committed.offset) for table, offset in decode_note(committed.note).items()}
            for partition, committed in notes.items()
        }

    def required(self, name: str) -> Offsets:
        """The next offsets that the table has to have, since the records below them are not read again."""
        table = table_digest(name)
        return {partition: tables[table] for partition, tables in self._tables.items() if tables.get(table)}

    def check(self, name: str, table: TableReader, required: Offsets) -> None:
        """Raises TableMissing where the table lacks records that are not read again, unless that is wanted.

        Then the table is taken as it is, and what it had to have is forgotten.
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
        """What the table lacks, in words; None where it lacks nothing, or where no commit tells."""
        reached = None
        try:
            if table.schema() is not None:
                reached = table.reached(self._group)
            missing = table.schema() is None  # which may have been found out just now
        except TableMissing:
            missing = True
        if missing:
            return f"the table does not exist, but group {self._group} has written it up to {_places(required)}"
        if reached is None:
            return None
        behind = {place: offset for place, offset in required.items() if reached.get(place, 0) < offset}
        if not behind:
            return None
        stands = {place: reached.get(place, 0) for place in behind}
        return (
            f"the table has the records up to {_places(stands)}, but group {self._group} has written it up to "
            f"{_places(behind)}: it is an older copy, or was rolled back"
        )

    def written(self, name: str, reached: Offsets | None) -> Mapping[TopicPartition, str]:
        """The table's commits tell these offsets now. Returns the notes that changed with that."""
        if reached is None:
            return {}
        table = table_digest(name)
        changed = {}
        for partition, tables in self._tables.items():
            if tables.get(table, 0) != reached.get(partition, 0):
                tables[table] = reached.get(partition, 0)
                changed[partition] = encode_note({each: offset for each, offset in tables.items() if offset})
        return changed


def _places(offsets: Offsets) -> str:
    return ", ".join(f"{topic}-{number}@{offset}" for (topic, number), offset in sorted(offsets.items()))
