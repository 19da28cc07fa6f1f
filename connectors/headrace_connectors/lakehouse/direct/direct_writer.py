"""Writes small batches to an Iceberg table without a Spark job.

The rows of a batch go into one Parquet file, the rows that they replace and those that are deleted into deletion
vectors, all in one snapshot (``DirectTable.java``). An index of all keys (``key_index.py``) contains the locations of
the stored rows, so that a commit reads nothing. The index is valid for one snapshot. A commit on top of another one
fails, and the index is updated from the files that are new.

The gate of an action (``core/model/actions.py``) is open if its position is above the highest position of the file that
contains the stored row. The versions of other rows are read, as after a restart, and so are cells that changes keep
(``stored_rows.py``). A MERGE writes what is declined.

An updated row keeps its ``_row_id`` (https://iceberg.apache.org/spec/#row-lineage).

Tests: ``tests/contracts/test_direct_commits.py``, ``tests/unit/lakehouse/direct/``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from headrace.core.model.actions import Actions
from headrace.core.model.events import NO_POSITION, Bools, RowVersion
from headrace.core.model.keys import canonical_keys
from headrace.ports import MergeCounts
from headrace_connectors.lakehouse import deletion_vectors
from headrace_connectors.lakehouse.direct.applied_actions import AppliedActions
from headrace_connectors.lakehouse.direct.data_file import (
    ROW_ID,
    ROW_ID_FIELD,
    column_names,
    data_columns,
    unsuitable_columns,
    write_file,
)
from headrace_connectors.lakehouse.direct.direct_table import (
    DirectTable,
    NewFile,
    NewVector,
    StoredFile,
    TableState,
    Unavailable,
)
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.direct.key_index import (
    ABSENT,
    LEAST_BYTES_PER_ROW,
    DuplicateKey,
    KeyIndex,
    Keys,
    file_numbers,
    row_locations,
    rows_in_file,
)
from headrace_connectors.lakehouse.direct.partitions import divide
from headrace_connectors.lakehouse.direct.stored_rows import Columns, read_rows
from headrace_connectors.lakehouse.iceberg_table import DELETED_ROWS, UPSERTED, commit_result
from headrace_connectors.lakehouse.ledger import row_versions
from headrace_connectors.lakehouse.schema import DELETED, SOFT_COLUMNS, VERSION_COLUMNS
from headrace_connectors.lakehouse.staging import in_lake_type
from headrace_connectors.lakehouse.table_format import CommitResult, Declined
from headrace_connectors.lakehouse.table_session import TableSession

MOST_ROWS = 200_000
MOST_BYTES = 32 * 2**20
"""Rows and cells of the largest batch. At 50,000 rows a commit still needs a sixth of a MERGE's CPU time (``make
scale``); the JVM receives a batch as one array."""

_TOO_LARGE = "the keys of the table exceed the memory for indexes (write.index.memory.bytes)"
_POSITION = VERSION_COLUMNS.names[0]

Ints = npt.NDArray[np.int64]


@dataclass(slots=True)
class _IndexedFile:
    """A data file whose rows are in the index.

    ``highest`` is the highest position of its rows (b"" if none has one), ``row_ids`` are the ids that the file
    contains (-1 for a row whose id follows from its position), and ``deleted`` are the rows that its vector deletes.
    ``marked`` are the rows that stay, and are marked as deleted.
    """

    stored: StoredFile
    highest: bytes
    row_ids: Ints | None = None
    deleted: BitMap64 = field(default_factory=BitMap64)
    marked: BitMap64 = field(default_factory=BitMap64)

    def ids(self, rows: Ints) -> Ints:
        places = self.stored.first_row_id + rows
        if self.row_ids is None:
            return places
        stored = self.row_ids[rows]
        return np.where(stored < 0, places, stored)


class IcebergDirectWriter:
    """A ``DirectWriter`` to the table called ``name`` (quoted, with its catalog). One thread at a time calls ``write``.

    ``key_fields`` are the columns of its row key, of the types that ``schema`` has. ``soft`` is whether deleted rows
    stay and are marked. The index is part of ``memory``.
    """

    def __init__(
        self,
        session: TableSession,
        name: str,
        schema: pa.Schema,
        key_fields: tuple[str, ...],
        memory: IndexMemory,
        *,
        soft: bool,
    ) -> None:
        self._session = session
        self._name = name
        self._soft = soft
        self._key_fields = key_fields
        types = [schema.field(key).type for key in key_fields]
        self._integers = len(types) == 1 and pa.types.is_integer(types[0])
        is_plain = bool(types) and not any(map(pa.types.is_nested, types)) and "." not in "".join(key_fields)
        self._refused = (
            "" if is_plain else "the table has no key, or one with nested columns or names that contain a dot"
        )
        self._memory = memory
        self._in_use = threading.Lock()
        self._table: DirectTable | None = None
        self._state: TableState | None = None
        self._files: dict[int, _IndexedFile] = {}
        self._index = KeyIndex(integers=self._integers)
        self._next_number = 0

    def write(self, actions: Actions, schema: pa.Schema, properties: Mapping[str, str]) -> CommitResult:
        """Apply the actions in one commit on top of the newest snapshot."""
        with self._using_index():
            self._decline_unsuitable(actions)
            table, state = self._current(schema)
            keys = self._row_keys(actions, schema)
            locations = self._index.find(keys)
            stored = _IndexedRows(table, self._files, _column_types(state, schema))
            marked = self._marked(locations) if self._soft else None
            applied = AppliedActions(actions, locations, self._late(actions, locations), stored, marked)
            written, replaced = applied.written, locations[applied.applies & (locations != ABSENT)]
            deleted_rows = int((applied.applies & actions.delete).sum())
            counts = {UPSERTED: int(applied.applies.sum()) - deleted_rows, DELETED_ROWS: deleted_rows}
            if not len(written) and not len(replaced):
                return CommitResult(MergeCounts(0, 0), made=False)

            row_ids = self._row_ids(locations[written])
            has_ids = row_ids.null_count < len(row_ids)
            rows = applied.rows(schema, {ROW_ID: row_ids} if has_ids else {})
            parts = list(divide(rows, state.partitioning, state.names)) if len(written) else []
            files = [
                NewFile(
                    partition, write_file(rows.take(pa.array(part)), state.schema, state.metrics, state.compression)
                )
                for partition, part in parts
            ]
            deleted = self._deleted_with(replaced)
            vectors = [
                NewVector(self._files[number].stored.path, len(bitmap), deletion_vectors.encode(bitmap))
                for number, bitmap in deleted.items()
            ]
            self._state = None  # until the index contains the commit
            commit = table.commit(files, vectors, {**properties, **{name: str(counts[name]) for name in counts}})
            new_locations = np.full(len(actions), ABSENT, np.int64)
            for file, (_, part) in zip(commit.files, parts, strict=True):
                new_locations[written[part]] = row_locations(self._next_number, np.arange(len(part)))
                highest = max(applied.version.position[part].tolist())
                ids = pc.fill_null(row_ids.take(pa.array(part)), -1).to_numpy() if has_ids else None
                marks = BitMap64(np.flatnonzero(actions.delete[written[part]]).tolist())
                self._register(_IndexedFile(file, highest, ids, marked=marks))
            self._index.put(keys.filter(pa.array(applied.applies)), new_locations[applied.applies])
            for (other, bitmap), vector in zip(deleted.items(), commit.vectors, strict=True):
                indexed = self._files[other]
                indexed.stored, indexed.deleted = replace(indexed.stored, vector=vector), bitmap
            self._state = state
            return commit_result(commit.snapshot)

    def stored(self, actions: Actions, schema: pa.Schema) -> Mapping[str, RowVersion]:
        """Read the versions in the newest snapshot."""
        with self._using_index():
            self._decline_unsuitable(actions)
            table, state = self._current(schema)
            locations = self._index.find(self._row_keys(actions, schema))
            index = np.flatnonzero((locations != ABSENT) & ~self._marked(locations))
            if not len(index):
                return {}
            stored = _IndexedRows(table, self._files, _column_types(state, schema))
            versions = row_versions(stored.read(locations[index], tuple(VERSION_COLUMNS.names)))
            return dict(zip(actions.key.take(pa.array(index)).to_pylist(), versions, strict=True))

    @contextmanager
    def _using_index(self) -> Iterator[None]:
        """Prevent that the index is dropped, and register its size afterwards."""
        with self._in_use:
            try:
                yield
            finally:
                if self._nbytes > self._memory.limit:
                    self._drop()
                self._memory.use(self, self._nbytes)

    def drop_index(self) -> bool:
        """Remove the index unless a batch is being written; the next batch reads it again."""
        if not self._in_use.acquire(blocking=False):
            return False
        try:
            self._drop()
            return True
        finally:
            self._in_use.release()

    # -- which batches ------------------------------------------------------------------------------------------------

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

    def _late(self, actions: Actions, locations: Ints) -> Bools:
        """Return the actions that their stored row may outrank: only its version tells."""
        stored = locations != ABSENT
        numbers = file_numbers(locations[stored])
        highest = np.array([NO_POSITION] * len(numbers), actions.gates.position.dtype)
        for number in np.unique(numbers).tolist():
            position = self._files[number].highest
            highest = highest.astype(np.promote_types(highest.dtype, f"S{max(1, len(position))}"))
            highest[numbers == number] = position
        gates, versions = actions.gates.position[stored], actions.version.position[stored]
        above = (versions > highest) & ((gates > highest) | (gates == NO_POSITION))
        late = np.zeros(len(actions), np.bool_)
        late[stored] = (~above & (highest != NO_POSITION)) | actions.gates.by_arrival[stored]
        return late

    # -- the index ----------------------------------------------------------------------------------------------------

    def _current(self, schema: pa.Schema) -> tuple[DirectTable, TableState]:
        """Return the table and its newest snapshot, which the index is valid for."""
        if self._table is None:
            try:
                self._table = DirectTable(self._session, self._name)
            except Unavailable as error:
                self._refuse(str(error))
        if not self._table.is_current() or self._state is None:
            self._state = None  # until the index is complete again
            state = self._table.load()
            if reason := state.refused or unsuitable_columns(state.schema, schema):
                self._refuse(reason)
            if set(schema.names) != set(data_columns(state.schema)):
                raise Declined("another writer has changed the columns of the table")
            try:
                self._synchronize(self._table, state)
            except DuplicateKey:
                self._refuse("several rows of the table have the same key")
            self._state = state
        return self._table, self._state

    def _refuse(self, reason: str) -> NoReturn:
        """Decline this batch and all later ones, without a look at the table."""
        self._refused = reason
        self._drop()
        raise Declined(reason)

    def _synchronize(self, table: DirectTable, state: TableState) -> None:
        """Bring the index up to date with the files and vectors of a snapshot."""
        if LEAST_BYTES_PER_ROW * sum(file.rows for file in state.files) > self._memory.limit:
            self._refuse(_TOO_LARGE)
        files = {file.path: file for file in state.files}
        for number, indexed in list(self._files.items()):
            file = files.get(indexed.stored.path)
            vector = indexed.deleted
            if file is not None and file.vector != indexed.stored.vector:
                vector = table.read_vector(file.vector)
            if file is None or not indexed.deleted <= vector:  # after a compaction, or a rollback that restores rows
                self._index.remove_file(number)
                del self._files[number]
                continue
            self._index.remove_rows(number, _positions(vector - indexed.deleted))
            indexed.stored, indexed.deleted = file, vector
            del files[file.path]
        ids = {column["name"]: column["id"] for column in state.schema["fields"]}
        for file in files.values():
            self._add(table, file, ids)
            if self._nbytes > self._memory.limit:
                self._refuse(_TOO_LARGE)

    @property
    def _nbytes(self) -> int:
        row_ids = (indexed.row_ids for indexed in self._files.values())
        return self._index.nbytes + sum(ids.nbytes for ids in row_ids if ids is not None)

    def _drop(self) -> None:
        self._files, self._index, self._state = {}, KeyIndex(integers=self._integers), None

    def _add(self, table: DirectTable, file: StoredFile, ids: Mapping[str, int]) -> None:
        """Read the keys of a file. ``ids`` identify the columns, which may have had other names."""
        deleted = table.read_vector(file.vector)
        with table.open(file) as parquet:
            names = column_names(parquet)
            key = [names.get(ids[name]) for name in self._key_fields]
            if None in key:
                self._refuse("a file lacks a column of the key, or the ids of columns")
            row_id, mark = names.get(ROW_ID_FIELD), names.get(ids[DELETED]) if self._soft else None
            rows = parquet.read([name for name in (*key, row_id, mark) if name is not None]).combine_chunks()
            highest = _highest_position(parquet, names.get(ids[_POSITION]))
        live = np.ones(file.rows, np.bool_)
        live[_positions(deleted)] = False
        keys = self._keys([rows[name].combine_chunks() for name in key])
        live &= keys.is_valid().to_numpy(zero_copy_only=False)  # no change has a key with a null
        row_ids = None
        if row_id is not None and rows[row_id].null_count < file.rows:
            row_ids = pc.fill_null(rows[row_id], -1).to_numpy()
        marked = BitMap64()
        if mark is not None:
            marked = BitMap64(np.flatnonzero(pc.fill_null(rows[mark], fill_value=False).to_numpy()).tolist())
        rows_alive = np.flatnonzero(live)
        self._index.add(keys.take(pa.array(rows_alive)), row_locations(self._next_number, rows_alive))
        self._register(_IndexedFile(file, highest, row_ids, deleted, marked))

    def _row_keys(self, actions: Actions, schema: pa.Schema) -> Keys:
        columns = {column.name: column.values for column in actions.columns}
        return self._keys([in_lake_type(columns[name], name, schema) for name in self._key_fields])

    def _keys(self, columns: Sequence[pa.Array]) -> Keys:
        return columns[0].cast(pa.int64()) if self._integers else canonical_keys(columns)

    def _register(self, indexed: _IndexedFile) -> None:
        """Store a file whose rows are in the index, under the next number."""
        self._files[self._next_number] = indexed
        self._next_number += 1

    def _marked(self, locations: Ints) -> Bools:
        """Return which of the rows are marked as deleted."""
        marked = np.zeros(len(locations), np.bool_)
        numbers = np.where(locations == ABSENT, -1, file_numbers(locations))
        for number in np.unique(numbers[numbers >= 0]).tolist():
            if rows := self._files[number].marked:
                marked[numbers == number] = np.isin(rows_in_file(locations[numbers == number]), _positions(rows))
        return marked

    def _row_ids(self, locations: Ints) -> pa.Array:
        """Return the ids of the stored rows, null for new rows."""
        ids = np.full(len(locations), -1, np.int64)
        numbers = np.where(locations == ABSENT, -1, file_numbers(locations))
        for number in np.unique(numbers[numbers >= 0]).tolist():
            chosen = numbers == number
            ids[chosen] = self._files[number].ids(rows_in_file(locations[chosen]))
        return pa.array(ids, pa.int64(), mask=ids < 0)

    def _deleted_with(self, locations: Ints) -> Mapping[int, BitMap64]:
        """Return the deleted rows of files, by file number, with those at ``locations``."""
        numbers = file_numbers(locations)
        return {
            number: self._files[number].deleted | BitMap64(rows_in_file(locations[numbers == number]).tolist())
            for number in np.unique(numbers).tolist()
        }


def _column_types(state: TableState, schema: pa.Schema) -> Columns:
    """Return all columns of a table, Headrace's own included. ``schema`` is of the data columns."""
    types = {field.name: field.type for field in [*schema, *SOFT_COLUMNS]}
    return {column["name"]: (column, types[column["name"]]) for column in state.schema["fields"]}


class _IndexedRows:
    """The rows of indexed files by their location (``StoredRows``)."""

    def __init__(self, table: DirectTable, files: Mapping[int, _IndexedFile], columns: Columns) -> None:
        self._table = table
        self._files = files
        self._columns = columns

    def read(self, locations: Ints, columns: tuple[str, ...]) -> pa.Table:
        chosen = {name: self._columns[name] for name in columns}
        numbers, parts, places = file_numbers(locations), [], []
        for number in np.unique(numbers).tolist():
            place = np.flatnonzero(numbers == number)
            with self._table.open(self._files[number].stored) as parquet:
                parts.append(read_rows(parquet, rows_in_file(locations[place]), chosen))
            places.append(place)
        order = np.argsort(np.concatenate(places))
        return pa.concat_tables(parts).take(pa.array(order))


def _positions(bitmap: BitMap64) -> Ints:
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


def _highest_position(parquet: pq.ParquetFile, name: str | None) -> bytes:
    """Return the highest position of a file's rows, from the statistics if it has them."""
    if name is None:  # a file from before the table was adopted
        return b""
    columns = range(parquet.metadata.num_columns)
    column = next(index for index in columns if parquet.schema.column(index).path == name)
    highest = b""
    for number in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(number).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            highest = max(highest, statistics.max_raw)
        else:
            text = pc.max(parquet.read_row_group(number, [name])[name]).as_py()
            highest = max(highest, (text or "").encode())
    return highest
