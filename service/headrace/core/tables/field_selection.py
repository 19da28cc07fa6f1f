"""Which columns a table gets: those of the events, less what the connector leaves out, plus metadata that it adds.

The words are those of Debezium: ``field.include.list`` and ``field.exclude.list`` as in its JDBC sink
(``field`` or ``topic:field``); ``table.metadata.fields`` takes what ``add.fields`` of ExtractNewRecordState does. Key
columns always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.core.merge.history import OPERATIONS
from headrace.core.model.cell_batch import CassandraBatch
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import Changes, Column, Truncate
from headrace.core.model.schema import Schema

METADATA = "table.metadata.fields"
FIELD_LISTS = ("field.include.list", "field.exclude.list", METADATA)

Piece = Changes | Truncate | CassandraBatch

_STRING, _INT64 = Schema("string", optional=True), Schema("int64", optional=True)

_FIELDS: dict[str, tuple[Schema, Callable[[Changes], pa.Array]]] = {
    "op": (_STRING, lambda changes: OPERATIONS.take(pa.array(changes.operation))),
    "source.name": (_STRING, lambda changes: _constant(changes, changes.table.name)),
    "source.db": (_STRING, lambda changes: _constant(changes, changes.table.database)),
    "source.schema": (_STRING, lambda changes: _constant(changes, changes.table.schema)),
    "source.table": (_STRING, lambda changes: _constant(changes, changes.table.table)),
    "source.txId": (_INT64, lambda changes: pa.array(changes.transaction, mask=changes.transaction < 0)),
    "source.ts_us": (_INT64, lambda changes: pa.array(changes.version.source_time)),
    "source.ts_ms": (_INT64, lambda changes: pa.array(changes.version.source_time // 1000)),
}
_BARE = {"name", "db", "schema", "table", "txId"}  # as Debezium looks for them in the source block


@dataclass(frozen=True, slots=True)
class AddedField:
    """A metadata column: ``field`` as the source block names it, ``column`` as the table does."""

    field: str
    column: str


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """What a connector says about the columns of its tables. By default they are those of the events."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    added: tuple[AddedField, ...] = ()

    def apply(self, changes: Piece) -> Piece:
        """The changes with the columns that are wanted; a truncate as it is. Nothing is copied.

        Metadata are of events, and a row of Cassandra has cells of many: there they are left out.
        """
        if isinstance(changes, Truncate) or not (self.include or self.exclude or self.added):
            return changes
        topic = changes.version.topic
        if isinstance(changes, CassandraBatch):
            return changes.with_fields(
                member.name for member in changes.fields if self.wants(topic, member.name, changes.key_fields)
            )
        columns = [column for column in changes.columns if self.wants(topic, column.name, changes.key_fields)]
        return replace(changes, columns=(*columns, *(_added(field, changes) for field in self.added)))

    def wants(self, topic: str, column: str, key_fields: Sequence[str]) -> bool:
        """Whether the table of a topic has a column of the events."""
        names = {column, f"{topic}:{column}"}
        listed = not names & self.exclude and (not self.include or bool(names & self.include))
        return column in key_fields or listed


def field_selection(
    include: Sequence[str], exclude: Sequence[str], add: Sequence[str], prefix: str = "__"
) -> FieldSelection:
    """From the options' values. Raises ConfigError for what goes not together and for metadata that nobody has."""
    if include and exclude:
        raise ConfigError(
            "field.include.list and field.exclude.list exclude each other; set one of them", "field.exclude.list"
        )
    return FieldSelection(frozenset(include), frozenset(exclude), tuple(_parsed(entry, prefix) for entry in add))


def _parsed(entry: str, prefix: str) -> AddedField:
    """``field``, ``source.field`` or ``field:new_name``."""
    name, _, renamed = entry.partition(":")
    field = f"source.{name}" if name in _BARE else name
    if field not in _FIELDS:
        known = ", ".join(_FIELDS)
        raise ConfigError(f"{METADATA}: {name} is not among the fields that can be added: {known}", METADATA)
    return AddedField(field, prefix + (renamed or name.replace(".", "_")))


def _added(added: AddedField, changes: Changes) -> Column:
    schema, values = _FIELDS[added.field]
    return Column(added.column, schema, values(changes))


def _constant(changes: Changes, text: str) -> pa.Array:
    return pa.array(np.full(len(changes), text, object), pa.string())
