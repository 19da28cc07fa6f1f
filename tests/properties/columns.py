"""The columns of generated tables: their types, their schema changes, and events as columns.

A table's columns are pairs of a name and a Connect type, the key ``id`` first. Schema changes are those of ``merge.md``
section 8 that must work: columns are added, dropped, added again, and get wider types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import groupby
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from properties.reference_model import Columns, Event

from headrace.core.model.events import CellState, Changes, Column, KeyChanges, Operation, TableId, Truncate, Versions
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Schema

DECIMAL = "org.apache.kafka.connect.data.Decimal"
KINDS = {
    "int32": (pa.int32(), Schema("int32", optional=True)),
    "int64": (pa.int64(), Schema("int64", optional=True)),
    "float": (pa.float32(), Schema("float", optional=True)),
    "double": (pa.float64(), Schema("double", optional=True)),
    "string": (pa.string(), Schema("string", optional=True)),
    "decimal": (pa.decimal128(4, 1), Schema("bytes", optional=True, name=DECIMAL)),
    "wide decimal": (pa.decimal128(9, 1), Schema("bytes", optional=True, name=DECIMAL)),
}
WIDER = {"int32": "int64", "float": "double", "decimal": "wide decimal"}
NEW: Columns = (("c", "string"), ("d", "decimal"), ("e", "int32"))
BEGIN: Columns = (("id", "int32"), ("a", "int32"), ("b", "float"))


def altered(columns: Columns, choose: Random) -> Columns:
    """The columns after one ALTER TABLE."""
    what = choose.choice(("add", "add", "widen", "widen", "widen", "drop"))
    names = [name for name, _ in columns]
    if what == "add":
        absent = [column for column in (*NEW, *BEGIN) if column[0] not in names]
        return (*columns, choose.choice(absent)) if absent else columns
    if what == "widen":
        narrow = [name for name, column_type in columns if column_type in WIDER]
        chosen = choose.choice(narrow) if narrow else None
        return tuple((name, WIDER[column_type] if name == chosen else column_type) for name, column_type in columns)
    gone = choose.choice(names[1:]) if len(names) > 2 else None
    return tuple(column for column in columns if column[0] != gone)


def value(column_type: str, choose: Random) -> Any:
    """A value of a type, often one that does not fit into a narrower type."""
    number = choose.randint(0, 9)
    if column_type == "int64" and number > 4:
        return 2**40 + number
    if column_type in ("float", "double"):
        return number * (0.1 if column_type == "double" else 0.25)
    if column_type == "string":
        return f"text {number}"
    if "decimal" in column_type:
        return Decimal(f"{1234567 if column_type == 'wide decimal' else 12}.{number}")
    return number


def pieces_of(events: Sequence[Event]) -> Iterator[tuple[int, Changes | Truncate]]:
    """The indexes of tables and their changes, as a decoder returns them: split at truncates and other schemas."""
    for (table, _, truncates), run in groupby(events, _shape):
        if truncates:
            yield from ((table, Truncate(table_id(table), event.version)) for event in run)
        else:
            yield table, changes_of(list(run))


def _shape(event: Event) -> tuple[int, Columns, bool]:
    return event.table, event.columns, event.operation is Operation.TRUNCATE


def table_id(table: int) -> TableId:
    """A table by its index, under the name that its source uses."""
    return TableId("s", "db", "public", f"t{table}")


def changes_of(events: Sequence[Event]) -> Changes:
    """Events of one table and schema in columns."""
    kinds = dict(events[0].columns)
    key, column_type = KINDS[kinds.pop("id")]
    keys = Column("id", column_type, pa.array([event.key for event in events], key))
    return Changes(
        table=table_id(events[0].table),
        key_fields=("id",),
        operation=np.array([event.operation for event in events], np.uint8),
        key=canonical_keys([keys.values]),
        version=Versions(
            events[0].version.topic,
            np.array([event.version.position for event in events], "S26"),
            np.array([event.version.partition for event in events], np.int32),
            np.array([event.version.offset for event in events], np.int64),
            np.array([event.version.source_time for event in events], np.int64),
        ),
        transaction=np.array([event.transaction for event in events], np.int64),
        columns=(keys, *(_column(name, *KINDS[kinds[name]], events) for name in kinds)),
        key_changes=KeyChanges(
            {i: f"={event.old_key}" for i, event in enumerate(events) if event.old_key is not None},
            frozenset(i for i, event in enumerate(events) if event.moved),
            {i: f"={event.new_key}" for i, event in enumerate(events) if event.new_key is not None},
        ),
    )


def _column(name: str, column_type: pa.DataType, schema: Schema, events: Sequence[Event]) -> Column:
    cells = [event.cells.get(name, (CellState.NULL, None)) for event in events]
    states = np.array([state for state, _ in cells], np.uint8)
    values = pa.array([value for _, value in cells], column_type)
    return Column(name, schema, values, states if (states > CellState.NULL).any() else None)
