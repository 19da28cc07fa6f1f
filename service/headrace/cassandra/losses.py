"""Information that Debezium's Cassandra connector loses (``merge.md`` section 7; observed on connector 3.4.1).

Headrace does not guess it: it writes the value as it arrived, counts it, and adds a note to the task's status. Only the
connector's own types are known: where a bigint and a varint arrive alike, the note begins with *if*.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from headrace.core.model.notes import Note
from headrace.core.model.schema import Schema


class Loss(StrEnum):
    """Kinds of lost information; the values are labels of a metric."""

    COLLECTION = "collection"
    STATIC = "static_column"
    VARINT = "varint"
    DECIMAL = "decimal"
    DURATION = "duration"
    INET = "inet"
    TUPLE = "tuple"


TEXTS: Mapping[Loss, str] = {
    Loss.COLLECTION: (
        "adding to, removing from and replacing a collection look alike, unless it is frozen: each counts as replacing "
        "it"
    ),
    Loss.STATIC: (
        "if the table has static columns: the connector does not send their writes, so they keep the snapshot's values"
    ),
    Loss.VARINT: (
        "if it is a varint: beyond 64 bits it arrives wrapped around, unless the connector has "
        "varint.handling.mode=precise or string"
    ),
    Loss.DECIMAL: (
        "if it is a decimal: it arrives as the nearest double, unless the connector has "
        "decimal.handling.mode=precise or string"
    ),
    Loss.DURATION: "if it is a duration: its months and days arrive as a fixed number of nanoseconds",
    Loss.INET: "an inet arrives with a slash before the address, and is stored so",
    Loss.TUPLE: "the members of a tuple arrive, and are stored, as field1, field2…",
}

_INT32 = range(-(2**31), 2**31)
_LOSSES_OF_NAMES = {"io.debezium.time.NanoDuration": Loss.DURATION}
_LOSSES_OF_TYPES = {"array": Loss.COLLECTION, "map": Loss.COLLECTION, "int64": Loss.VARINT, "double": Loss.DECIMAL}


class Losses:
    """Count the losses of a topic by kind and column, and make one note for each kind and column."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[Loss, str | None]] = Counter()
        self._notes: list[Note] = []
        self._new_counts: Counter[str] = Counter()

    def note(self, loss: Loss, column: str | None = None, events: int = 1) -> None:
        """Add ``events`` events with a loss; 0 where only the table's definition shows that the loss may occur."""
        if (loss, column) not in self.counts:
            self._notes.append(Note(TEXTS[loss], column))
        self.counts[loss, column] += events
        self._new_counts[loss] += events

    def drain(self) -> tuple[list[Note], Counter[str]]:
        notes, counts = self._notes, +self._new_counts
        self._notes, self._new_counts = [], Counter()
        return notes, counts


def losses_of(value: Any, schema: Schema | None) -> Iterator[Loss]:
    """Return what the value of a live cell may have lost; ``schema`` is None where records have none."""
    if isinstance(value, str):
        if _is_inet(value):
            yield Loss.INET
    elif isinstance(value, Mapping) and value and all(name == f"field{i}" for i, name in enumerate(value, 1)):
        yield Loss.TUPLE
    elif schema is None:
        if isinstance(value, list | Mapping):  # a map and a user-defined type have the same JSON
            yield Loss.COLLECTION
        elif isinstance(value, float):
            yield Loss.DECIMAL
        elif isinstance(value, int) and value not in _INT32:
            yield Loss.VARINT
            yield Loss.DURATION
    elif schema.name is None and schema.type in _LOSSES_OF_TYPES:
        yield _LOSSES_OF_TYPES[schema.type]
    elif schema.name in _LOSSES_OF_NAMES:
        yield _LOSSES_OF_NAMES[schema.name]


def _is_inet(text: str) -> bool:
    """Whether a text is an address without a host name, as Java writes it."""
    if not text.startswith("/"):
        return False
    try:
        ipaddress.ip_address(text[1:])
    except ValueError:
        return False
    return True
