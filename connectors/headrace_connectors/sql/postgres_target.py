"""What a text of PostgreSQL is to become."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.model.catalog import HandlingModes, SqlType
from headrace.core.model.schema import Schema
from headrace_connectors.sql.cells import Reader

POSITIVE_INFINITY, NEGATIVE_INFINITY = "POSITIVE_INFINITY", "NEGATIVE_INFINITY"
"""As Debezium writes the infinities of numbers, dates and timestamps."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a text becomes: the Connect schema, the database's type and modifier, and the connector's modes."""

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
        """Fraction digits of a time type; 6 if none were declared."""
        return self.typmod if self.typmod >= 0 else 6


Choice = Callable[[Target], Reader]
"""Picks the conversion for a target."""


def always(read: Reader) -> Choice:
    """The choice where there is none."""
    return lambda target: read
