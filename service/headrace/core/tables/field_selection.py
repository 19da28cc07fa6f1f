"""Select the columns of a table: columns of the events, without those that the connector excludes, plus metadata.

``field.include.list`` and ``field.exclude.list`` have the syntax of Debezium's JDBC sink (``field`` or
``topic:field``), ``table.metadata.fields`` that of ``add.fields`` of ExtractNewRecordState. Key columns always stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from headrace.core.decode.decoded import TableEvents
from headrace.core.merge.history import OPERATIONS
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import Changes, Column, Truncate
from headrace.core.model.schema import Schema
from headrace.core.model.versioned_writes import VersionedWrites

METADATA = "table.metadata.fields"

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
_BARE = {"name", "db", "schema", "table", "txId"}  # Debezium finds these names in the source block


@dataclass(frozen=True, slots=True)
class AddedField:
    """A metadata column: ``field`` as the source block names it, ``column`` as the table does."""

    field: str
    column: str


@dataclass(frozen=True, slots=True)
class FieldSelection:
    """The columns that a connector selects for its tables. The default is the columns of the events."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()
    added: tuple[AddedField, ...] = ()

    def apply(self, changes: TableEvents) -> TableEvents:
        """Return the changes with the selected columns; a truncate is returned unchanged. No cell is copied.

        Metadata belong to one event. A row of ``VersionedWrites`` has cells of several, so that it
        has no metadata columns.
        """
        if isinstance(changes, Truncate) or not (self.include or self.exclude or self.added):
            return changes
        topic = changes.version.topic
        if isinstance(changes, VersionedWrites):
            return changes.with_fields(
                member.name for member in changes.fields if self.wants(topic, member.name, changes.key_fields)
            )
        columns = [column for column in changes.columns if self.wants(topic, column.name, changes.key_fields)]
        for added in self.added:
            schema, values = _FIELDS[added.field]
            columns.append(Column(added.column, schema, values(changes)))
        return replace(changes, columns=tuple(columns))

    def wants(self, topic: str, column: str, key_fields: Sequence[str]) -> bool:
        names = {column, f"{topic}:{column}"}
        listed = not names & self.exclude and (not self.include or bool(names & self.include))
        return column in key_fields or listed


def field_selection(
    include: Sequence[str], exclude: Sequence[str], add: Sequence[str], prefix: str = "__"
) -> FieldSelection:
    """Parse the options' values. Raises ConfigError for options that exclude each other, and for unknown metadata."""
    if include and exclude:
        raise ConfigError(
            "field.include.list and field.exclude.list exclude each other; set one of them", "field.exclude.list"
        )
    added = []
    for entry in add:  # ``field``, ``source.field`` or ``field:new_name``
        name, _, new_name = entry.partition(":")
        field = f"source.{name}" if name in _BARE else name
        if field not in _FIELDS:
            fields = ", ".join(_FIELDS)
            raise ConfigError(f"{METADATA}: {name} is not a metadata field; use one of: {fields}", METADATA)
        added.append(AddedField(field, prefix + (new_name or name.replace(".", "_"))))
    return FieldSelection(frozenset(include), frozenset(exclude), tuple(added))


def _constant(changes: Changes, text: str) -> pa.Array:
    return pa.array(np.full(len(changes), text, object), pa.string())
