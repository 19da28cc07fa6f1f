"""The lakehouse: tables, their ledgers, and the session that opens them.

Tests: ``tests/contracts/lake_table_suite.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

import pyarrow as pa

from headrace.core.doctor.lake import LakeTrial
from headrace.core.merge.history import History
from headrace.core.merge.tombstones import LedgerEntries
from headrace.core.model.actions import Actions
from headrace.core.model.events import RowVersion
from headrace.core.model.log_progress import Progress
from headrace.core.model.proof import Proof
from headrace.core.model.table_files import TableFiles
from headrace.core.tables.table_layout import Maintenance, TableLayout
from headrace.core.tables.table_sources import TableSource
from headrace.ports.feed import TopicPartition


@dataclass(frozen=True, slots=True)
class Commit:
    """The properties of a table commit, which are stored with it (``merge.md`` section 9).

    ``offsets`` are next offsets by topic and partition; ``watermark`` is the source time (microseconds) up to which all
    partitions are in, -1 if unknown. ``progress`` is how far the source's logs have been read. Without a ``group`` the
    commit is not a batch of a topic (a repair) and has no offsets of its own. Every stored commit repeats offsets and
    progress of the commit before it, see ``TableReader.reached``.
    """

    batch_id: int
    connector: str
    group: str = ""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    watermark: int = -1
    progress: Progress = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MergeCounts:
    """What a merge did: rows updated or inserted, and rows deleted."""

    upserted: int
    deleted: int


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """The files of a table, written bytes since the table was opened, and the last compaction since then.

    ``files`` are those after the last commit of this handle or its last compaction, None if the format would have to
    read the table for them (Delta). ``compacted`` is when the last compaction rewrote files, in microseconds since the
    epoch. ``notes`` are sentences for the operator on what the table's catalog does otherwise than configured.
    """

    files: TableFiles | None = None
    merged_bytes: int = 0
    upkeep_bytes: int = 0
    compacted: int | None = None
    notes: Sequence[str] = ()


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

        Empty while the table does not exist, and if Headrace did not create it.
        """

    def begin_batch(self) -> None:
        """Look at the table as it is now, also after commits of other processes.

        Until the next call, ``sources``, ``reached`` and ``log_progress`` may answer as of then and of the commits of
        this handle since. Without a call, each of them looks at the table. Cheap.
        """

    def sources(self) -> Sequence[TableSource]:
        """The registered sources of the table, as they are stored now, also by other processes. Cheap.

        Those of a table that an earlier release wrote follow from the newest commit with offsets: its connector, group
        and topics, without source tables. Before the table exists, those that were registered with this handle or
        stored with an early ledger.
        """

    def stored(self, actions: Actions) -> Mapping[str, RowVersion]:
        """The versions of the stored rows with the actions' keys, by canonical key."""

    def read(self, keys: pa.Table) -> pa.Table:
        """The rows with ``keys`` (the key columns, in the table's types): all data columns and Headrace's own.

        If several rows have a key, all are returned. Empty without a table.
        """

    def snapshot(self, columns: Sequence[str]) -> str | None:
        """The id of the newest commit, by which readers of any engine find its rows.

        None if there is no commit yet, or if a column of ``columns`` is younger than the commit.
        """

    def scan(self, columns: Sequence[str], snapshot: str | None = None) -> Iterator[pa.Table]:
        """These columns of every row, in pieces that fit memory and in any order; nothing without a table.

        As of a ``snapshot``, or of a commit that is the newest one during the scan.
        """

    def last_states(
        self, key_fields: Sequence[str], columns: Sequence[str], keys: pa.Table | None = None
    ) -> Iterator[pa.Table]:
        """The last state of each key of a history, or of ``keys``, in pieces that fit memory; nothing without a table.

        Each row has the ``key_fields`` and ``columns``, the version of the state, and in ``__headrace_unavailable`` the
        columns that its last event omits. Their cells have the value of the last event of the row that contains them,
        and are null if there is none. Nothing is returned for a key whose last event is a delete or a truncate. Raises
        Fatal if an event has no value in a column of the key.
        """

    def proof(self) -> Proof | None:
        """The last verification that found the table equal to its source, as ``record_proof`` has stored it."""

    def topics(self) -> Collection[str]:
        """The topics that the rows come from, except for rows that Headrace did not write."""

    def reached(self, group: str) -> Mapping[TopicPartition, int] | None:
        """The next offsets up to which the commits of the table have a consumer group's records, as they are now.

        None if there is no table, or no commit with offsets any more. Every commit, also of upkeep and repairs, repeats
        the highest offset of each partition from the commit before it, so that the newest commit contains all. Commits
        that a rollback or RESTORE has undone do not count. Cheap unless another process commits.
        """

    def log_progress(self, group: str) -> Progress:
        """How far the source's logs have been read, by the same commits; empty if none of them contains it."""

    def offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """The same; if no commit has offsets, those that follow from the rows (of a history, from its events)."""


class TableWriter(Protocol):
    """What the pipeline writes a table with. Every call that takes a ``Commit`` is one visible commit of the table."""

    def register(self, source: TableSource, replaced: Sequence[TableSource] = ()) -> None:
        """Store a source with the table, and remove the ``replaced`` ones.

        Durable when it returns. Before the table exists, ``evolve`` or the first entry of an early ledger stores it in
        the same step that creates table or ledger: of two writers that create one table, the other one fails.
        """

    def record_proof(self, proof: Proof) -> None:
        """Store a proof with the table, where readers of any engine see it. Without a table nothing is stored."""

    def evolve(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        """Create the table, or add and widen columns so that ``schema`` fits.

        Raises Fatal when it cannot be done, Retriable if another writer has created the table in between, and
        ConfigError if a new table does not have the columns of its layout. Nothing is created then.
        """

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions that rank above the stored rows (``Actions`` says when), in one visible step per commit.

        An upsert that has no stored row is inserted only if it keeps no stored cell. Counts what was applied. A
        CARRIED cell is taken from the stored row of ``carried`` as it was before this merge, in the same commit;
        if there is no such row, or in another version than that of ``carried``, the action does not apply.
        Without an action nothing is committed.
        """

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove every row that ``floor`` outranks."""

    def fill(self, column: str, value: pa.Scalar, before: RowVersion, commit: Commit) -> None:
        """Give rows that are older than ``before`` a value where they have a null; their versions stay as they are.

        Older by position, by source time where a row has none. A row that Headrace did not write stays as it is.
        """

    def append(self, rows: History, commit: Commit) -> None:
        """Append rows to a history, in one commit; events whose coordinate is stored already are omitted."""

    def maintenance_due(self, now: int) -> bool:
        """Return whether ``maintain`` has something to do. Decides in memory, and needs no thread."""

    def maintain(self, now: int, tombstone_retention: int) -> None:
        """Compact, expire snapshots and old tombstones if it is due; cheap when nothing is. Times in microseconds.

        Safe beside one other thread that calls any other method: the table may be written at the same time.
        """

    def upkeep(self) -> UpkeepReport:
        """The table's files and written bytes, from memory."""


class Ledger(Protocol):
    """The ledger of a table: the tombstones of deletes, which are stored before the deletes themselves."""

    def ledger(self) -> LedgerEntries:
        """Read the ledger, as far as this handle has not read it before.

        Returns its entries, and those that this handle records later. They take a few bytes of memory for each
        tombstone: their keys and versions are not kept as objects.

        Every table has a ledger: if the table exists and its ledger does not, this raises TableMissing, or begins
        an empty ledger with ``TableOptions.recreate``. Without a table the ledger holds what was recorded before the
        table's first batch; the ledger of a table that was dropped does not count for the next table of that name.
        """

    def ledger_moved(self) -> bool:
        """Whether another process may have added to the ledger since this handle has read it. Cheap."""

    def update_ledger(self) -> None:
        """Read what others have added to the ledger since ``ledger``, whose result contains it as additions."""

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add to the ledger, durably, before the deletes themselves. ``now`` in microseconds, for the retention.

        Before the table exists as well: the table that ``evolve`` creates later gets this ledger.
        """


class LakeTable(TableReader, TableWriter, Ledger, Protocol):
    """A lakehouse table and the ledger of its tombstones. One thread at a time calls it, except for ``maintain``."""


@dataclass(frozen=True, slots=True)
class TableOptions:
    """A connector's options for its tables; ``properties`` are the format's own, and ``catalog`` one of the engine's.

    Layout and properties are those of new tables. ``adopt`` accepts tables that Headrace did not create.
    ``history`` tables get every event appended and are never merged into. With ``soft_delete`` deleted rows stay and
    are marked; no method of ``LakeTable`` returns them. ``recreate`` creates a table again that no longer exists, and
    begins a missing ledger empty. ``maintenance_bytes`` is what upkeep may write in an hour, 0 without a limit.
    """

    format: str = "iceberg"
    catalog: str = "lake"
    format_version: int = 3
    properties: Mapping[str, str] = field(default_factory=dict)
    layout: TableLayout = field(default_factory=TableLayout)
    adopt: bool = False
    history: bool = False
    soft_delete: bool = False
    recreate: bool = False
    maintenance: Maintenance = Maintenance.BACKGROUND
    maintenance_bytes: int = 0


class EngineState(StrEnum):
    """The state of the engine that writes all tables: Spark's JVM."""

    STOPPED = "STOPPED"
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The engine's state, and the last error of an engine that does not run.

    ``since`` is the Unix time since which it runs, or does not run. ``restarts`` counts the starts after an error.
    """

    state: EngineState
    since: float
    error: str = ""
    restarts: int = 0


class Lakehouse(Protocol):
    """The shared session. Safe to call from several threads; each table has a session of its own.

    If the engine ends, calls of tables raise EngineFailed, and it is started again. A table that was open must be
    opened again.
    """

    def start(self) -> None:
        """Start the engine, if it does not run. Raises Retriable or ConfigError with the cause."""

    @property
    def engine(self) -> EngineStatus:
        """The status of the engine."""

    def table(self, namespace: str, name: str, options: TableOptions) -> LakeTable:
        """Open a table by name; nothing is created before ``evolve``."""

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause when the warehouse cannot be written."""

    def try_out(self, namespace: str, options: TableOptions, readers: Collection[str] = ()) -> LakeTrial:
        """Create a table of another name than any connector's, write to it and drop it, for ``headrace doctor``.

        Those of the ``readers`` that are installed on this machine read it, too.
        The table is removed, also after an error, and so is the namespace if it did not exist. What the catalog refuses
        is reported in the trial. Raises ConfigError for options that lead outside of the warehouse, and Retriable or
        ConfigError if the engine does not start.
        """

    def memory(self) -> Mapping[str, int]:
        """Bytes that the lakehouse takes on this machine besides the changes, by the name of the part."""

    def close(self) -> None:
        """Stop the session. Idempotent."""
