"""Batches of Cassandra's writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.model.cell_writes import CellWrites, Key, Write
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import RowVersion, TableId
from headrace.core.model.inference import infer_schema, is_inferred
from headrace.core.model.schema import Field


@dataclass(frozen=True, slots=True)
class CassandraBatch:
    """Writes of one table. ``fields`` are the columns with the schemas of their values, the key's first.

    ``version`` is that of the batch's last event; its source time is the newest of the batch. ``size`` is in bytes.
    """

    table: TableId
    key_fields: tuple[str, ...]
    fields: tuple[Field, ...]
    writes: tuple[Write, ...]
    version: RowVersion
    size: int = 0

    def __len__(self) -> int:
        return len(self.writes)

    def with_fields(self, names: Iterable[str]) -> CassandraBatch:
        """Return the batch with the cells of these columns only."""
        kept = set(names)
        writes: list[Write] = []
        for write in self.writes:
            if isinstance(write, CellWrites):
                write = replace(write, cells={name: cell for name, cell in write.cells.items() if name in kept})
            writes.append(write)
        return replace(self, fields=tuple(each for each in self.fields if each.name in kept), writes=tuple(writes))

    def keys(self, length: int) -> list[Key]:
        """Return the distinct keys of ``length`` columns, whose stored rows are needed."""
        return list(dict.fromkeys(write.key for write in self.writes if len(write.key) == length))


def joined(batches: Sequence[CassandraBatch]) -> list[CassandraBatch]:
    """Join batches, in their order, as far as their schemas allow."""
    result: list[CassandraBatch] = []
    for batch in batches:
        together = _joined(result[-1], batch) if result else None
        if together is None:
            result.append(batch)
        else:
            result[-1] = together
    return result


def _joined(one: CassandraBatch, other: CassandraBatch) -> CassandraBatch | None:
    if (one.table, one.key_fields) != (other.table, other.key_fields):
        return None
    writes = one.writes + other.writes
    fields = _common({member.name: member for member in one.fields}, other.fields, one.key_fields, writes)
    if fields is None:
        return None
    time = max(one.version.source_time, other.version.source_time)
    version = replace(other.version, source_time=time)
    return CassandraBatch(one.table, one.key_fields, fields, writes, version, one.size + other.size)


def _common(
    known: dict[str, Field], others: Sequence[Field], key_fields: tuple[str, ...], writes: Sequence[Write]
) -> tuple[Field, ...] | None:
    """Return the fields of both batches, with inferred types inferred again from all values. None if types differ."""
    for member in others:
        before = known.setdefault(member.name, member)
        if before.schema == member.schema:
            continue
        if not (is_inferred(before.schema) and is_inferred(member.schema)):
            return None
        try:
            known[member.name] = Field(member.name, infer_schema(_values(member.name, key_fields, writes)))
        except BadRecord:  # no common type: the table's type decides whether the later values fit
            return None
    return tuple(known.values())


def _values(name: str, key_fields: tuple[str, ...], writes: Sequence[Write]) -> list[Any]:
    if name in key_fields:
        index = key_fields.index(name)
        return [write.key[index] for write in writes if index < len(write.key)]
    return [write.cells[name].value for write in writes if isinstance(write, CellWrites) and name in write.cells]
