"""Writes small batches to an Iceberg table without a Spark job.

The rows of a batch go into one Parquet file, the rows that they replace and those that are deleted into deletion
vectors, all in one snapshot (``DirectTable.java``). An index (``row_index.py``) contains the locations of all stored
rows by key, so that a commit reads nothing. The index is valid for one snapshot. A commit on top of another one fails,
and the index is updated from the files that are new.

A small table (``row_index.py``) has one data file, which each commit replaces by one with all rows: without vectors
and later merges it writes fewer objects, and readers find one file.

The gate of an action (``core/model/actions.py``) is open if its position is above the highest position of the file that
contains the stored row. The versions of other rows are read, as after a restart, and so are cells that changes keep
(``stored_rows.py``). A MERGE writes what is declined.

An updated row keeps its ``_row_id`` (https://iceberg.apache.org/spec/#row-lineage).

Tests: ``tests/contracts/test_direct_commits.py``, ``test_direct_conflicts.py``, ``test_direct_limits.py``;
``tests/unit/lakehouse/direct/``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from headrace.core.model.actions import Actions
from headrace.core.model.events import RowVersion
from headrace.ports import MergeCounts
from headrace_connectors.lakehouse import deletion_vectors
from headrace_connectors.lakehouse.direct.applied_actions import AppliedActions, read_versions
from headrace_connectors.lakehouse.direct.data_file import ROW_ID, data_columns, unsuitable_columns, write_file
from headrace_connectors.lakehouse.direct.direct_table import DirectTable, NewFile, NewVector, TableState, Unavailable
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.direct.key_index import ABSENT
from headrace_connectors.lakehouse.direct.partitions import divide
from headrace_connectors.lakehouse.direct.row_index import RowIndex, Unsuitable
from headrace_connectors.lakehouse.failures import Declined
from headrace_connectors.lakehouse.iceberg_table import DELETED_ROWS, UPSERTED, IcebergName, commit_result
from headrace_connectors.lakehouse.table_format import CommitResult, TakeLoaded
from headrace_connectors.lakehouse.table_session import TableSession

MOST_ROWS = 200_000
MOST_BYTES = 32 * 2**20
"""Rows and cells of the largest batch. At 50,000 rows a commit still needs a sixth of a MERGE's CPU time (``make
scale``); the JVM receives a batch as one array."""


class IcebergDirectWriter:
    """A ``DirectWriter`` to the table called ``name``. One thread at a time calls ``write``.

    ``key_fields`` are the columns of its row key, of the types that ``schema`` has. ``soft`` is whether deleted rows
    stay and are marked. The index is part of ``memory``.
    """

    def __init__(
        self,
        session: TableSession,
        name: IcebergName,
        schema: pa.Schema,
        key_fields: tuple[str, ...],
        memory: IndexMemory,
        *,
        soft: bool,
    ) -> None:
        self._key_fields = key_fields
        self._soft = soft
        self._memory = memory
        self._in_use = threading.Lock()
        self._state: TableState | None = None  # the snapshot that the index is valid for
        self._refused = ""
        try:
            self._table = DirectTable(session, name)
            self._index = RowIndex(self._table, schema, key_fields, soft=soft)
        except (Unavailable, Unsuitable) as error:
            self._refused = str(error)

    def write(
        self, actions: Actions, schema: pa.Schema, properties: Mapping[str, str], loaded: TakeLoaded | None = None
    ) -> CommitResult:
        """Apply the actions in one commit on top of the newest snapshot."""
        try:
            self._decline_unsuitable(actions)
            with self._using_index():
                state, index = self._current(schema, loaded() if loaded else None), self._index
                lookup = index.find(index.keys_of(actions, schema))
                locations = lookup.locations
                marked = index.marks(locations) if self._soft else None
                applied = AppliedActions(actions, locations, index.may_be_outranked(actions, locations), index, marked)
                written, replaced = applied.written, locations[applied.applies & (locations != ABSENT)]
                if not len(written) and not len(replaced):
                    return CommitResult(MergeCounts(0, 0), made=False)

                row_ids = index.row_ids(locations[written])
                has_ids = row_ids.null_count < len(row_ids)
                rows = applied.rows(schema, {ROW_ID: row_ids} if has_ids else {})
                counts = {
                    UPSERTED: str((applied.applies & ~actions.delete).sum()),
                    DELETED_ROWS: str((applied.applies & actions.delete).sum()),
                }
                survivors = index.survivors(replaced)
                if survivors is not None:
                    rows = pa.concat_tables([rows, survivors.rows], promote_options="default").combine_chunks()
                parts = [
                    (partition, part, rows if len(part) == len(rows) else rows.take(pa.array(part)))
                    for partition, part in (divide(rows, state.partitioning, state.names) if len(rows) else ())
                ]
                files = [
                    NewFile(partition, write_file(of_part, state.schema, state.metrics, state.compression))
                    for partition, _, of_part in parts
                ]
                deleted = index.deleted_with(replaced) if survivors is None else {}
                vectors = [
                    NewVector(index.path(number), len(bitmap), deletion_vectors.encode(bitmap))
                    for number, bitmap in deleted.items()
                ]

                self._state = None  # until the index contains the commit
                removed = index.paths if survivors is not None else ()
                commit = self._table.commit(files, vectors, {**properties, **counts}, removed)
                if survivors is not None:
                    new = index.replace_files(commit.files[0] if commit.files else None, rows, survivors)
                else:
                    new = np.full(len(rows), ABSENT, np.int64)
                    for file, (_, part, of_part) in zip(commit.files, parts, strict=True):
                        new[part] = index.add_file(file, of_part)
                new_locations = np.full(len(actions), ABSENT, np.int64)
                new_locations[written] = new
                index.store(lookup.filter(applied.applies), new_locations[applied.applies])
                for (number, bitmap), vector in zip(deleted.items(), commit.vectors, strict=True):
                    index.store_vector(number, vector, bitmap)
                self._state = state
                return commit_result(commit.snapshot)
        except Declined as declined:
            return CommitResult(MergeCounts(0, 0), made=False, declined=str(declined))

    def versions(self, actions: Actions, schema: pa.Schema) -> Mapping[str, RowVersion]:
        """Read the versions in the newest snapshot."""
        self._decline_unsuitable(actions)
        with self._using_index():
            self._current(schema)
            locations = self._index.find(self._index.keys_of(actions, schema)).locations
            stored = np.flatnonzero((locations != ABSENT) & ~self._index.marks(locations))
            return read_versions(self._index, actions, locations, stored)

    def drop_index(self) -> bool:
        """Remove the index unless a batch is being written; the next batch reads it again."""
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            self._drop()
            return True
        finally:
            self._in_use.release()

    @contextmanager
    def _using_index(self) -> Iterator[None]:
        """Prevent that the index is dropped, and register its size afterwards."""
        with self._in_use:
            try:
                yield
            finally:
                if self._index.nbytes > self._memory.limit:
                    self._drop()
                self._memory.use(self, self._index.nbytes)

    def _decline_unsuitable(self, actions: Actions) -> None:
        if not self._memory.limit:
            raise Declined("there is no memory for indexes (write.index.memory.bytes)")
        if self._refused:
            raise Declined(self._refused)
        size = sum(column.values.nbytes for column in actions.columns)
        if len(actions) > MOST_ROWS or size > MOST_BYTES:
            raise Declined(f"the batch has more than {MOST_ROWS} rows or {MOST_BYTES} bytes")
        if actions.key_fields != self._key_fields:
            raise Declined("the key of the changes is not that of the table")
        for column in actions.columns:
            if column.name in self._key_fields and column.values.null_count:
                raise Declined("a key is null")

    def _current(self, schema: pa.Schema, loaded: Any = None) -> TableState:
        """Return the newest snapshot, for which the index is valid afterwards."""
        if not self._table.is_current(loaded) or self._state is None:
            self._state = None  # until the index is complete again
            state = self._table.load()
            if reason := state.refused or unsuitable_columns(state.schema, schema):
                self._refuse(reason)
            if set(schema.names) != set(data_columns(state.schema)):
                raise Declined("another writer has changed the columns of the table")
            try:
                self._index.synchronize(state, schema, self._memory.limit)
            except Unsuitable as unsuitable:
                self._refuse(str(unsuitable))
            self._state = state
        return self._state

    def _refuse(self, reason: str) -> NoReturn:
        """Decline this batch and all later ones, without a look at the table."""
        self._refused = reason
        self._drop()
        raise Declined(reason)

    def _drop(self) -> None:
        self._index.clear()
        self._state = None
