"""The index of a table's rows: their locations by key, and what is known of the files that contain them.

It is valid for one snapshot. ``synchronize`` brings it up to date with another one, from the files that are new.

A *small* table has few bytes of rows. Its rows are in memory, because each commit writes all of them again
(``direct_writer.py``).

Tests: ``tests/contracts/test_direct_commits.py``, ``test_direct_conflicts.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from headrace.core.model.actions import Actions
from headrace.core.model.events import NO_POSITION, Bools
from headrace.core.model.keys import canonical_keys
from headrace_connectors.lakehouse.direct.data_file import (
    ROW_ID,
    ROW_ID_FIELD,
    SEQUENCE,
    SEQUENCE_FIELD,
    column_names,
)
from headrace_connectors.lakehouse.direct.direct_table import DirectTable, StoredFile, TableState, VectorFile
from headrace_connectors.lakehouse.direct.key_index import (
    ABSENT,
    LEAST_BYTES_PER_ROW,
    DuplicateKey,
    KeyIndex,
    Keys,
    Lookup,
    file_numbers,
    row_locations,
    rows_in_file,
)
from headrace_connectors.lakehouse.direct.stored_rows import Columns, read_rows
from headrace_connectors.lakehouse.failures import Declined
from headrace_connectors.lakehouse.schema import DELETED, SOFT_COLUMNS, VERSION_COLUMNS
from headrace_connectors.lakehouse.staging import in_lake_type

SMALL_BYTES = 16 * 2**10
"""Bytes of the files of a small table: roughly those of the two manifests, the vector and the share of a later merge
that a commit of another table writes."""

SMALL_UNPACKED = 2**20
"""Bytes of its rows in memory: texts that repeat are compressed to a hundredth."""

_POSITION = VERSION_COLUMNS.names[0]
_LINEAGE = {ROW_ID: ROW_ID_FIELD, SEQUENCE: SEQUENCE_FIELD}

Ints = npt.NDArray[np.int64]


class Unsuitable(Exception):
    """The rows of a table cannot be indexed. The message says why."""


@dataclass(slots=True)
class IndexedFile:
    """A data file whose rows are in the index.

    ``highest`` is the highest position of its rows (b"" if none has one), ``row_ids`` are the ids that the file
    contains (-1 for a row whose id follows from its position), and ``deleted`` are the rows that its vector deletes.
    ``marked`` are the rows that stay, and are marked as deleted. ``content`` are all rows of a file of a small table,
    in all columns of the table, with their lineage.
    """

    stored: StoredFile
    highest: bytes
    row_ids: Ints | None = None
    deleted: BitMap64 = field(default_factory=BitMap64)
    marked: BitMap64 = field(default_factory=BitMap64)
    content: pa.Table | None = None

    def ids(self, rows: Ints) -> Ints:
        places = self.stored.first_row_id + rows
        if self.row_ids is None:
            return places
        stored = self.row_ids[rows]
        return np.where(stored < 0, places, stored)


class Survivors(NamedTuple):
    """The rows of a small table that a commit does not change: with their lineage, and where they were."""

    rows: pa.Table
    locations: Ints


class RowIndex:
    """``key_fields`` are the columns of the row key, of the types that ``schema`` has.

    ``soft`` is whether deleted rows stay and are marked. Raises Unsuitable for keys that have no index.
    """

    def __init__(self, table: DirectTable, schema: pa.Schema, key_fields: tuple[str, ...], *, soft: bool) -> None:
        types = [schema.field(key).type for key in key_fields]
        if not types or any(map(pa.types.is_nested, types)) or "." in "".join(key_fields):
            raise Unsuitable("the table has no key, or one with nested columns or names that contain a dot")
        self._table = table
        self._key_fields = key_fields
        self._soft = soft
        self._integers = len(types) == 1 and pa.types.is_integer(types[0])
        self._keys = KeyIndex(integers=self._integers)
        self._files: dict[int, IndexedFile] = {}
        self._next_number = 0
        self._columns: Columns = {}
        self._is_partitioned = self._only_spark_reads = False

    @property
    def nbytes(self) -> int:
        files = self._files.values()
        return self._keys.nbytes + sum(
            part.nbytes for file in files for part in (file.row_ids, file.content) if part is not None
        )

    @property
    def _is_small(self) -> bool:
        """Whether a commit writes all rows again."""
        if self._is_partitioned or self._only_spark_reads:
            return False
        size = 0
        for file in self._files.values():  # of which a large table may have thousands
            size += file.stored.size
            if size > SMALL_BYTES:
                return False
        return True

    def clear(self) -> None:
        self._files, self._keys = {}, KeyIndex(integers=self._integers)

    # -- a snapshot ---------------------------------------------------------------------------------------------------

    def synchronize(self, state: TableState, schema: pa.Schema, limit: int) -> None:
        """Bring the index up to date with a snapshot. ``schema`` has the data columns in lake types.

        Raises Unsuitable if it would take more than ``limit`` bytes, and for a table with two rows of one key.
        """
        types = {field.name: field.type for field in [*schema, *SOFT_COLUMNS]}
        self._columns = {column["name"]: (column, types[column["name"]]) for column in state.schema["fields"]}
        files = {file.path: file for file in state.files}
        self._is_partitioned, self._only_spark_reads = bool(state.partitioning), False
        gone, deleted = set[int](), [np.empty(0, np.int64)]
        for number, indexed in list(self._files.items()):
            indexed.content = None  # the columns may have changed
            file = files.get(indexed.stored.path)
            vector = indexed.deleted
            if file is not None and file.vector != indexed.stored.vector:
                vector = self._table.read_vector(file.vector)
            if file is None or not indexed.deleted <= vector:  # after a compaction, or a rollback that restores rows
                gone.add(number)
                del self._files[number]
                continue
            deleted.append(row_locations(number, _positions(vector - indexed.deleted)))
            indexed.stored, indexed.deleted = file, vector
            del files[file.path]
        self._keys.remove_files(gone)
        self._keys.remove_rows(np.concatenate(deleted))
        too_large = Unsuitable("the keys of the table exceed the memory for indexes (write.index.memory.bytes)")
        if LEAST_BYTES_PER_ROW * sum(file.rows for file in state.files) > limit:
            raise too_large
        for file in files.values():
            self._read_file(file)
            if self.nbytes > limit:
                raise too_large

    def _read_file(self, file: StoredFile) -> None:
        """Add the rows of a file. Its columns are found by their ids: they may have had other names."""
        ids = {name: column["id"] for name, (column, _) in self._columns.items()}
        deleted = self._table.read_vector(file.vector)
        with self._table.open(file) as parquet:
            names = column_names(parquet)
            key = [names.get(ids[name]) for name in self._key_fields]
            if None in key:
                raise Unsuitable("a file lacks a column of the key, or the ids of columns")
            row_id, mark = names.get(ROW_ID_FIELD), names.get(ids[DELETED]) if self._soft else None
            rows = parquet.read([name for name in (*key, row_id, mark) if name is not None]).combine_chunks()
            highest = _highest_position(parquet, names.get(ids[_POSITION]))
        indexed = IndexedFile(file, highest, deleted=deleted)
        if row_id is not None and rows[row_id].null_count < file.rows:
            indexed.row_ids = pc.fill_null(rows[row_id], -1).to_numpy()
        if mark is not None:
            indexed.marked = BitMap64(np.flatnonzero(pc.fill_null(rows[mark], fill_value=False).to_numpy()).tolist())
        keys = self._in_index_type([rows[name].combine_chunks() for name in key])
        live = keys.is_valid().to_numpy(zero_copy_only=False)  # no change has a key with a null
        live[_positions(deleted)] = False
        locations = self._locations_in(indexed)
        try:
            self._keys.add(keys.filter(pa.array(live)), locations[live])
        except DuplicateKey:
            raise Unsuitable("several rows of the table have the same key") from None

    # -- a commit -----------------------------------------------------------------------------------------------------

    def add_file(self, file: StoredFile, rows: pa.Table) -> Ints:
        """Return the locations of a new file's ``rows``, whose keys are stored next."""
        indexed = IndexedFile(file, (pc.max(rows[_POSITION]).as_py() or "").encode())
        if ROW_ID in rows.column_names:
            indexed.row_ids = pc.fill_null(rows[ROW_ID], -1).to_numpy()
        if self._soft:
            indexed.marked = BitMap64(np.flatnonzero(pc.fill_null(rows[DELETED], fill_value=False).to_numpy()).tolist())
        locations = self._locations_in(indexed)
        if self._is_small and rows.nbytes <= SMALL_UNPACKED:
            indexed.content = _with_lineage(rows, file)
        return locations

    def replace_files(self, file: StoredFile | None, rows: pa.Table, survivors: Survivors) -> Ints:
        """Replace all files by one with ``rows``, the last of which are the survivors; None if there are no rows.

        Return the locations of the other rows, whose keys are stored next.
        """
        self._files = {}
        locations = self.add_file(file, rows) if file is not None else np.empty(0, np.int64)
        first = len(locations) - len(survivors.locations)
        self._keys.move(survivors.locations, locations[first:])
        return locations[:first]

    def _locations_in(self, file: IndexedFile) -> Ints:
        number, self._next_number = self._next_number, self._next_number + 1
        self._files[number] = file
        return row_locations(number, np.arange(file.stored.rows))

    def store(self, lookup: Lookup, locations: Ints) -> None:
        """Store the new locations of keys, ABSENT for keys that have lost their row."""
        self._keys.put(lookup, locations)

    def deleted_with(self, locations: Ints) -> Mapping[int, BitMap64]:
        """Return all deleted rows of the files with rows at ``locations``, these included, by the file's number."""
        return {
            number: self._files[number].deleted | BitMap64(rows_in_file(locations[index]).tolist())
            for number, index in _by_file(locations)
        }

    def path(self, number: int) -> str:
        return self._files[number].stored.path

    def store_vector(self, number: int, vector: VectorFile, deleted: BitMap64) -> None:
        """Store the new vector of a file."""
        file = self._files[number]
        file.stored, file.deleted = replace(file.stored, vector=vector), deleted

    # -- the rows of a batch ------------------------------------------------------------------------------------------

    def keys_of(self, actions: Actions, schema: pa.Schema) -> Keys:
        columns = {column.name: column.values for column in actions.columns}
        return self._in_index_type([in_lake_type(columns[name], name, schema) for name in self._key_fields])

    def find(self, keys: Keys) -> Lookup:
        """Look up the locations of keys."""
        return self._keys.find(keys)

    def may_be_outranked(self, actions: Actions, locations: Ints) -> Bools:
        """Return the actions that their stored row may outrank: only its version tells.

        An action whose position is above the highest position of the row's file outranks the row.
        """
        doubtful: Bools = actions.gates.by_arrival & (locations != ABSENT)
        gates, versions = actions.gates.position, actions.version.position
        for number, index in _by_file(locations):
            if (highest := self._files[number].highest) != NO_POSITION:
                gate = gates[index]
                # proven: positions-of-file
                doubtful[index] |= (versions[index] <= highest) | ((gate != NO_POSITION) & (gate <= highest))
        return doubtful

    def marks(self, locations: Ints) -> Bools:
        """Return which of the rows are marked as deleted."""
        marked = np.zeros(len(locations), np.bool_)
        for number, index in _by_file(locations):
            if rows := self._files[number].marked:
                marked[index] = np.isin(rows_in_file(locations[index]), _positions(rows))
        return marked

    def row_ids(self, locations: Ints) -> pa.Array:
        """Return the ids of the stored rows, null for new rows."""
        ids = np.full(len(locations), -1, np.int64)
        for number, index in _by_file(locations):
            ids[index] = self._files[number].ids(rows_in_file(locations[index]))
        return pa.array(ids, pa.int64(), mask=ids < 0)

    def read(self, locations: Ints, columns: Sequence[str]) -> pa.Table:
        """Return these columns of the rows at ``locations``, which are not ABSENT, in that order. Raises Declined."""
        chosen = {name: self._columns[name] for name in columns}
        parts, places = [], []
        for number, index in _by_file(locations):
            file, rows = self._files[number], rows_in_file(locations[index])
            if file.content is not None:
                parts.append(file.content.select(columns).take(pa.array(rows)))
            else:
                with self._table.open(file.stored) as parquet:
                    parts.append(read_rows(parquet, rows, chosen))
            places.append(index)
        return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))

    def survivors(self, replaced: Ints) -> Survivors | None:
        """Return the rows of a small table without those at ``replaced``; None if the table has no rows, or many."""
        if not self._files or not self._is_small:
            return None
        parts, locations = [pa.table({})], [np.empty(0, np.int64)]
        try:
            for number, file in self._files.items():
                live = np.ones(file.stored.rows, np.bool_)
                live[_positions(file.deleted)] = False
                live[rows_in_file(replaced[file_numbers(replaced) == number])] = False
                rows = np.flatnonzero(live)
                if len(rows):
                    parts.append(self._content(file).take(pa.array(rows)))
                    locations.append(row_locations(number, rows))
        except Declined:
            self._only_spark_reads = True
            for file in self._files.values():
                file.content = None
            return None
        return Survivors(pa.concat_tables(parts, promote_options="default"), np.concatenate(locations))

    def _content(self, file: IndexedFile) -> pa.Table:
        """Return all rows of a file with their lineage. Raises Declined."""
        if file.content is None:
            with self._table.open(file.stored) as parquet:
                rows = read_rows(parquet, np.arange(file.stored.rows), self._columns)
                names = column_names(parquet)
                for name, field_id in _LINEAGE.items():
                    if field_id in names:
                        rows = rows.append_column(name, parquet.read([names[field_id]])[0])
            if rows.nbytes > SMALL_UNPACKED:
                raise Declined("the rows of the table take much memory")
            file.content = _with_lineage(rows, file.stored)
        return file.content

    @property
    def paths(self) -> Sequence[str]:
        return [file.stored.path for file in self._files.values()]

    def _in_index_type(self, columns: Sequence[pa.Array]) -> Keys:
        return columns[0].cast(pa.int64()) if self._integers else canonical_keys(columns)


def _with_lineage(rows: pa.Table, file: StoredFile) -> pa.Table:
    """Return the rows of a file with the ids and numbers that they have where the file has none."""
    stored = [rows[name] if name in rows.column_names else pa.nulls(len(rows), pa.int64()) for name in _LINEAGE]
    rows = rows.drop_columns([name for name in _LINEAGE if name in rows.column_names])
    for name, values in zip(_LINEAGE, file.lineage(*stored), strict=True):
        rows = rows.append_column(name, values)
    return rows


def _by_file(locations: Ints) -> Iterator[tuple[int, Ints]]:
    """Yield the numbers of the files of locations, each with the indexes of its locations; ABSENT ones have no file."""
    numbers = file_numbers(locations)  # ABSENT is negative, and so is its number
    for number in np.unique(numbers[numbers >= 0]).tolist():
        yield number, np.flatnonzero(numbers == number)


def _positions(bitmap: BitMap64) -> Ints:
    return np.frombuffer(bitmap.to_array(), np.uint64).astype(np.int64)


def _highest_position(parquet: pq.ParquetFile, name: str | None) -> bytes:
    """Return the highest position of a file's rows, from the statistics if it has them."""
    if name is None:  # a file from before the table was adopted
        return NO_POSITION
    columns = range(parquet.metadata.num_columns)
    column = next(index for index in columns if parquet.schema.column(index).path == name)
    highest = NO_POSITION
    for number in range(parquet.num_row_groups):
        statistics = parquet.metadata.row_group(number).column(column).statistics
        if statistics is not None and statistics.has_min_max:
            highest = max(highest, statistics.max_raw)
        else:
            text = pc.max(parquet.read_row_group(number, [name])[name]).as_py()
            highest = max(highest, (text or "").encode())
    return highest
