"""Builds Actions from literal rows, for the suite of lake tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.model.actions import Actions, CarriedCells, Gates
from headrace.core.model.events import CellState, Column, RowVersion, TableId, Versions
from headrace.core.model.schema import Schema
from headrace.ports import Commit, TopicPartition

TOPIC = "shop.public.item"
SOURCE = TableId("shop", "shop", "public", "item")


class Cell(Enum):
    """Cells that the batch does not contain."""

    KEEP = CellState.UNCHANGED
    CARRY = CellState.CARRIED


KEEP, CARRY = Cell.KEEP, Cell.CARRY


@dataclass(frozen=True)
class Row:
    """One action.

    ``position`` is a small number (0: none); ``first`` is that of the oldest event, the same by default.

    ``at`` is the offset, ``source_time`` the same number unless given. ``carry`` is the index of the row in the batch
    from which CARRY cells are copied.
    """

    cells: Mapping[str, Any]
    position: int = 0
    at: int = 0
    first: int | None = None
    first_at: int | None = None
    partition: int = 0
    source_time: int | None = None
    delete: bool = False
    fresh: bool = False
    carry: int = -1

    def version(self, offset: int, position: int) -> RowVersion:
        time = offset if self.source_time is None else self.source_time
        return RowVersion(text(position), TOPIC, self.partition, offset, time)

    @property
    def last_version(self) -> RowVersion:
        return self.version(self.at, self.position)

    @property
    def first_version(self) -> RowVersion:
        first = self.position if self.first is None else self.first
        return self.version(self.at if self.first_at is None else self.first_at, first)


def text(position: int) -> bytes:
    """A position of fixed width, b"" for 0."""
    return b"00000.%020d" % position if position else b""


def delete(key: Mapping[str, Any], **more: Any) -> Row:
    """A delete by key."""
    return Row(key, delete=True, **more)


def actions(schema: pa.Schema, rows: Sequence[Row], key_fields: Sequence[str] = ("id",)) -> Actions:
    """The rows as one batch with the columns of ``schema``."""
    last = _versions([row.last_version for row in rows])
    first = _versions([row.first_version for row in rows])
    return Actions(
        table=SOURCE,
        key_fields=tuple(key_fields),
        key=pa.array([key_text(row.cells[name] for name in key_fields) for row in rows], pa.string()),
        delete=np.array([row.delete for row in rows], np.bool_),
        fresh=np.array([row.fresh for row in rows], np.bool_),
        version=last,
        gates=Gates.of(first),
        carried=CarriedCells(np.array([row.carry for row in rows], np.int64)),
        transaction=np.full(len(rows), -1),
        columns=tuple(_column(column, rows) for column in schema),
    )


def key_text(values: Any) -> str:
    """A text that differs for different keys."""
    return ",".join(str(value) for value in values)


def commit(batch_id: int = 1, **offsets: int) -> Commit:
    """A commit with the next offsets of partition 0, by topic."""
    places = {TopicPartition(topic, 0): offset for topic, offset in offsets.items()}
    return Commit(batch_id, "sink", "connect-sink", places, watermark=17)


def _versions(found: Sequence[RowVersion]) -> Versions:
    return Versions(
        TOPIC,
        np.array([version.position for version in found], "S26"),
        np.array([version.partition for version in found], np.int32),
        np.array([version.offset for version in found], np.int64),
        np.array([version.source_time for version in found], np.int64),
    )


def _column(column: pa.Field, rows: Sequence[Row]) -> Column:
    cells = [row.cells.get(column.name) for row in rows]
    values = [None if isinstance(cell, Cell) else cell for cell in cells]
    array = values_of(column.type, values)
    if not any(isinstance(cell, Cell) for cell in cells):
        return Column(column.name, Schema("string"), array)
    return Column(column.name, Schema("string"), array, np.array([_state(cell) for cell in cells], np.uint8))


def _state(cell: Any) -> CellState:
    if isinstance(cell, Cell):
        return cell.value
    return CellState.NULL if cell is None else CellState.VALUE


def values_of(data_type: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """An array. Dates and timestamps may be given as integers."""
    if pa.types.is_timestamp(data_type) and any(isinstance(value, int) for value in values):
        return pa.array(values, pa.int64()).view(data_type)
    if pa.types.is_date32(data_type) and any(isinstance(value, int) for value in values):
        return pa.array(values, pa.int32()).view(data_type)
    return pa.array(values, data_type)
