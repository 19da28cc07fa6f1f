"""What decoders make of the records of one partition."""

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
    """What a run of records holds. ``skipped`` counts records that are no row changes (heartbeats, messages…).

    ``snapshots`` has the tables of which a snapshot begins among the records; None stands for all of the connector's.
    ``altered`` has those whose schema the source says to have changed, and from where on.
    ``notes`` are for the operator: what the topic lacks, said once; ``losses`` counts values of which the source's
    connector does not tell all. ``tells_too_little`` is set where records have too little of their events for reselect
    and its cache. ``topics`` are those that transforms have given the pieces, one for each; empty without transforms.
    ``dropped`` are the indexes of records with a value that transforms have dropped: changes that are not applied.
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
        """The indexes of the records that may hold changes and are not applied, ascending."""
        return sorted({*self.dropped, *(each.index for each in self.errant)})

    def add(self, other: Decoded) -> None:
        """Take over what ``other`` holds. Indexes of errant records stay as they are."""
        for each in fields(self):
            mine, its = getattr(self, each.name), getattr(other, each.name)
            setattr(self, each.name, mine or its if isinstance(mine, bool) else mine + its)
