"""The lakehouse: tables, their ledgers, and the session that opens them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from headrace.core.merge.history import History
from headrace.core.model.events import Actions, RowVersion
from headrace.core.tables.table_layout import TableLayout
from headrace.ports.feed import TopicPartition


@dataclass(frozen=True, slots=True)
class Commit:
    """What a table commit says about itself, stored with it (``merge.md`` section 9).

    ``offsets`` are next offsets by topic and partition; ``watermark`` is the source time (microseconds) up to which all
    partitions are in, -1 if unknown. Without a ``group`` the commit is no batch of a topic (a repair): it says nothing
    of offsets itself. Whatever is stored carries on the offsets of the commit before it, see ``LakeTable.reached``.
    """

    batch_id: int
    connector: str
    group: str = ""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    watermark: int = -1


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge did: rows updated or inserted, and rows deleted."""

    upserted: int
    deleted: int


class TableReader(Protocol):
    """What the pipeline, ``headrace verify`` and the offsets of a group read of a table.

    A table that cannot be read is never an empty one. A table that this handle has seen and that no longer exists
    raises TableMissing from every call, unless ``TableOptions.recreate``; storage or a catalog that does not answer
    raises Retriable.
    """

    def schema(self) -> pa.Schema | None:
        """The data columns (without ``__headrace_``), or None while the table does not exist."""

    def key_fields(self) -> tuple[str, ...]:
        """The columns of the row key, in the order of the table's canonical keys.

        Empty while the table does not exist, and where it was made by other means.
        """

    def stored(self, actions: Actions) -> Mapping[str, RowVersion]:
        """The versions of the rows that stand under the actions' keys, by canonical key."""

    def read(self, keys: pa.Table) -> pa.Table:
        """The rows under ``keys`` (the key columns, in the table's types): all data columns and Headrace's own.

        A key that several rows have brings all of them. Empty without a table.
        """

    def scan(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """These columns of every row, in pieces that fit memory and in any order; nothing without a table."""

    def topics(self) -> Collection[str]:
        """The topics that the rows come from, apart from rows that were written by other means."""

    def reached(self, group: str) -> Mapping[TopicPartition, int] | None:
        """The next offsets up to which the commits of the table have a consumer group's records, as they are now.

        None where there is no table, or no commit that says so any more. Every commit, of upkeep and repairs as well,
        carries on what the commit before it said, the highest offset of each partition, so that the newest commit
        alone tells all; what a rollback or RESTORE has undone does not count. Cheap while nobody else commits.
        """

    def offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The same, and where no commit says so what the rows themselves tell (a history's are what is in it)."""


class TableWriter(Protocol):
    """What the pipeline writes a table with. Every call that takes a ``Commit`` is one visible commit of the table.

    ``merge`` is one way to write actions. Another one, such as small batches that are committed through the format's
    own API with deletion vectors, is a further method here with the same arguments and the same counts: the pipeline
    (``runtime/pipeline/table_pipeline.py``) chooses between them, and fold, reselect and ledger do not change.
    """

    def evolve(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        """Create the table, or add and widen columns so that ``schema`` fits. Raises Fatal when it cannot be done."""

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions that rank above the stored rows (``Actions`` says when), in one visible step per commit.

        An upsert that has no stored row is inserted only if it keeps no stored cell. Counts what was applied. A
        CARRIED cell is taken from the stored row of ``carry_from`` as it was before this merge, in the same commit;
        where that row does not stand, or not in the version that ``carried`` tells, the action does not apply.
        Without an action nothing is committed.
        """

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove every row that ``floor`` outranks."""

    def fill(self, column: str, value: pa.Scalar, before: RowVersion, commit: Commit) -> None:
        """Give rows that are older than ``before`` a value where they have a null; their versions stay as they are.

        Older by position, by source time where a row has none. A row that nothing of ours wrote stays as it is.
        """

    def append(self, rows: History, commit: Commit) -> None:
        """Add the rows to a history, in one commit; events whose coordinate stands there already are left out."""

    def maintain(self, now: int, tombstone_retention: int) -> None:
        """Compact, expire snapshots and old tombstones if it is due; cheap when nothing is. Times in microseconds."""


class Ledger(Protocol):
    """The ledger of a table: the tombstones of deletes, which are stored before the deletes themselves."""

    def ledger(self) -> Mapping[str, RowVersion]:
        """The tombstones by canonical key; the floor of the last truncate stands under the empty key ``""``.

        Every table has a ledger: where the table exists and its ledger does not, this raises TableMissing, or begins
        an empty ledger with ``TableOptions.recreate``. Without a table the ledger holds what was recorded before the
        table's first batch; the ledger of a table that was dropped does not count for the next table of that name.
        """

    def ledger_moved(self) -> bool:
        """Whether somebody else may have added to the ledger since this handle has read it. Cheap."""

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add to the ledger, durably, before the deletes themselves. ``now`` in microseconds, for the retention.

        Before the table exists as well: the table that ``evolve`` creates later gets this ledger.
        """


class LakeTable(TableReader, TableWriter, Ledger, Protocol):
    """A lakehouse table and the ledger of its tombstones. One thread at a time calls it."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """What a connector says about its tables; ``properties`` are the format's own.

    Layout and properties are those of new tables. ``adopt`` lets a table be taken over that somebody else has made.
    ``history`` tables get every event appended and are never merged into. With ``soft_delete`` deleted rows stay and
    are marked; to everything that a ``LakeTable`` is asked they do not stand. ``recreate`` lets a table that is gone be
    created again, and a missing ledger begin empty.
    """

    format: str = "iceberg"
    format_version: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)
    layout: TableLayout = field(default_factory=TableLayout)
    adopt: bool = False
    history: bool = False
    soft_delete: bool = False
    recreate: bool = False


class Lakehouse(Protocol):
    """The shared session. Safe to call from several threads; each table has a session of its own."""

    def table(self, namespace: str, name: str, options: TableOptions) -> LakeTable:
        """Open a table by name; nothing is created before ``evolve``."""

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause when the warehouse cannot be written."""

    def memory(self) -> int:
        """Bytes that the session's engine takes on this machine, outside of Python."""

    def close(self) -> None:
        """Stop the session. Idempotent."""
