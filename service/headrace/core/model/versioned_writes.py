"""Writes of cells that each have a version of their own, from a source whose rows have none (``merge.md`` section 7).

A change of a row has one version, which fold, gate and ledger compare. A source that merges its replicas cell by cell
has no such version. The pack of that source decodes its events to a subclass of ``VersionedWrites``, which merges them
with the stored rows by the rules of the source. Field selection, queue and pipeline use only what is declared here.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa

from headrace.core.model.actions import Actions
from headrace.core.model.events import OWN_PREFIX, Content, RowVersion
from headrace.core.model.schema import Field

CELL_VERSIONS = f"{OWN_PREFIX}cells"
"""The column in which such a table stores the versions of a row's cells, in the form of the source's pack."""

Key = tuple[Any, ...]
"""Values of the first columns of the primary key, or of all of them, in their order."""


@dataclass(frozen=True, slots=True)
class MergedWrites:
    """The changes of writes to their table: rows to write, and tombstones to store in the ledger before them."""

    actions: Actions
    tombstones: Mapping[str, RowVersion]


class VersionedWrites(Content):
    """Writes of one table. ``fields`` are the columns with the schemas of their values, the key's first.

    ``version`` is that of the last event; its source time is the newest of all. ``size`` is in bytes.
    """

    __slots__ = ()

    source: ClassVar[str]
    """The name of the source database, for messages."""
    key_fields: tuple[str, ...]
    fields: tuple[Field, ...]
    version: RowVersion

    @property
    def newest_source_time(self) -> int:
        return self.version.source_time

    @abstractmethod
    def with_fields(self, names: Iterable[str]) -> Self:
        """Return the writes with the cells of these columns only."""

    @abstractmethod
    def followed_by(self, other: VersionedWrites) -> Self | None:
        """Return these writes and then ``other``, None if they are of another table or of types that do not fit."""

    @abstractmethod
    def keys(self, length: int) -> Sequence[Key]:
        """Return the distinct keys of ``length`` columns, whose stored rows ``merged_with`` needs."""

    @abstractmethod
    def merged_with(self, stored: pa.Table, ledger: Mapping[str, RowVersion], now: int) -> MergedWrites:
        """Merge the writes with stored rows of the lake table, and with its ledger.

        The result depends neither on the order of writes nor on how often they are merged. ``now`` (microseconds since
        the epoch) decides which cells have expired.
        """


W = TypeVar("W", bound=VersionedWrites)


def join_writes(writes: Iterable[W]) -> list[W]:
    """Join writes, in their order, as far as their tables and schemas allow."""
    result: list[W] = []
    for later in writes:
        together = result[-1].followed_by(later) if result else None
        if together is None:
            result.append(later)
        else:
            result[-1] = together
    return result
