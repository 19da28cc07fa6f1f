"""Tests of JSON without schemas, whose types come from the database's catalog, also after an ALTER TABLE."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import INT, ITEMS, TOPIC, Harness, running

from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn
from headrace.core.model.errors import HeadraceError, Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.ports import TableOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace_dev.memory import MemoryRowSource
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue

pytestmark = pytest.mark.anyio

INT32, INT64 = Schema("int32", True), Schema("int64", True)
LARGE = 5_000_000_000


class AlteredSource(MemoryRowSource):
    """A database that counts the reads of its catalog, and that can fail to answer."""

    def __init__(self, **columns: Schema) -> None:
        super().__init__()
        self.looks = 0
        self.away: list[HeadraceError] = []
        self._by_version: dict[str, Schema] = {}
        self.alter(**columns)

    def alter(self, **columns: Schema) -> None:
        """Replace the columns of the table, except its id."""
        members = {"id": Schema("int64"), **columns}
        entries = tuple(CatalogColumn(name, number, INT, attlen=8) for number, name in enumerate(members, 1))
        schema = Schema("struct", fields=tuple(Field(name, each) for name, each in members.items()))
        version = str(len(self._by_version))
        self._by_version[version] = schema
        self.add(CatalogTable(ITEMS, "r", "d", entries, (KeyColumn("id", INT),), version=version), schema)

    def schema(self, catalog: CatalogTable) -> Schema:
        """Return the schema of the given version of the catalog entry, which can be an old one."""
        return self._by_version[catalog.version]

    def catalog(self, table: TableId) -> CatalogTable | None:
        self.looks += 1
        if self.away:
            raise self.away.pop()
        return super().catalog(table)


def processor(source: MemoryRowSource) -> Reselect:
    options = ReselectOptions(null_values=False, errors_retry_timeout_ms=0)
    return Reselect(options, source)


def insert(harness: Harness, number: int, **cells: Any) -> None:
    document = change("c", {"id": number, **cells}, 100 + number, schemas=False)
    harness.broker.append(TOPIC, document, key({"id": number}, schemas=False))


def cells(harness: Harness, name: str) -> list[Any]:
    return [row.get(name) for _, row in sorted(harness.rows().items())]


def column_type(harness: Harness, name: str) -> pa.DataType:
    schema = harness.lakehouse.table("lake", "shop_public_items", TableOptions()).schema()
    assert schema is not None
    return schema.field(name).type


@pytest.mark.parametrize(
    ("before", "after", "value"),
    [(INT32, INT64, LARGE), (Schema("float", True), Schema("double", True), 1e300)],
    ids=["bigint", "double"],
)
@pytest.mark.parametrize("tolerate", [False, True])
async def test_a_value_of_a_widened_column_is_no_bad_record(
    harness: Harness, before: Schema, after: Schema, value: Any, tolerate: bool
) -> None:
    """The cached catalog entry is older than the ALTER TABLE: the task reads it again before it refuses a record."""
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    source = AlteredSource(n=before)
    async with running(harness.task(plain=True, processor=processor(source), tolerate=tolerate)):
        insert(harness, 1, n=1)
        await eventually(lambda: harness.offset() == 1)
        source.alter(n=after)
        insert(harness, 2, n=value)
        await eventually(lambda: harness.offset() == 2 or bool(harness.failures))
    assert harness.failures == []
    assert harness.dead_letters.letters == []
    assert cells(harness, "n") == [1, value]


async def test_a_new_column_has_the_type_of_the_catalog(harness: Harness) -> None:
    """The table's new column gets the type from the catalog, not a type that is inferred from its values."""
    source = AlteredSource(n=INT32)
    async with running(harness.task(plain=True, processor=processor(source))):
        insert(harness, 1, n=1)
        await eventually(lambda: harness.offset() == 1)
        source.alter(n=INT32, born=Schema("int32", True, "io.debezium.time.Date"))
        insert(harness, 2, n=2, born=19_000)
        await eventually(lambda: harness.offset() == 2)
    assert harness.failures == []
    assert column_type(harness, "born") == pa.date32()


async def test_bad_values_cost_one_query_for_each_chunk(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task writes the valid records between bad ones, and queries the catalog once for a dropped column."""
    monkeypatch.setattr("headrace.runtime.task.sink_task.COMMIT_INTERVAL", 0.05)
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    source = AlteredSource(n=INT32)
    await harness.broker.create_topic(TOPIC)
    for number in range(100, 120):
        insert(harness, number, n=LARGE if number % 2 else number)
    async with running(harness.task(plain=True, processor=processor(source), tolerate=True)):
        await eventually(lambda: harness.offset() == 20)
        assert (source.looks, len(harness.dead_letters.letters)) == (1, 10)
        insert(harness, 120, n=LARGE)
        await eventually(lambda: harness.offset() == 21)
        assert (source.looks, len(harness.dead_letters.letters)) == (2, 11)
        for number in range(121, 125):
            insert(harness, number, n=1, dropped="text")
            await eventually(lambda end=number - 99: harness.offset() == end)
    assert source.looks == 3
    assert cells(harness, "n") == [*range(100, 120, 2), 1, 1, 1, 1]


async def test_no_record_is_refused_if_the_catalog_is_unavailable(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task decodes the chunk again instead of refusing a record by a catalog entry that may be old."""
    monkeypatch.setattr("headrace.runtime.task.chunk_decoder.RETRY_SECONDS", 0.5)
    source = AlteredSource(n=INT32)
    async with running(harness.task(plain=True, processor=processor(source))):
        insert(harness, 1, n=1)
        await eventually(lambda: harness.offset() == 1)
        source.alter(n=INT64)
        source.away = [Retriable("the database does not answer")]
        insert(harness, 2, n=LARGE)
        await eventually(lambda: harness.offset() == 2 or bool(harness.failures))
    assert harness.failures == []
    assert cells(harness, "n") == [1, LARGE]
