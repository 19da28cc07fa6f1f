"""The target of a text of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.model.catalog import HandlingModes, SqlType
from headrace.core.model.schema import Schema
from headrace_connectors.sql.cells import Reader

POSITIVE_INFINITY, NEGATIVE_INFINITY = "POSITIVE_INFINITY", "NEGATIVE_INFINITY"
"""The infinities of numbers, dates and timestamps in Debezium's form."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a text: the Connect schema, the database's type and modifier, and the connector's modes."""

    schema: Schema
    kind: SqlType
    typmod: int
    modes: HandlingModes
    element: bool = False

    @property
    def semantic(self) -> str:
        """The last segment of the schema's name (adjustment may change the others)."""
        return (self.schema.name or "").rpartition(".")[2]

    @property
    def digits(self) -> int:
        """The fraction digits of a time type; 6 if none were declared."""
        return self.typmod if self.typmod >= 0 else 6


Choice = Callable[[Target], Reader]
"""Selects the conversion for a target."""


def always(read: Reader) -> Choice:
    """The selection for targets without a conversion."""
    return lambda target: read
