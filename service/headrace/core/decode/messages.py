"""The messages that a decoder makes of the records of a partition, in the order of the records.

A message concerns one table or its topic. ``runtime/task/message_router.py`` applies each to the queue of its table or
to reselect.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.decode.schema_changes import SchemaChange
from headrace.core.model.events import Changes, RowVersion, TableId, Truncate
from headrace.core.model.versioned_writes import VersionedWrites

TableEvents = Changes | Truncate | VersionedWrites
"""Decoded events of one table."""


@dataclass(frozen=True, slots=True)
class RoutedEvents:
    """Events of one table, in order of arrival. ``topic`` is their topic after transforms, which names the table."""

    topic: str
    events: TableEvents


@dataclass(frozen=True, slots=True)
class SnapshotBegan:
    """A snapshot of a table begins; of all tables of the connector if ``table`` is None."""

    table: TableId | None


@dataclass(frozen=True, slots=True)
class TableAltered:
    """A connector reports a schema change of a table. ``version`` orders it among the changes of the table's rows."""

    change: SchemaChange
    version: RowVersion


@dataclass(frozen=True, slots=True)
class RecordsLost:
    """Records of a partition that may contain changes are not applied; the last of them is at ``offset``."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class InsufficientMetadata:
    """The records of a topic do not contain the metadata that reselect and its cache require."""

    topic: str


Message = RoutedEvents | SnapshotBegan | TableAltered | RecordsLost | InsufficientMetadata
