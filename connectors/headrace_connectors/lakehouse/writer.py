"""One lake table of any format: creation from schemas of events, merge, truncate, upkeep (``merge.md`` section 5).

Tests: ``tests/contracts/lake_commits_suite.py``, ``tests/contracts/lake_columns_suite.py``.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from headrace.core.merge.history import History
from headrace.core.merge.tombstones import LedgerEntries
from headrace.core.model import log_progress
from headrace.core.model.actions import Actions, outranking
from headrace.core.model.errors import Fatal, HeadraceError, TableMissing
from headrace.core.model.events import OWN_PREFIX, RowVersion
from headrace.core.model.proof import Proof, stored_proof
from headrace.core.tables.table_layout import check_columns
from headrace.core.tables.table_sources import TableSource
from headrace.ports import Commit, MergeCounts, TableOptions, TopicPartition, UpkeepReport
from headrace_connectors.lakehouse import reader
from headrace_connectors.lakehouse.append import append_history_sql, history_rows, row_offsets_sql
from headrace_connectors.lakehouse.compaction_plan import WriteBudget
from headrace_connectors.lakehouse.failures import Conflict, Declined, NotThere, naming_the_file
from headrace_connectors.lakehouse.ledger import TombstoneLedger, ledger_path, row_versions
from headrace_connectors.lakehouse.merge import append_sql, fill_sql, live_sql, merge_sql, stored_sql, truncate_sql
from headrace_connectors.lakehouse.schema import (
    DELETED,
    HISTORY_COLUMNS,
    SOFT_COLUMNS,
    VERSION_COLUMNS,
    apply_evolution,
    column_list,
    data_schema,
    evolution,
    lake_schema,
    quoted,
)
from headrace_connectors.lakehouse.staging import stage_keys, stages
from headrace_connectors.lakehouse.table_format import (
    KEY_FIELDS,
    WRITE_ID,
    CommitResult,
    DirectWriter,
    Look,
    TableFormat,
    TablePath,
    key_property,
)
from headrace_connectors.lakehouse.table_properties import (
    FORMAT,
    FORMAT_VERSION,
    NO_PROGRESS,
    Progress,
    commit_properties,
    progress_of_commits,
    property_name,
    refuse_newer,
    source_properties,
    sources_of_commits,
    stored_sources,
)
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.upkeep import Upkeep

log = logging.getLogger(__name__)

Change = Callable[[Mapping[str, str]], CommitResult]
"""Changes rows in one commit with these properties."""

_LOOK_SECONDS = 1.0
"""How old a table may be that a direct commit is made from: reselect may take longer."""

_COMMITS_UNTIL_NOTES = 2
"""A catalog that hides older snapshots is recognized by the second commit."""


class SparkTable:
    """A ``ports.LakeTable`` that Spark writes, with its own session. Not thread-safe."""

    def __init__(
        self,
        session: TableSession,
        table_format: TableFormat,
        path: TablePath,
        options: TableOptions,
        budget: WriteBudget,
    ) -> None:
        self._label = f"{path.namespace}.{path.name}"
        self._session = session
        self._format = table_format
        self._path = path
        self._table = table_format.sql_name(path)
        self._ledger = TombstoneLedger(session, table_format, ledger_path(path), recreate=options.recreate)
        self._commit_lock = threading.Lock()
        self._upkeep = Upkeep(session, table_format, self._ledger, path, self._commit_lock, budget, options.maintenance)
        self._commits = 0
        self._notes: Sequence[str] = ()
        self._cached: tuple[str, Progress] | None = None  # the id of the newest commit, with its progress
        self._look: Look | None = None  # at the table when the batch began, or after this handle's newest commit
        self._looked_at = 0.0
        self._first_sources: Sequence[TableSource] = ()  # of the table that this handle may create
        self._schema: pa.Schema | None = None
        self._key_fields: tuple[str, ...] = ()
        self._direct: DirectWriter | None = None
        self._fresh = False  # this handle has created the table, and not written to it
        self._seen = False  # the table has existed, so that its absence is an error
        self._options = options
        self._soft = options.soft_delete and not options.history
        self._own_columns = HISTORY_COLUMNS if options.history else SOFT_COLUMNS if self._soft else VERSION_COLUMNS

    # -- schema and key -----------------------------------------------------------------------------------------------

    def schema(self) -> pa.Schema | None:
        """Return the data columns in lake types, or None while the table does not exist. Raises TableMissing."""
        if self._schema is None:
            stored = self._format.schema(self._session, self._path)
            if stored is not None:
                self._schema, self._seen = self._open(stored), True
            elif self._seen and not self._options.recreate:
                raise TableMissing(f"{self._label}: the table does not exist any more, or the storage does not show it")
        return self._schema

    def _open(self, stored: pa.Schema) -> pa.Schema:
        """Check an existing table, add Headrace's own columns that it lacks, and return its data columns.

        Raises Fatal for a table of another writer without ``table.adopt``, or of another mode.
        """
        properties = self._format.properties(self._session, self._path)
        refuse_newer(self._label, properties)
        self._key_fields = tuple(json.loads(properties.get(KEY_FIELDS, "[]")))
        reserved = {name for name in stored.names if name.startswith(OWN_PREFIX)}
        if self._soft and reserved == set(VERSION_COLUMNS.names):
            self._session.run(f"ALTER TABLE {self._table} ADD COLUMNS ({quoted(DELETED)} BOOLEAN)")
            reserved.add(DELETED)
        if reserved and reserved != set(self._own_columns.names):
            raise Fatal(
                f"{self._label}: the table was made with another insert.mode or delete.mode; write to another one"
            )
        if not reserved and not self._options.adopt:
            raise Fatal(
                f"{self._label}: the table was not created by Headrace; write to another one, or adopt it with "
                "table.adopt=true"
            )
        if not reserved:
            # Adopt the table of another writer. Its rows have no version, so that every change outranks them.
            for column in data_schema(self._label, stored):
                if stored.field(column.name).type in (pa.int8(), pa.int16()):
                    self._session.run(*self._format.widen(self._path, column))
            self._ledger.create()  # before the columns: an old ledger must never be used for a table of Headrace
            self._session.run(f"ALTER TABLE {self._table} ADD COLUMNS ({column_list(self._own_columns)})")
            self._format.set_properties(self._session, self._path, {FORMAT: FORMAT_VERSION})

        self._format.check(self._session, self._path)
        return data_schema(self._label, stored)

    def key_fields(self) -> tuple[str, ...]:
        """Return the columns of the row key in their order, from the table's properties."""
        return () if self.schema() is None else self._key_fields

    def evolve(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        """Create the table, or add and widen columns so that ``schema`` fits. Raises Fatal if that is impossible."""
        wanted = lake_schema(self._label, schema, key_fields)
        stored = self.schema()
        if stored is None:
            self._create(wanted, key_fields)
        else:
            self._refuse_unregistered()
            if evolution(self._label, stored, wanted):
                self._schema = self._look = None  # read again: `headrace verify --repair` may have added the column
                stored = self._existing_schema()
                change = evolution(self._label, stored, wanted)
                if change.additions:
                    self._session.run(f"ALTER TABLE {self._table} ADD COLUMNS ({change.additions})")
                for column in change.widened:
                    self._session.run(*self._format.widen(self._path, column))
                self._schema = apply_evolution(stored, change)
            # An adopted table does not have the property with its key columns yet.
            if self._options.adopt and not self.key_fields():
                self._format.set_properties(self._session, self._path, key_property(key_fields))
                self._key_fields = tuple(key_fields)

    def _create(self, schema: pa.Schema, key_fields: Sequence[str]) -> None:
        complete = pa.schema([*schema, *self._own_columns])
        check_columns(self._label, self._options.format, self._options.layout, complete)
        self._session.run(*self._format.create_namespace(self._path.namespace))
        properties = {**key_property(key_fields), **source_properties(self.sources())}
        if not self._ledger.is_early():
            # The new ledger would replace another writer's.
            if self._format.schema(self._session, self._path) is not None:
                raise Conflict(f"{self._label}: another writer created the table in between")
            self._ledger.create()  # before the table: an old ledger must never be used for a new table
        self._format.prepare_creation(self._session, self._path)
        self._session.run(*self._format.create(self._path, complete, properties))
        self._ledger.attach()
        self._schema, self._key_fields, self._fresh, self._seen = schema, tuple(key_fields), True, True
        self._first_sources = ()

    def _existing_schema(self) -> pa.Schema:
        schema = self.schema()
        if schema is None:
            raise Fatal(f"{self._label}: the table does not exist; evolve it first")
        return schema

    def begin_batch(self) -> None:
        """Look at the table once: each look loads its metadata."""
        self._look = None
        if self.schema() is not None:
            with suppress(NotThere):  # the call that needs the table finds out what that means
                self._looked_at = time.monotonic()
                self._look = self._format.look(self._session, self._path)

    # -- sources ------------------------------------------------------------------------------------------------------

    def sources(self) -> Sequence[TableSource]:
        """Return the sources in the properties of the table.

        Before it exists, return those of its early ledger and of ``register``. For a table of an earlier release, which
        has no such properties, return those of its commits.
        """
        if self.schema() is None:
            early = stored_sources(self._ledger.properties()) if self._ledger.is_early() else ()
            return list(dict.fromkeys([*early, *self._first_sources]))
        try:
            properties = self._look.properties if self._look else self._format.properties(self._session, self._path)
            stored = stored_sources(properties)
        except NotThere:
            self._schema = None
            if self.schema() is None:
                return ()
            raise
        return stored or sources_of_commits(self._history())

    def register(self, source: TableSource, replaced: Sequence[TableSource] = ()) -> None:
        """Store a source in the properties of the table, or with its creation, and remove the ``replaced`` ones."""
        if self.schema() is None:
            kept = (registered for registered in self._first_sources if registered not in replaced)
            self._first_sources = list(dict.fromkeys([*kept, source]))
            return
        self._look = None
        names = set(map(property_name, replaced)) - {property_name(source)}
        with self._commit_lock:
            self._format.set_properties(self._session, self._path, source_properties([source]), sorted(names))

    def proof(self) -> Proof | None:
        """Return the proof in the properties of the table."""
        if self.schema() is None:
            return None
        return stored_proof(self._format.properties(self._session, self._path))

    def record_proof(self, proof: Proof) -> None:
        """Store a proof in the properties of the table."""
        if self.schema() is not None:
            self._look = None
            with self._commit_lock:
                self._format.set_properties(self._session, self._path, *proof.properties())

    def _refuse_unregistered(self) -> None:
        """Raise Conflict if another handle has created the table since ``register``: it may be of another writer."""
        if self._first_sources:
            self._first_sources = ()
            raise Conflict(f"{self._label}: another writer created the table in between")

    # -- the ledger ---------------------------------------------------------------------------------------------------

    def ledger(self) -> LedgerEntries:
        """Return the tombstones by canonical key. The key ``""`` has the floor of the last truncate."""
        if self.schema() is not None:
            return self._ledger.load()
        return self._ledger.read() if self._ledger.is_early() else self._ledger.begin_empty()

    def ledger_moved(self) -> bool:
        """Return whether another writer may have added entries to the ledger since this handle has read it."""
        return (self.schema() is not None or self._ledger.is_early()) and self._ledger.has_changed()

    def update_ledger(self) -> None:
        """Read what other writers have added to the ledger since this handle has read it."""
        self._ledger.update()

    def record_tombstones(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add entries to the ledger in a durable commit, if there are any."""
        if tombstones:
            if self.schema() is not None:
                self._refuse_unregistered()
            else:
                self._session.run(*self._format.create_namespace(self._path.namespace))
                self._ledger.begin_early(source_properties(self._first_sources))
            self._ledger.append(tombstones, now)
            self._upkeep.ledger_grew()

    # -- changes of the table -----------------------------------------------------------------------------------------

    def merge(self, actions: Actions, commit: Commit) -> MergeCounts:
        """Apply the actions that rank above the stored rows; in two commits if some rows keep stored cells.

        Only the last commit contains offsets and batch id, so that they never include missing rows. Without an action
        (all events of the batch are stale) there is no commit.
        """
        if not len(actions):
            return MergeCounts(0, 0)
        schema = self._existing_schema()
        try:
            direct = partial(self._direct_writer(schema).write, actions, schema, loaded=self._take_loaded)
            done = self._commit(direct, commit)
            reason = done.declined
        except Declined as declined:
            reason = str(declined)
        if not reason:
            return done.counts
        log.debug("%s: a batch of %d rows is merged by Spark: %s", self._label, len(actions), reason)
        return self._merge_by_spark(actions, commit)

    def _take_loaded(self) -> Any:
        """Return what the batch's look has loaded, once: after a conflict, the table is loaded again."""
        look = self._look
        if look is None or time.monotonic() - self._looked_at > _LOOK_SECONDS:
            return None
        self._look = look._replace(loaded=None)
        return look.loaded

    def _direct_writer(self, schema: pa.Schema) -> DirectWriter:
        """Raises Declined if the table has none."""
        if self._direct is None:
            self._direct = self._format.direct_writer(
                self._session, self._path, schema, self._key_fields, soft=self._soft
            )
        if self._direct is None:
            raise Declined("there is no direct writer for the format of the table")
        return self._direct

    def _merge_by_spark(self, actions: Actions, commit: Commit) -> MergeCounts:
        counts, parts = MergeCounts(0, 0), stages(actions, self._existing_schema(), soft=self._soft)
        marked = 0  # deletes that mark a row; a commit counts them as updates
        if self._soft and not self._fresh and len(deletes := np.flatnonzero(actions.delete)):
            deleted = actions.take(deletes)
            marked = int(outranking(deleted, self.stored(deleted)).sum())
        for part in parts:
            part_commit = commit if part is parts[-1] else replace(commit, group="")
            with self._session.staged_view(part.rows) as view:
                # After this worker created the table, another worker may have written to it.
                self._fresh = self._fresh and not self._format.head(self._session, self._path).commits
                if self._fresh and not (part.shape.kept or part.shape.carried):
                    done = self._commit(self._by_sql(append_sql(self._table, view, part.shape)), part_commit)
                    if done.made and not done.first:
                        raise Fatal(
                            f"{self._label}: another writer filled the table while it was empty; compare it with the "
                            "source"
                        )
                else:
                    done = self._commit(self._by_sql(merge_sql(self._table, view, part.shape)), part_commit)
            counts = MergeCounts(counts.upserted + done.counts.upserted, counts.deleted + done.counts.deleted)
        return MergeCounts(counts.upserted - marked, counts.deleted + marked)

    def truncate(self, floor: RowVersion, commit: Commit) -> None:
        """Remove every row that ``floor`` outranks; the caller has recorded the floor in the ledger."""
        if not self._fresh:
            self._commit(self._by_sql(truncate_sql(self._table, floor, soft=self._soft)), commit)

    def fill(self, column: str, value: pa.Scalar, before: RowVersion, commit: Commit) -> None:
        """Write a value into rows from before a version where they have a null."""
        if not self._fresh:
            field = self._existing_schema().field(column)
            self._commit(self._by_sql(fill_sql(self._table, field, value, before, soft=self._soft)), commit)

    def append(self, rows: History, commit: Commit) -> None:
        """Add rows to a history, without those that it contains; see ``append.py``."""
        complete_rows = history_rows(rows, self._existing_schema())
        with self._session.staged_view(complete_rows) as view:
            self._commit(self._by_sql(append_history_sql(self._table, view, rows, complete_rows.column_names)), commit)

    def _by_sql(self, statement: str) -> Change:
        return partial(self._format.commit, self._session, self._path, statement)

    def _commit(self, change: Change, commit: Commit) -> CommitResult:
        """Make a commit with the properties of ``commit``, and with those of the last commit.

        After a conflict with another writer's commit (a compaction) the change is repeated, unless its commit
        succeeded.
        """
        self._refuse_unregistered()
        write_id = uuid.uuid4().hex
        with self._commit_lock, self._discarding_state_on_error(), self._naming_the_file():
            before = self._progress_before(commit)
            properties = {WRITE_ID: write_id, **commit_properties(commit, before)}
            for attempt in Retrying(
                retry=retry_if_exception_type(Conflict),
                stop=stop_after_attempt(5),
                wait=wait_random_exponential(multiplier=0.2, max=5),
                reraise=True,
            ):
                with attempt:
                    again = attempt.retry_state.attempt_number > 1
                    earlier = self._format.find_commit(self._session, self._path, write_id) if again else None
                    done = earlier or change(properties)
            if done.declined:
                return done
            if done.made or self._format.carry(self._session, self._path, properties):
                before = before.with_commit(commit)
            self._cached = done.head or self._format.head(self._session, self._path).id, before
            self._look = self._look and self._look._replace(head=self._cached[0], loaded=None)
        self._fresh = False
        self._upkeep.count_commit(done)
        self._commits += 1
        if self._commits == _COMMITS_UNTIL_NOTES:
            self._notes = self._format.limits(self._session, self._path)
        return done

    def _naming_the_file(self) -> AbstractContextManager[None]:
        return naming_the_file(self._label, lambda: self._format.damaged_file(self._session, self._path))

    @contextmanager
    def _discarding_state_on_error(self) -> Iterator[None]:
        """Discard the cached state after an error: the table may have been dropped or recreated."""
        try:
            yield
        except HeadraceError:
            self._schema, self._key_fields, self._fresh, self._cached, self._direct = None, (), False, None, None
            self._look = None
            raise

    # -- progress -----------------------------------------------------------------------------------------------------

    def reached(self, group: str) -> Mapping[TopicPartition, int] | None:
        """Return the offsets in the newest commits that have offsets. Cached until another commit."""
        progress = self._progress_of(group)
        return None if progress is None else progress.offsets

    def log_progress(self, group: str) -> log_progress.Progress:
        """Return the progress in the logs of the source's servers, from the commits that ``reached`` reads."""
        progress = self._progress_of(group)
        return {} if progress is None else progress.logs

    def _progress_of(self, group: str) -> Progress | None:
        """Return the progress in the newest commits; None if no commit contains any, or there is no table."""
        if self.schema() is None:
            return None
        with self._naming_the_file():
            try:
                head = self._look.head if self._look else self._format.head(self._session, self._path).id
            except NotThere:
                self._schema = None
                if self.schema() is None:
                    return None
                raise
            if self._cached is None or self._cached[0] != head or self._cached[1].group != group:
                progress = progress_of_commits(self._history(), group)
                if progress is None:
                    return None
                self._cached = head, progress
            return self._cached[1]

    def _progress_before(self, commit: Commit) -> Progress:
        """Return the progress that a commit repeats: its group's, or without a group that of the newest commit."""
        if self._fresh:
            return NO_PROGRESS
        if commit.group:
            if self._cached is not None and self._cached[1].group == commit.group:
                return self._cached[1]
            return self._progress_of(commit.group) or Progress(commit.group, {})
        if self._cached is not None and self._cached[0] == self._format.head(self._session, self._path).id:
            return self._cached[1]
        return progress_of_commits(self._history()) or NO_PROGRESS

    def _history(self) -> Iterator[Mapping[str, str]]:
        """Yield the properties of commits, newest first. Another worker may be of a later release."""
        for properties in self._format.history(self._session, self._path):
            refuse_newer(self._label, properties)
            yield properties

    def offsets(self, group: str) -> Mapping[TopicPartition, int]:
        """Return ``reached``, or the offsets in the rows if no stored commit contains offsets.

        The commits with offsets may have expired, or the table's log was cleaned while no events arrived.
        """
        if self.schema() is None or self._fresh:
            return {}
        reached = self.reached(group)
        if reached is not None:
            return reached
        rows = self._session.rows(row_offsets_sql(self._table))
        return {TopicPartition(row.topic, row.number): row.next for row in rows}

    # -- reading and maintenance --------------------------------------------------------------------------------------

    def stored(self, actions: Actions) -> Mapping[str, RowVersion]:
        """Return the versions of the rows under the actions' keys; rows of other writers have UNVERSIONED."""
        schema = self._existing_schema()
        with suppress(Declined), self._naming_the_file():
            return self._direct_writer(schema).versions(actions, schema)
        part = stage_keys(actions, schema, soft=self._soft)
        with self._session.staged_view(part.rows) as view, self._naming_the_file():
            rows = self._session.arrow(stored_sql(self._table, view, part.shape))
        return dict(zip(rows["key"].to_pylist(), row_versions(rows), strict=True))

    def topics(self) -> Collection[str]:
        """Return the topics in the versions of the rows."""
        return [] if self.schema() is None else reader.topics(self._session, self._live())

    def snapshot(self, columns: Sequence[str]) -> str | None:
        """Return the id of the newest commit, if it has these columns."""
        if self.schema() is None:
            return None
        snapshot = self._format.snapshot(self._session, self._path)
        if snapshot is None:
            return None
        stored = self._session.arrow(f"SELECT * FROM {self._table} VERSION AS OF {snapshot} LIMIT 0")
        return snapshot if set(columns) <= set(stored.column_names) else None

    def scan(self, columns: Sequence[str], snapshot: str | None = None) -> Iterator[pa.Table]:
        """Yield these columns of every row."""
        if self.schema() is not None:
            with self._naming_the_file():
                yield from reader.scan(self._session, self._live(snapshot), columns)

    def read(self, keys: pa.Table) -> pa.Table:
        """Return the rows under the keys, with Headrace's own columns."""
        schema = self.schema()
        if schema is None:
            return pa.schema([*keys.schema, *VERSION_COLUMNS]).empty_table()
        with self._naming_the_file():
            return reader.read(self._session, self._live(), [*schema.names, *VERSION_COLUMNS.names], keys)

    def last_states(
        self, key_fields: Sequence[str], columns: Sequence[str], keys: pa.Table | None = None
    ) -> Iterator[pa.Table]:
        """Yield the last state of each key of a history, or of some keys. Raises Fatal for events without a key."""
        if self.schema() is not None:
            with self._naming_the_file():
                if keys is None:
                    yield from reader.last_states(self._session, self._table, columns, key_fields)
                else:
                    yield reader.last_states_of(self._session, self._table, columns, keys)

    def _live(self, snapshot: str | None = None) -> str:
        table = self._table if snapshot is None else f"{self._table} VERSION AS OF {snapshot}"
        return live_sql(table) if self._soft else table

    def maintenance_due(self, now: int) -> bool:
        """Return whether files or ledger entries have added up, or snapshots may have expired."""
        return self._upkeep.is_due(now)

    def maintain(self, now: int, tombstone_retention: int) -> None:
        """Compact, expire snapshots and old tombstones, if due. Safe beside one thread that calls other methods."""
        if self.schema() is not None:
            self._upkeep.run(now, tombstone_retention)

    def upkeep(self) -> UpkeepReport:
        """Return the files after this handle's newest commit, and the bytes that its merges and upkeep have written."""
        return replace(self._upkeep.report, notes=self._notes)
