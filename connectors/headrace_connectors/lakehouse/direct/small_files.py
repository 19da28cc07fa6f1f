"""Merges small files of an Iceberg table without a Spark job: the rows of several files become one file.

A job costs more than the commits that wrote the rows. Here PyArrow reads the files a row group at a time, and so writes
the new one to this machine. That takes milliseconds for hundreds of rows and two seconds for a million, so
the writer may wait for all of it. Rows keep their ids and the numbers of the snapshots that changed them
(https://iceberg.apache.org/spec/#row-lineage).

Tests: ``tests/contracts/test_small_files.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace_connectors.lakehouse.compaction_plan import DataFile, Rewrite, plan
from headrace_connectors.lakehouse.direct.data_file import (
    ROW_ID,
    ROW_ID_FIELD,
    SEQUENCE,
    SEQUENCE_FIELD,
    column_names,
    is_type,
    write_large_file,
)
from headrace_connectors.lakehouse.direct.direct_table import (
    DirectTable,
    NewFile,
    StoredFile,
    TableState,
    Unavailable,
)
from headrace_connectors.lakehouse.failures import Conflict, translate_errors
from headrace_connectors.lakehouse.iceberg_table import IcebergName
from headrace_connectors.lakehouse.table_format import ExclusiveCommit
from headrace_connectors.lakehouse.table_session import TableSession

MOST_BYTES = 96 * 2**20
"""Of the live rows that one rewrite merges while the writer waits."""

MOST_UNPACKED = 64 * 2**20
"""Of the rows of a row group in memory: texts that repeat are compressed to a hundredth."""

_ATTEMPTS = 5

ROW_GROUP_BYTES = 32 * 2**20
"""Of the rows of a row group of the new file in memory, so that it can be read again."""


class MergedFiles(NamedTuple):
    """The bytes that were rewritten, and whether they are all files that are worth a rewrite."""

    written: int
    complete: bool


class SmallFiles:
    """The small files of the table called ``name``."""

    def __init__(self, session: TableSession, name: IcebergName) -> None:
        self._session = session
        self._name = name

    def merge(self, budget: float, commit_alone: ExclusiveCommit) -> MergedFiles:
        """Merge files that are worth it with at most ``budget`` bytes."""
        try:
            table = DirectTable(self._session, self._name)
        except Unavailable:
            return MergedFiles(0, complete=False)
        table.is_current()
        state = table.load()
        if state.refused is not None:
            return MergedFiles(0, complete=False)
        files = [
            DataFile(
                file.path, json.dumps(file.partition), file.size, file.rows, file.vector.rows if file.vector else 0
            )
            for file in state.files
        ]
        rewrites = plan(files, budget)
        small = [rewrite for rewrite in rewrites if rewrite.cost <= MOST_BYTES]
        written, complete = 0, len(small) == len(rewrites)
        for rewrite in small:
            with commit_alone() as properties:
                if not table.is_current():
                    state = table.load()
                if self._rewrite(table, state, rewrite, properties):
                    written += rewrite.cost
                else:
                    complete = False
        return MergedFiles(written, complete)

    def _rewrite(self, table: DirectTable, state: TableState, rewrite: Rewrite, properties: Mapping[str, str]) -> bool:
        """Write one file in place of others; return False if they are gone, or have columns that Spark must convert."""
        chosen = {file.path for file in rewrite.files}
        files = [file for file in state.files if file.path in chosen]
        if state.refused is not None or len(files) < len(chosen):
            return False
        footers = {file.path: _footer(table, file) for file in files}
        columns = _columns(state, list(footers.values()))
        if columns is None:
            return False

        def rows() -> Iterator[pa.Table]:
            for file in files:
                deleted, first = np.frombuffer(table.read_vector(file.vector).to_array(), np.uint64), 0
                for number in range(footers[file.path].metadata.num_row_groups):
                    with table.open(file, footers[file.path].metadata) as parquet:
                        group = parquet.read_row_group(number)
                    # Outside of the block: an error of the new file is none of this one.
                    yield _live_rows(columns, file, footers[file.path].names, group, first, deleted)
                    first += group.num_rows

        with (
            TemporaryDirectory(prefix="headrace-", dir=self._session.folder) as folder,
            translate_errors(str(self._name)),
        ):
            merged = write_large_file(
                Path(folder, "rows.parquet"),
                columns.schema,
                _row_groups(rows()),
                state.schema,
                state.metrics,
                state.compression,
            )
            _replace(table, files, [NewFile(files[0].partition, merged)] if merged.rows else [], properties)
        return True


class _Footer(NamedTuple):
    """The metadata of a Parquet file, its columns, and their names by Iceberg's ids."""

    metadata: pq.FileMetaData
    schema: pa.Schema
    names: Mapping[int, str]


def _footer(table: DirectTable, file: StoredFile) -> _Footer:
    with table.open(file) as parquet:
        return _Footer(parquet.metadata, parquet.schema_arrow, column_names(parquet))


class _Columns(NamedTuple):
    """The columns of the new file, and Iceberg's ids of those that are no lineage."""

    schema: pa.Schema
    ids: Mapping[str, int]


def _columns(state: TableState, footers: Sequence[_Footer]) -> _Columns | None:
    """Return those columns of the table that any of the files has.

    None if they have other types than the table or defaults, or if a row group is too large when it is unpacked.
    """
    types: dict[str, pa.DataType] = {}
    for metadata, stored, names in footers:
        groups = range(metadata.num_row_groups)
        if any(metadata.row_group(number).total_byte_size > MOST_UNPACKED for number in groups):
            return None
        for column in state.schema["fields"]:
            name = names.get(column["id"])
            if name is None and column.get("initial-default") is not None:
                return None
            if name is not None:
                types[column["name"]] = stored.field(name).type
                if not is_type(column["type"], types[column["name"]]):
                    return None
    ids = {column["name"]: column["id"] for column in state.schema["fields"] if column["name"] in types}
    lineage = [(ROW_ID, pa.int64()), (SEQUENCE, pa.int64())]
    return _Columns(pa.schema([*((name, types[name]) for name in ids), *lineage]), ids)


def _replace(
    table: DirectTable, files: Sequence[StoredFile], new: Sequence[NewFile], properties: Mapping[str, str]
) -> None:
    """Commit the new file. Raises Conflict if another commit has changed one of the ``files``.

    The ledger of a busy table has a new commit before its files are merged, so one attempt would never succeed.
    Properties repeat those of the commit before: with them any other commit is a conflict.
    """
    paths = [file.path for file in files]
    for left in reversed(range(_ATTEMPTS)):
        try:
            table.commit(new, [], properties, paths, equal=True)
            return
        except Conflict:
            if properties or not left:
                raise
            table.is_current()
            stored = {file.path: file for file in table.load().files}
            if any(stored.get(file.path) != file for file in files):
                raise


def _row_groups(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Join pieces to row groups, which readers read as a whole."""
    waiting: list[pa.Table] = []
    size = 0
    for piece in pieces:
        added = piece.nbytes
        if waiting and size + added > ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += added
    yield pa.concat_tables(waiting)


def _live_rows(
    columns: _Columns, file: StoredFile, names: Mapping[int, str], group: pa.Table, first: int, deleted: Any
) -> pa.Table:
    """Return the live rows of a row group with their lineage; a column that it lacks is null in them.

    ``first`` is the position of its first row in the file, and ``deleted`` are those of the file's deleted rows.
    """
    count = group.num_rows
    ids = group[names[ROW_ID_FIELD]] if ROW_ID_FIELD in names else pa.nulls(count, pa.int64())
    numbers = group[names[SEQUENCE_FIELD]] if SEQUENCE_FIELD in names else pa.nulls(count, pa.int64())
    arrays = [
        group[names[field_id]].cast(columns.schema.field(name).type)  # the names of a list's elements may differ
        if field_id in names
        else pa.nulls(count, columns.schema.field(name).type)
        for name, field_id in columns.ids.items()
    ]
    arrays += file.lineage(ids, numbers, first)
    live = np.ones(count, np.bool_)
    live[deleted[(deleted >= first) & (deleted < first + count)] - np.uint64(first)] = False
    return pa.table(arrays, columns.schema).filter(pa.array(live))
