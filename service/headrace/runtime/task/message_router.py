"""Apply the messages of a decoded chunk: what concerns the cache at once, what concerns a table through its queue."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from headrace.core.decode.decoded import (
    InsufficientMetadata,
    Message,
    RecordsLost,
    RoutedEvents,
    SnapshotBegan,
    TableAltered,
)
from headrace.core.model.absent_columns import ColumnDefaults
from headrace.core.model.events import Content
from headrace.core.model.notes import Note
from headrace.runtime.observation import Observer
from headrace.runtime.pipeline.reselect import Reselect

log = logging.getLogger(__name__)


class MessageRouter:
    """Routes the messages of one task. ``fills_defaults``: rows get the defaults of columns that are added."""

    def __init__(self, connector: str, reselect: Reselect, observer: Observer, *, fills_defaults: bool) -> None:
        self._connector = connector
        self._reselect = reselect
        self._observer = observer
        self._fills_defaults = fills_defaults

    def apply(self, topic: str, messages: Iterable[Message], assigned: Collection[str]) -> list[tuple[str, Content]]:
        """Apply the messages of a chunk of ``topic``, and return what belongs in queues, with the topic of its rows.

        Catalog and cache are invalidated before any of these events is queued, so that no batch completes its rows from
        an older entry. ``assigned`` are the topics of the task.
        """
        queued: list[tuple[str, Content]] = []
        for message in messages:
            match message:
                case RoutedEvents(topic_of_rows, events):
                    queued.append((topic_of_rows, events))
                case RecordsLost():
                    self._reselect.cache.lose(message.topic, message.partition, message.offset)  # proven: N9
                case SnapshotBegan(table):
                    self._reselect.cache.begin_snapshot(table)
                case TableAltered(change, _):
                    self._reselect.catalog.discard(change.table)
                    self._reselect.cache.alter(change.table)
                    queued += self._new_columns(topic, message, assigned)
                case InsufficientMetadata():
                    self._reselect.exclude_topic(message.topic)
        return queued

    def _new_columns(self, topic: str, altered: TableAltered, assigned: Collection[str]) -> list[tuple[str, Content]]:
        """The defaults of columns that are added, with the topic of the table's rows; a note if nothing fills them."""
        change, version = altered.change, altered.version
        topic_of_rows = f"{change.table.name}.{change.table.database}.{change.table.table}"
        if not (version.position and self._fills_defaults and topic_of_rows in assigned):
            self.note(topic, change.unless_filled)
        elif change.defaults:
            return [(topic_of_rows, ColumnDefaults(change.table, version, change.defaults))]
        return []

    def note(self, topic: str, notes: Iterable[Note]) -> None:
        """Log notes on a topic, and add them to the task's status."""
        for note in notes:
            subject = note.subject(topic)
            log.warning("%s: %s: %s", self._connector, subject, note.text)
            self._observer.on_note(note.text, subject)
