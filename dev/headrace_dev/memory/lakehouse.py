"""A lakehouse in memory, in plain Python: implements ``ports.LakeTable`` without a JVM.

For unit tests and properties. A table outlives the handle that wrote it, as in a real lakehouse, so that a test can
simulate a restart by opening it again.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.doctor.lake import LakeTrial
from headrace.core.merge.history import History
from headrace.core.merge.tombstones import LedgerEntries
from headrace.core.model import log_progress
from headrace.core.model.actions import Actions
from headrace.core.model.errors import Fatal, Retriable, TableMissing
from headrace.core.model.events import UNVERSIONED, RowVersion, outranks, succeed
from headrace.core.model.inferred_types import to_table_type
from headrace.core.model.keys import FLOOR_KEY, ORIGINS_PREFIX, is_table_entry
from headrace.core.model.proof import Proof, stored_proof
from headrace.core.tables.naming import check_table_path
from headrace.core.tables.table_layout import check_columns
from headrace.core.tables.table_sources import TableSource
from headrace.ports import Commit, EngineState, EngineStatus, MergeCounts, TableOptions, TopicPartition, UpkeepReport
from headrace_connectors.lakehouse.append import history_rows
from headrace_connectors.lakehouse.schema import (
    DELETED,
    HISTORY_COLUMNS,
    SOFT_COLUMNS,
    VERSION_COLUMNS,
    apply_evolution,
    evolution,
    lake_schema,
)
from headrace_connectors.lakehouse.table_properties import (
    NO_PROGRESS,
    commit_properties,
    progress_of_commits,
    source_properties,
    sources_of_commits,
    stored_sources,
)
from headrace_dev.memory.lake_rows import Batch, Cells, Row
from headrace_dev.memory.last_states import last_states

_SCANNED_AT_ONCE = 7


@dataclass(slots=True)
class _Stored:
    """The state that outlives a handle: the table and its ledger.

    ``tombstones`` is None without a ledger; ``attached`` marks the ledger of a table that was created.
    """

    schema: pa.Schema | None = None
    key_fields: tuple[str, ...] = ()
    rows: dict[str, Row] = field(default_factory=dict)
    tombstones: dict[str, tuple[RowVersion, int]] | None = None
    attached: bool = False
    recordings: int = 0
    commits: list[Commit] = field(default_factory=list)
    summaries: list[Mapping[str, str]] = field(default_factory=list)
    foreign: bool = False
    own: pa.Schema | None = None
    history: list[Cells] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


class MemoryLakehouse:
    """Tables by name, for the lifetime of this object."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, str], _Stored] = {}

    def table(self, namespace: str, name: str, options: TableOptions) -> MemoryTable:
        """Open a table; nothing is created before ``evolve``. Raises ConfigError for names with separators."""
        check_table_path(namespace, name)
        stored = self._tables.setdefault((namespace, name), _Stored())
        return MemoryTable(f"{namespace}.{name}", stored, options)

    def drop(self, namespace: str, name: str) -> None:
        """Drop a table; its ledger stays, as with a real lakehouse."""
        stored, ledger = self._tables[namespace, name], self.copy(namespace, name)
        self.restore(namespace, name, _Stored(tombstones=ledger.tombstones, attached=ledger.attached))
        stored.recordings = ledger.recordings

    def drop_ledger(self, namespace: str, name: str) -> None:
        """Drop the ledger of a table."""
        self._tables[namespace, name].tombstones = None

    def copy(self, namespace: str, name: str) -> _Stored:
        """Return a copy of a table with its ledger, for ``restore``."""
        return copy.deepcopy(self._tables[namespace, name])

    def restore(self, namespace: str, name: str, stored: _Stored) -> None:
        """Replace a table and its ledger with a copy; open handles see it."""
        for each in fields(_Stored):
            setattr(self._tables[namespace, name], each.name, getattr(stored, each.name))

    def start(self) -> None:
        """Do nothing: no engine runs."""

    @property
    def engine(self) -> EngineStatus:
        """Return RUNNING, always."""
        return EngineStatus(EngineState.RUNNING, 0.0)

    def memory(self) -> Mapping[str, int]:
        """Return nothing: no engine runs."""
        return {}

    def check(self) -> None:
        """Do nothing: memory is always writable."""

    def try_out(self, namespace: str, options: TableOptions, readers: Collection[str] = ()) -> LakeTrial:
        """Create a table and drop it again."""
        name = "headrace_doctor_1"
        self.table(namespace, name, options)
        del self._tables[namespace, name]
        return LakeTrial(f"{namespace}.{name}", format_version=options.format_version)

    def close(self) -> None:
        """Do nothing."""


class MemoryEntries(LedgerEntries):
    """The entries that a handle has ``read`` or recorded, and all that were ``stored`` when it read the last time."""

    def __init__(self) -> None:
        self.read: dict[str, RowVersion] = {}
        self.stored: dict[str, RowVersion] = {}

    def record(self, key: str, version: RowVersion) -> None:
        """Add an entry of this handle."""
        for entries in (self.read, self.stored):
            entries[key] = succeed(version, entries.get(key))

    def __getitem__(self, key: str) -> RowVersion:
        return self.stored[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.stored)

    def __len__(self) -> int:
        return len(self.stored)

    def of(self, keys: pa.StringArray) -> Mapping[str, RowVersion]:
        """Search what was read."""
        return _entries_of(self.read, keys)

    def additions(self, keys: pa.StringArray) -> Mapping[str, RowVersion]:
        """Compare with what was read."""
        stored = _entries_of(self.stored, keys)
        return {key: version for key, version in stored.items() if version != self.read.get(key)}


def _entries_of(entries: Mapping[str, RowVersion], keys: pa.StringArray) -> dict[str, RowVersion]:
    wanted = set(keys.to_pylist())
    return {key: version for key, version in entries.items() if key in wanted or is_table_entry(key)}


class MemoryTable:
    """A ``ports.LakeTable``. Every merge is one atomic step, regardless of the cells that it keeps."""

    def __init__(self, name: str, stored: _Stored, options: TableOptions) -> None:
        self._name = name
        self._stored = stored
        self._adopt = options.adopt
        self._layout, self._format = options.layout, options.format
        self._recreate = options.recreate
        self._seen = False
        self._soft = options.soft_delete
        self._own = HISTORY_COLUMNS if options.history else SOFT_COLUMNS if self._soft else VERSION_COLUMNS
        self._recordings: int | None = None
        self._entries = MemoryEntries()
        self._snapshots: dict[str, pa.Table] = {}
        self._first_sources: Sequence[TableSource] = ()

    @property
    def commits(self) -> Sequence[Commit]:
        """Return the commits in order, like the snapshots of a real table."""
        return self._stored.commits

    @property
    def summaries(self) -> Sequence[Mapping[str, str]]:
        """Return the commits as snapshot properties."""
        return self._stored.summaries

    def forget_history(self) -> None:
        """Keep only the properties of the newest commit, as a catalog may."""
        del self._stored.summaries[:-1]

    def rows(self) -> dict[str, dict[str, Any]]:
        """Return the data columns of the stored rows by canonical key, as Python values."""
        return {key: {name: cell.as_py() for name, cell in row.cells.items()} for key, row in self._live().items()}

    def to_arrow(self) -> pa.Table:
        """Return the complete table, with own columns, in no particular order."""
        schema = pa.schema([*(self._stored.schema or []), *(self._stored.own or self._own)])
        found = self._stored.rows.values()
        rows = [row.cells | _version_cells(row.version) | {DELETED: pa.scalar(row.deleted)} for row in found]
        rows += [
            {name: cells.get(name, pa.scalar(None, schema.field(name).type)) for name in schema.names}
            for cells in self._stored.history
        ]
        return pa.table([_array([row[column.name] for row in rows], column.type) for column in schema], schema)

    def create_otherwise(self, schema: pa.Schema) -> None:
        """Simulate a table that another writer has created."""
        self._stored.schema, self._stored.foreign = schema, True

    def insert_unversioned(self, key: str, cells: Mapping[str, Any]) -> None:
        """Store a row as a bulk load by other means does: its version columns are null."""
        schema = self._stored.schema or self._existing_schema()
        typed = {name: pa.scalar(cells.get(name), schema.field(name).type) for name in schema.names}
        self._stored.rows[key] = Row(typed, None)

    # -- ports.LakeTable ----------------------------------------------------------------------------------------------

    def schema(self) -> pa.Schema | None:
        """Return the data columns, or None before ``evolve``. Adopts a table of another writer, or raises Fatal."""
        if self._stored.schema is None:
            if self._seen and not self._recreate:
                raise TableMissing(f"{self._name}: the table does not exist any more")
            return None
        self._seen = True
        # ``delete.mode`` of a table may be changed to ``soft``.
        if self._soft and self._stored.own == VERSION_COLUMNS:
            self._stored.own = SOFT_COLUMNS
        if self._stored.own not in (None, self._own):
            raise Fatal(f"{self._name}: the table has another insert.mode or delete.mode; write to another one")
        if self._stored.foreign and not self._adopt:
            raise Fatal(
                f"{self._name}: the table was not created by Headrace; set table.adopt=true, or write to another table"
            )
        if self._stored.foreign:
            self._stored.foreign, self._stored.tombstones, self._stored.attached = False, {}, True
        return self._stored.schema

    def key_fields(self) -> tuple[str, ...]:
        """Return the columns of the key, as at the table's creation."""
        return self._stored.key_fields

    def evolve(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        """Create the table, or change it so that ``schema`` fits. Raises Fatal if that is impossible."""
        wanted = lake_schema(self._name, schema, key_fields)
        if self.schema() is None:
            check_columns(self._name, self._format, self._layout, pa.schema([*wanted, *self._own]))
            self._stored.properties, self._first_sources = source_properties(self.sources()), ()
            self._stored.schema, self._stored.key_fields, self._stored.own = wanted, tuple(key_fields), self._own
            if self._stored.attached or self._stored.tombstones is None:
                self._stored.tombstones = {}
            self._stored.attached = True
            return
        self._refuse_unregistered()
        change = evolution(self._name, self._stored.schema, wanted)
        self._stored.schema = apply_evolution(self._stored.schema, change)
        for row in self._stored.rows.values():
            row.cells.update({column.name: row.cells[column.name].cast(column.type) for column in change.widened})
            row.cells.update({column.name: _grown(row.cells[column.name], column.type) for column in change.grown})
            row.cells.update({column.name: pa.scalar(None, column.type) for column in change.added})

    def begin_batch(self) -> None:
        """Do nothing: looking at the table costs nothing here."""

    def sources(self) -> Sequence[TableSource]:
        """Return the sources of the table, or before it exists those of its ledger and of this handle."""
        if self.schema() is not None:
            return stored_sources(self._stored.properties) or sources_of_commits(reversed(self._stored.summaries))
        early = stored_sources(self._stored.properties) if self._has_early_ledger else ()
        return list(dict.fromkeys([*early, *self._first_sources]))

    def register(self, source: TableSource, replaced: Sequence[TableSource] = ()) -> None:
        """Store a source with the table, or with its creation."""
        if self.schema() is None:
            kept = (each for each in self._first_sources if each not in replaced)
            self._first_sources = list(dict.fromkeys([*kept, source]))
            return
        for name in source_properties(replaced):
            self._stored.properties.pop(name, None)
        self._stored.properties |= source_properties([source])

    def proof(self) -> Proof | None:
        """Return the proof in the properties of the table."""
        return None if self.schema() is None else stored_proof(self._stored.properties)

    def record_proof(self, proof: Proof) -> None:
        """Store a proof in the properties of the table."""
        if self.schema() is not None:
            known, removed = proof.properties()
            for name in removed:
                self._stored.properties.pop(name, None)
            self._stored.properties |= known

    def _refuse_unregistered(self) -> None:
        """Raise Retriable if another handle has created the table since ``register``."""
        if self._first_sources and self._stored.schema is not None:
            self._first_sources = ()
            raise Retriable(f"{self._name}: another writer created the table in between")

    @property
    def _has_early_ledger(self) -> bool:
        return self._stored.tombstones is not None and not self._stored.attached

    def ledger(self) -> LedgerEntries:
        """Return the tombstones by canonical key, the floor under ``""``."""
        self.update_ledger()
        self._entries.read = dict(self._entries.stored)
        return self._entries

    def update_ledger(self) -> None:
        """Copy the stored entries."""
        self._recordings = self._stored.recordings
        self._entries.stored = {key: version for key, (version, _) in self._tombstones().items()}

    def _tombstones(self) -> dict[str, tuple[RowVersion, int]]:
        """The valid entries, without those of a table that was dropped."""
        exists = self.schema() is not None
        if exists and self._stored.tombstones is None:
            if not self._recreate:
                raise TableMissing(f"{self._name}: the ledger of the table's deletes does not exist any more")
            self._stored.tombstones = {}
        counts = self._stored.tombstones is not None and (exists or not self._stored.attached)
        return dict(self._stored.tombstones or {}) if counts else {}

    def ledger_moved(self) -> bool:
        """Return whether another writer has added to the ledger since this handle has read it."""
        return self._recordings != self._stored.recordings

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add to the ledger; a tombstone never replaces a higher one."""
        self._refuse_unregistered()
        if self.schema() is None and not self._has_early_ledger:
            self._stored.properties = source_properties(self._first_sources)
        if not self.ledger_moved():
            self._recordings = self._stored.recordings + 1
        self._stored.recordings += 1
        ledger = self._tombstones()
        for key, version in tombstones.items():
            old = ledger.get(key)
            ledger[key] = (succeed(version, old[0] if old else None), now)
            self._entries.record(key, version)
        self._stored.tombstones, self._stored.attached = ledger, self._stored.schema is not None

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions that rank above the stored rows; all rows are read before one is written."""
        if not len(actions):
            return MergeCounts(0, 0)
        before = self._live()
        batch = Batch(actions, self._existing_schema())
        upserted = deleted = 0
        for index, key in enumerate(batch.keys):
            row = before.get(key)
            if row is not None and not batch.applies(index, row.version):
                continue
            if actions.delete[index]:
                deleted += row is not None
                self._delete(key, row, batch.version(index, row))
                continue
            cells = batch.cells(index, row, before)
            if cells is not None:
                self._stored.rows[key] = Row(cells, batch.version(index, row))
                upserted += 1
        self._committed(commit)
        return MergeCounts(upserted, deleted)

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove every row that ``floor`` outranks; the caller has recorded the floor in the ledger."""
        self._refuse_unregistered()
        stored = self._stored.rows.items()
        for key in [key for key, row in stored if outranks(floor, row.version or UNVERSIONED)]:
            row = self._stored.rows[key]
            self._delete(key, row, row.version)
        self._committed(commit)

    def fill(self, column: str, value: pa.Scalar, before: RowVersion, commit: Commit) -> None:
        """Write a value into rows from before a version where they have a null."""
        for row in self._live().values():
            version = row.version
            if version is None or row.cells[column].is_valid:
                continue
            if version.position < before.position if version.position else version.source_time < before.source_time:
                row.cells[column] = value
        self._committed(commit)

    def _live(self) -> dict[str, Row]:
        return {key: row for key, row in self._stored.rows.items() if not row.deleted}

    def _delete(self, key: str, row: Row | None, version: RowVersion | None) -> None:
        """Remove the row, or mark it with the version of its delete."""
        if row is not None and self._soft:
            self._stored.rows[key] = Row(row.cells, version, deleted=True)
        elif row is not None:
            del self._stored.rows[key]

    def append(self, rows: History, commit: Commit) -> None:
        """Add rows to a history, except those whose coordinate is stored."""
        table = history_rows(rows, self._existing_schema())
        stored = {_coordinate(cells) for cells in self._stored.history}
        for index in range(table.num_rows):
            cells = {name: table[name][index] for name in table.column_names}
            if _coordinate(cells) not in stored:
                self._stored.history.append(cells)
        self._committed(commit)

    def reached(self, group: str) -> Mapping[TopicPartition, int] | None:
        """Return the offsets of the group in its newest commits."""
        found = None if self.schema() is None else progress_of_commits(reversed(self._stored.summaries), group)
        return None if found is None else found.offsets

    def log_progress(self, group: str) -> log_progress.Progress:
        """Return the progress in the logs of the source's servers from these commits."""
        found = None if self.schema() is None else progress_of_commits(reversed(self._stored.summaries), group)
        return {} if found is None else found.logs

    def offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """Return the same offsets; memory keeps every commit."""
        return self.reached(group) or {}

    def _committed(self, commit: Commit) -> None:
        """Add a commit, which repeats the properties of the one before it."""
        before = progress_of_commits(reversed(self._stored.summaries), commit.group) or NO_PROGRESS
        self._stored.commits.append(commit)
        self._stored.summaries.append(commit_properties(commit, before))

    def stored(self, actions: Actions) -> Mapping[str, RowVersion]:
        """Return the versions of the rows under the actions' keys."""
        rows = self._live()
        return {key: rows[key].version or UNVERSIONED for key in actions.key.to_pylist() if key in rows}

    def topics(self) -> Collection[str]:
        """Return the offsets in the versions of the rows."""
        return {row.version.topic for row in self._live().values() if row.version is not None}

    def snapshot(self, columns: Sequence[str]) -> str | None:
        """Return the number of commits, and keep the rows of the newest one."""
        if self._stored.schema is None or not self._stored.commits:
            return None
        snapshot = str(len(self._stored.commits))
        self._snapshots[snapshot] = self._visible_rows()
        return snapshot

    def scan(self, columns: Sequence[str], snapshot: str | None = None) -> Iterator[pa.Table]:
        """Yield the rows, a few at a time."""
        if self._stored.schema is not None:
            rows = self._visible_rows() if snapshot is None else self._snapshots[snapshot]
            yield from (pa.table(batch) for batch in rows.select(list(columns)).to_batches(_SCANNED_AT_ONCE))

    def read(self, keys: pa.Table) -> pa.Table:
        """Return the rows under the keys."""
        if self._stored.schema is None:
            return pa.schema([*keys.schema, *VERSION_COLUMNS]).empty_table()
        rows = self._visible_rows()
        wanted, found = set(_key_rows(keys)), _key_rows(rows.select(keys.column_names))
        return rows.filter(pa.array([key in wanted for key in found], pa.bool_()))

    def last_states(
        self, key_fields: Sequence[str], columns: Sequence[str], keys: pa.Table | None = None
    ) -> Iterator[pa.Table]:
        """Yield the last states of a history, whose events are stored in the order of their arrival."""
        if self._stored.schema is None:
            return
        names = list(dict.fromkeys([*key_fields, *columns, *VERSION_COLUMNS.names, HISTORY_COLUMNS.names[-1]]))
        rows = self.to_arrow()
        wanted = None if keys is None else set(_key_rows(keys))
        types = [rows.schema.field(name).type for name in names]
        found = last_states(self._stored.history, key_fields)
        states = [state for key, state in found.items() if wanted is None or key in wanted]
        if keys is None and any(not state[name].is_valid for state in states for name in key_fields):
            raise Fatal(f"{self._name}: its last state is not known: no value in {', '.join(key_fields)}")
        arrays = [
            _array([state.get(name, pa.scalar(None, kind)) for state in states], kind)
            for name, kind in zip(names, types, strict=True)
        ]
        yield pa.table(arrays, names)

    def upkeep(self) -> UpkeepReport:
        """Return nothing: a table in memory has no files."""
        return UpkeepReport()

    def maintenance_due(self, now: int) -> bool:
        """Return True: it costs nothing."""
        return True

    def maintain(self, now: int, tombstone_retention: int) -> None:
        """Remove tombstones older than the retention; the floor and the origins of columns stay."""
        self._stored.tombstones = {
            key: entry
            for key, entry in self._tombstones().items()
            if key == FLOOR_KEY or key.startswith(ORIGINS_PREFIX) or entry[1] > now - tombstone_retention
        }

    def _visible_rows(self) -> pa.Table:
        """The rows that are not marked as deleted, without the mark."""
        rows = self.to_arrow()
        if DELETED not in rows.column_names:
            return rows
        return rows.filter(pc.invert(rows[DELETED])).drop_columns([DELETED])

    def _existing_schema(self) -> pa.Schema:
        schema = self.schema()
        if schema is None:
            raise Fatal(f"{self._name}: the table does not exist; evolve it first")
        return schema


def _array(cells: Sequence[pa.Scalar], kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind) and cells:  # pyarrow cannot build arrays from scalars with nested nulls
        return pa.concat_arrays([pa.repeat(cell, 1) for cell in cells])
    return pa.array(cells, kind)


def _grown(cell: pa.Scalar, wider: pa.DataType) -> pa.Scalar:
    """Return a struct with nulls for its new members."""
    grown = to_table_type(pa.array([cell], cell.type), wider)
    assert grown is not None
    return grown[0]


def _key_rows(keys: pa.Table) -> list[tuple[pa.Scalar, ...]]:
    return list(zip(*(column.combine_chunks() for column in keys.columns), strict=True))


def _coordinate(cells: Cells) -> tuple[Any, ...]:
    return tuple(cells[name].as_py() for name in VERSION_COLUMNS.names[1:4])


def _version_cells(version: RowVersion | None) -> Cells:
    cells: list[Any] = [None] * 5
    if version is not None:
        position = version.position.decode() or None
        cells = [position, version.topic, version.partition, version.offset, version.source_time]
    return {own.name: pa.scalar(cell, own.type) for own, cell in zip(VERSION_COLUMNS, cells, strict=True)}
