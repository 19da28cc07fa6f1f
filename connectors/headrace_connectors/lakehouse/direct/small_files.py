"""Merges small files of an Iceberg table without a Spark job: the rows of several files become one file.

A job for a few hundred rows costs more than the commits that wrote them. Here PyArrow reads the files and writes the
new one, which takes milliseconds, so the writer may wait for all of it. Rows keep their ids and the numbers of the
snapshots that changed them (https://iceberg.apache.org/spec/#row-lineage).

Tests: ``tests/contracts/test_direct_commits.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace_connectors.lakehouse.compaction_plan import DataFile, Rewrite, plan
from headrace_connectors.lakehouse.direct.data_file import (
    ROW_ID,
    ROW_ID_FIELD,
    SEQUENCE,
    SEQUENCE_FIELD,
    column_names,
    is_type,
    write_file,
)
from headrace_connectors.lakehouse.direct.direct_table import (
    DirectTable,
    NewFile,
    StoredFile,
    TableState,
    Unavailable,
)
from headrace_connectors.lakehouse.iceberg_table import IcebergName
from headrace_connectors.lakehouse.table_format import ExclusiveCommit
from headrace_connectors.lakehouse.table_session import TableSession

MOST_BYTES = 8 * 2**20
"""Of the live rows that one rewrite merges while the writer waits."""


MOST_UNPACKED = 64 * 2**20
"""Of the same rows in memory: texts that repeat are compressed to a hundredth."""


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
        pieces, left = [], MOST_UNPACKED
        for file in files:
            rows = _live_rows(table, state, file, left)
            if rows is None:
                return False
            pieces.append(rows)
            left -= rows.nbytes
        merged = pa.concat_tables(pieces, promote_options="default")  # a file may lack columns that were added later
        new = []
        if len(merged):
            rows = write_file(merged, state.schema, state.metrics, state.compression)
            new = [NewFile(files[0].partition, rows)]
        table.commit(new, [], properties, [file.path for file in files])
        return True


def _live_rows(table: DirectTable, state: TableState, file: StoredFile, most: int) -> pa.Table | None:
    """Return the live rows of a file with their lineage.

    None if the columns of the table have other types or defaults, or if the file has more than ``most`` bytes when it
    is unpacked.
    """
    with table.open(file) as parquet:
        groups = range(parquet.metadata.num_row_groups)
        if sum(parquet.metadata.row_group(number).total_byte_size for number in groups) > most:
            return None
        names = column_names(parquet)
        stored = parquet.read()
    columns = {}
    for column in state.schema["fields"]:
        name = names.get(column["id"])
        if name is None and column.get("initial-default") is not None:
            return None
        if name is not None:
            if not is_type(column["type"], stored[name].type):
                return None
            columns[column["name"]] = stored[name]
    rows = np.arange(file.rows)
    places = pa.array(file.first_row_id + rows)
    ids = stored[names[ROW_ID_FIELD]] if ROW_ID_FIELD in names else pa.nulls(file.rows, pa.int64())
    numbers = stored[names[SEQUENCE_FIELD]] if SEQUENCE_FIELD in names else pa.nulls(file.rows, pa.int64())
    columns[ROW_ID] = pc.coalesce(ids, places)
    columns[SEQUENCE] = pc.fill_null(numbers, file.sequence)
    live = np.ones(file.rows, np.bool_)
    live[np.frombuffer(table.read_vector(file.vector).to_array(), np.uint64)] = False
    return pa.table(columns).filter(pa.array(live))
