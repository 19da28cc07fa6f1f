"""The tables of a connector that requests have paused, as its record ``headrace-paused-tables-<n>`` stores them.

The record has their topics as well: a task that has read nothing yet must not read them.

Tests: ``tests/unit/core/connect/test_paused_tables.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.core.model.instants import iso_text


@dataclass(frozen=True, slots=True)
class PausedTable:
    """A table that is neither read nor written. ``since`` is in seconds since the epoch."""

    topics: tuple[str, ...]
    since: float


PausedTables = Mapping[str, PausedTable]
"""By the name of the table."""


def topics_of(paused: PausedTables) -> frozenset[str]:
    return frozenset(topic for table in paused.values() for topic in table.topics)


def covering(paused: PausedTables, topics: Iterable[str]) -> list[str]:
    """Return the paused tables that together have all of these topics, none if a topic is not paused."""
    wanted = set(topics)
    if not wanted or not wanted <= topics_of(paused):
        return []
    return sorted(name for name, table in paused.items() if not wanted.isdisjoint(table.topics))


def paused_tables(document: Mapping[str, Any]) -> PausedTables:
    """Return the tables of a stored document. Raises an exception for one that is not usable."""
    return {
        _text(name): PausedTable(tuple(map(_text, entry["topics"])), datetime.fromisoformat(entry["since"]).timestamp())
        for name, entry in document["tables"].items()
    }


def paused_tables_document(paused: PausedTables) -> Mapping[str, Any]:
    return {
        "tables": {
            name: {"topics": list(table.topics), "since": iso_text(table.since)} for name, table in paused.items()
        }
    }


def _text(value: Any) -> str:
    """Return text that an answer can contain. Raises TypeError or UnicodeEncodeError for anything else."""
    if not isinstance(value, str):
        raise TypeError("the name of a table or topic is not text")
    value.encode()
    return value
