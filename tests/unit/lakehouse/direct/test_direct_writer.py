"""Commits of direct writers to a table in memory, beside the memory lakehouse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64
from support.lake.lake_actions import CARRY, KEEP, Row, actions, commit
from support.lake.lake_harness import ITEM

from headrace.core.model.actions import CarriedCells
from headrace.ports import MergeCounts, TableOptions
from headrace_connectors.lakehouse import deletion_vectors
from headrace_connectors.lakehouse.direct import direct_writer, row_index
from headrace_connectors.lakehouse.direct.data_file import ROW_ID
from headrace_connectors.lakehouse.direct.direct_table import (
    NewFile,
    NewSnapshot,
    NewVector,
    StoredFile,
    TableState,
    VectorFile,
)
from headrace_connectors.lakehouse.direct.direct_writer import IcebergDirectWriter
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.iceberg_table import IcebergName, Snapshot
from headrace_connectors.lakehouse.schema import SOFT_COLUMNS, VERSION_COLUMNS
from headrace_dev.memory.lakehouse import MemoryLakehouse

KEYS = range(1, 5)
NARROW = pa.schema([ITEM.field("id"), ITEM.field("name")])
TYPES = {pa.int64(): "long", pa.int32(): "int", pa.string(): "string", pa.bool_(): "boolean"}
PARTITIONS = {"none": [], "small": [], "buckets": [{"source-id": 1, "transform": "bucket[2]"}]}
"""Of tables with vectors, of one whose file each commit replaces, and of one with partitions."""


@dataclass
class Table:
    """A ``DirectTable`` in memory, without other writers."""

    columns: pa.Schema
    partitioning: Sequence[Mapping[str, Any]]
    contents: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    vectors: dict[VectorFile, bytes] = field(default_factory=dict)
    next_row_id: int = 0
    sequence: int = 0
    reads: int = 0

    def is_current(self, loaded: object = None) -> bool:
        return True

    def load(self) -> TableState:
        fields = [
            {"id": number, "name": column.name, "required": False, "type": TYPES.get(column.type, "timestamptz")}
            for number, column in enumerate(self.columns, 1)
        ]
        return TableState(None, {"fields": fields}, self.partitioning, {}, "zstd", 1, list(self.files.values()))

    def commit(
        self,
        files: Sequence[NewFile],
        vectors: Sequence[NewVector],
        properties: Mapping[str, str],
        removed: Sequence[str] = (),
    ) -> NewSnapshot:
        self.sequence += 1
        for path in removed:
            del self.files[path]
        new, places = [], []
        for file in files:
            path, content = f"{len(self.contents)}", file.rows.content
            stored = StoredFile(
                path, file.partition, len(content), file.rows.rows, self.next_row_id, self.sequence, None
            )
            self.contents[path], self.files[path] = content, stored
            self.next_row_id += file.rows.rows
            new.append(stored)
        for vector in vectors:
            place = VectorFile("vectors", len(self.vectors), len(vector.content), vector.rows)
            self.vectors[place] = vector.content
            self.files[vector.path] = replace(self.files[vector.path], vector=place)
            places.append(place)
        return NewSnapshot(Snapshot(self.sequence, None, self.sequence, properties), new, places)

    def read_vector(self, vector: VectorFile | None) -> BitMap64:
        return BitMap64() if vector is None else BitMap64(deletion_vectors.decode(self.vectors[vector]).tolist())

    @contextmanager
    def open(self, file: StoredFile) -> Iterator[pq.ParquetFile]:
        self.reads += 1
        yield pq.ParquetFile(pa.BufferReader(self.contents[file.path]))

    def rows(self) -> pa.Table:
        """All rows, with their ids."""
        parts = []
        for file in self.files.values():
            rows = pq.read_table(pa.BufferReader(self.contents[file.path]))
            places = range(file.first_row_id, file.first_row_id + file.rows)
            ids = rows[ROW_ID].to_pylist() if ROW_ID in rows.column_names else [None] * file.rows
            row_ids = [place if row_id is None else row_id for row_id, place in zip(ids, places, strict=True)]
            live = sorted(set(range(file.rows)) - set(self.read_vector(file.vector)))
            columns = {name: rows[name] for name in self.columns.names}
            parts.append(pa.table({**columns, ROW_ID: pa.array(row_ids, pa.int64())}).take(pa.array(live, pa.int64())))
        empty = pa.schema([*self.columns, (ROW_ID, pa.int64())]).empty_table()
        return pa.concat_tables([empty, *(part.cast(empty.schema) for part in parts)])


def writer_to(table: Table, *, soft: bool) -> IcebergDirectWriter:
    """A writer whose ``DirectTable`` is ``table``."""
    session: Any = None  # only DirectTable uses it
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(direct_writer, "DirectTable", lambda *_: table)
        return IcebergDirectWriter(
            session, IcebergName("lake", "shop", "item"), ITEM, ("id",), IndexMemory(2**20), soft=soft
        )


def by_key(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.to_pylist(), key=lambda row: row["id"])


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Schema, list[Row], bool, bool]:
    """A schema and a row per key; whether cells are carried from the stored versions, and the index is read anew."""
    keys = draw(st.permutations(KEYS))[: draw(st.integers(1, len(KEYS)))]
    newest, rows = draw(st.integers(0, 8)), []
    for number, key in enumerate(keys):
        position = draw(st.integers(max(0, newest - 2), newest))
        version = {
            "position": position,
            "first": draw(st.integers(0, position)),
            "at": draw(st.integers(0, 6)),
            "first_at": draw(st.integers(0, 6)),
            "partition": draw(st.integers(0, 1)),
            "source_time": draw(st.integers(0, 4)),
        }
        if draw(st.booleans()):
            rows.append(Row({"id": key}, delete=True, **version))
            continue
        carry = draw(st.integers(0, number - 1)) if number and draw(st.booleans()) else -1
        cells = st.sampled_from(["x", None, CARRY] if carry >= 0 else ["x", "y", None])
        note = draw(cells if carry >= 0 else cells | st.just(KEEP))
        rows.append(
            Row(
                {"id": key, "name": draw(cells), "note": note, "qty": number},
                fresh=carry >= 0 or draw(st.booleans()),
                carry=carry,
                **version,
            )
        )
    return draw(st.sampled_from([ITEM, ITEM, NARROW])), rows, draw(st.booleans()), draw(st.booleans())


@pytest.mark.parametrize("partitions", PARTITIONS)
@pytest.mark.parametrize("soft", [False, True], ids=["removes", "marks"])
@given(history=st.lists(batches(), min_size=1, max_size=6))
def test_batches_do_what_they_do_to_a_memory_table(soft: bool, partitions: str, history: list[Any]) -> None:
    """Rows with their versions and marks, counts, stored versions and lineage are as expected after each batch."""
    with pytest.MonkeyPatch.context() as patch:
        if partitions != "small":
            patch.setattr(row_index, "SMALL_BYTES", 0)
        prove(soft, partitions, history)


def prove(soft: bool, partitions: str, history: list[Any]) -> None:
    memory = MemoryLakehouse().table("shop", "item", TableOptions(soft_delete=soft))
    memory.evolve(ITEM, ["id"])
    table = Table(pa.schema([*ITEM, *(SOFT_COLUMNS if soft else VERSION_COLUMNS)]), PARTITIONS[partitions])
    writer = writer_to(table, soft=soft)
    ids: dict[int, int] = {}
    for schema, rows, expects_stored, reads_anew in history:
        batch = actions(schema, rows)
        stored = memory.stored(batch)
        assert writer.versions(batch, ITEM) == stored
        if not expects_stored:
            stored = {key: replace(version, offset=version.offset + 1) for key, version in stored.items()}
        assert batch.carried is not None
        batch = replace(batch, carried=CarriedCells(batch.carried.origin, stored))
        assert writer.write(batch, ITEM, {}).counts == memory.merge(batch, commit())
        if reads_anew:
            writer.drop_index()
        found = by_key(table.rows())
        now = {row["id"]: row.pop(ROW_ID) for row in found}
        assert found == by_key(memory.to_arrow())
        assert len(set(now.values())) == len(now)
        assert all(ids.get(key, now[key]) == now[key] for key in now)  # an updated row keeps its id
        ids = now
        if partitions == "small":
            assert len(table.files) <= 1
            assert not table.vectors


def test_a_batch_in_order_reads_nothing() -> None:
    """Updates that keep no cell, above the positions of the files."""
    table = Table(pa.schema([*ITEM, *VERSION_COLUMNS]), [])
    writer = writer_to(table, soft=False)
    for position in (10, 20, 30):
        rows = [Row({"id": key, "name": "n", "note": "o", "qty": 1}, position=position + key) for key in KEYS]
        assert writer.write(actions(ITEM, rows), ITEM, {}).counts == MergeCounts(len(KEYS), 0)
    assert table.reads == 0
