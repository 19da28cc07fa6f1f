"""The result of decoding the records of one partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields
from typing import TypeVar

from headrace.core.decode.envelope_events import Errant
from headrace.core.decode.messages import Message, RoutedEvents, TableEvents
from headrace.core.model.notes import Note

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
        """The messages of one type, in order."""
        return [message for message in self.messages if isinstance(message, message_type)]

    @property
    def events(self) -> list[TableEvents]:
        """The events of tables, in order."""
        return [message.events for message in self.of(RoutedEvents)]

    @property
    def lost(self) -> list[int]:
        """The indexes of records that may contain changes but are not applied, in ascending order."""
        return sorted({*self.dropped, *(each.index for each in self.errant)})

    def add(self, other: Decoded) -> None:
        """Append the content of ``other``. Indexes of errant records do not change."""
        for each in fields(self):
            setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
