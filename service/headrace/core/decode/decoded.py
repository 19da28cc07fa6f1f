"""The result of decoding consecutive records of a partition, as messages in the order of the records.

A message concerns one table or its topic. ``runtime/task/message_router.py`` applies each to the queue of its table or
to reselect.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.core.decode.records import Errant
from headrace.core.decode.schema_changes import SchemaChange
from headrace.core.model.events import Changes, RowVersion, TableId, Truncate
from headrace.core.model.notes import Note
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


M = TypeVar("M", bound=Message)


@dataclass(slots=True)
class Decoded:
    """The content of consecutive records.

    ``messages`` are for tables and topics, in the order of the records. The other fields are for the task: ``skipped``
    counts records that are not row changes (heartbeats, messages…), ``notes`` are for the operator, once each,
    ``losses`` counts values that the source's connector sends incompletely. ``dropped`` are the indexes of records with
    a value that transforms have dropped: their changes are not applied.
    """

    messages: list[Message] = field(default_factory=list)
    errant: list[Errant] = field(default_factory=list)
    skipped: int = 0
    notes: list[Note] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)
    dropped: list[int] = field(default_factory=list)

    def of(self, message_type: type[M]) -> list[M]:
        return [message for message in self.messages if isinstance(message, message_type)]

    @property
    def events(self) -> list[TableEvents]:
        return [message.events for message in self.of(RoutedEvents)]

    @property
    def lost(self) -> list[int]:
        """The indexes of records that may contain changes but are not applied, in ascending order."""
        return sorted({*self.dropped, *(errant.index for errant in self.errant)})

    def add(self, other: Decoded) -> None:
        """Append the content of ``other``. Indexes of errant records do not change."""
        self.messages += other.messages
        self.errant += other.errant
        self.skipped += other.skipped
        self.notes += other.notes
        self.losses.update(other.losses)
        self.dropped += other.dropped
