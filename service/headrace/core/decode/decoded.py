"""The result of decoding the records of one partition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, fields

from headrace.core.decode.envelope_events import Errant
from headrace.core.decode.schema_changes import SchemaChange
from headrace.core.model.cell_batch import CassandraBatch
from headrace.core.model.events import Changes, RowVersion, TableId, Truncate
from headrace.core.model.notes import Note


@dataclass(slots=True)
class Decoded:
    """The content of consecutive records. ``skipped`` counts records that are not row changes (heartbeats, messages…).

    ``snapshots`` are the tables of which a snapshot begins among the records; None is all tables of the connector.
    ``altered`` are schema changes and their versions. ``notes`` are for the operator, once each. ``losses`` counts
    values that the source's connector sends incompletely. ``tells_too_little`` is whether the records' metadata is
    insufficient for reselect and its cache. ``topics`` are the topics of the pieces after transforms; empty without
    transforms. ``dropped`` are the indexes of records with a value that transforms have dropped: their changes are not
    applied.
    """

    pieces: list[Changes | Truncate | CassandraBatch] = field(default_factory=list)
    errant: list[Errant] = field(default_factory=list)
    skipped: int = 0
    snapshots: list[TableId | None] = field(default_factory=list)
    altered: list[tuple[SchemaChange, RowVersion]] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    losses: Counter[str] = field(default_factory=Counter)
    tells_too_little: bool = False
    topics: list[str] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)

    @property
    def lost(self) -> list[int]:
        """The indexes of records that may contain changes but are not applied, in ascending order."""
        return sorted({*self.dropped, *(each.index for each in self.errant)})

    def add(self, other: Decoded) -> None:
        """Append the content of ``other``. Indexes of errant records do not change."""
        for each in fields(self):
            mine, its = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, mine or its if isinstance(mine, bool) else mine + its)
