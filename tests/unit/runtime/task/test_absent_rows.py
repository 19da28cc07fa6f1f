"""Tests of updates that omit a value, of rows that the table does not have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import PLACEHOLDER, change, key
from support.task.sink_task_harness import INT, ITEMS, TEXT, TOPIC, Harness, running

from headrace.core.model.catalog import CatalogColumn, CatalogTable, KeyColumn
from headrace.core.model.errors import Fatal
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.runtime.pipeline.reselect import Reselect
from headrace_dev.memory import MemoryRowSource
from headrace_dev.memory.dead_letter_queue import MemoryDeadLetterQueue

pytestmark = pytest.mark.anyio

ID = CatalogColumn("id", 1, INT, attlen=8)
NAME = CatalogColumn("name", 2, TEXT, attstorage="x")
OPTIONS = ReselectOptions(null_values=False)


def source(*rows: dict[str, Any], proven: bool = True, name: CatalogColumn | None = NAME) -> MemoryRowSource:
    """Return a database with these rows. ``name`` is the catalog entry of the column, None: no such column."""
    found = MemoryRowSource(proven=proven)
    columns = (ID,) if name is None else (ID, name)
    schema = Schema("struct", fields=(Field("id", Schema("int64")), Field("name", Schema("string"))))
    found.add(CatalogTable(ITEMS, "r", "d", columns, (KeyColumn("id", INT),)), schema, list(rows))
    return found


def update(harness: Harness, lsn: int, number: int = 1) -> None:
    """Append an update that omits the name."""
    harness.broker.append(TOPIC, change("u", {"id": number, "name": PLACEHOLDER}, lsn), key({"id": number}))


async def test_oldest_record_is_an_update_of_a_deleted_row(harness: Harness) -> None:
    """If the database no longer has the row, the omitted cell is NULL until the delete event of the row."""
    update(harness, 10)
    async with running(harness.task(processor=Reselect(OPTIONS, source()))):
        await eventually(lambda: harness.offset() == 1 or bool(harness.failures))
        assert (harness.failures, harness.rows()) == ([], {"=1": {"id": 1, "name": None}})
        harness.broker.append(TOPIC, change("d", None, 20, columns={"id": 1, "name": "x"}), key({"id": 1}))
        await eventually(lambda: harness.offset() == 2)
    assert harness.rows() == {}


async def test_update_among_changes_of_stored_rows(harness: Harness) -> None:
    """A stored row keeps its value, also if the database deleted it. Only a row that is not stored gets NULL."""
    harness.insert(1, 10, "kept")
    async with running(harness.task(processor=Reselect(OPTIONS, source()))):
        await eventually(lambda: harness.offset() == 1)
        update(harness, 20)
        update(harness, 30, number=2)
        await eventually(lambda: harness.offset() == 3 or bool(harness.failures))
    assert harness.failures == []
    assert harness.rows() == {"=1": {"id": 1, "name": "kept"}, "=2": {"id": 2, "name": None}}


async def test_missing_rows_are_read_for_updates_as_well(harness: Harness) -> None:
    """With ``reselect.source.reads=missing-rows`` an update of a row that is not stored queries the database."""
    options = replace(OPTIONS, source_reads="missing-rows")
    update(harness, 10)
    async with running(harness.task(processor=Reselect(options, source({"id": 1, "name": "A"})))):
        await eventually(lambda: harness.offset() == 1 or bool(harness.failures))
    assert (harness.failures, harness.rows()) == ([], {"=1": {"id": 1, "name": "A"}})


@pytest.mark.parametrize(
    ("options", "database", "message_part"),
    [
        ({}, None, "no database is configured. The event is an update: the topic does not contain the row's insert"),
        ({}, None, "a table of PostgreSQL with REPLICA IDENTITY USING INDEX, whose events do not contain the old key"),
        ({}, None, "set such a table's REPLICA IDENTITY to DEFAULT or FULL, or set reselect.unresolved.insert.mode"),
        ({"visibility_check": False}, source(proven=False), "reselect.visibility.check=off"),
        ({}, source(proven=False), "transaction"),
        ({}, MemoryRowSource(), "has no table public.items"),
        ({}, source(name=None), "has no such column"),
        ({}, source(name=replace(NAME, not_null=True)), "does not accept NULL"),
        ({"unresolved_insert_mode": "fail"}, source(), "reselect.unresolved.insert.mode to auto"),
        ({"source_reads": "none"}, source(), "reselect.source.reads=none"),
        ({"unavailable_values": False}, source(), "reselect.unavailable.values=false"),
        ({"columns_exclude_list": ".*name"}, source(), "reselect.columns."),
    ],
)
async def test_message_names_what_prevents_the_read(
    harness: Harness, options: dict[str, Any], database: MemoryRowSource | None, message_part: str
) -> None:
    """The error names the option or state that prevents the read. It advises a database only if none is configured."""
    update(harness, 10)
    post = Reselect(replace(OPTIONS, **options), database)
    async with running(harness.task(processor=post)):
        await eventually(lambda: bool(harness.failures))
    (failure,) = harness.failures
    assert isinstance(failure, Fatal)
    assert message_part in str(failure)
    assert ("configure reselect.database.*" in str(failure)) == (database is None)
    assert str(failure).startswith("lake.shop_public_items: shop.public.items-0 at offset 0 omits column(s) name")


async def test_dead_letter_names_the_cause_as_well(harness: Harness) -> None:
    """The header of a dead letter names the option that prevents the read of its cells from the database."""
    harness.dead_letters = MemoryDeadLetterQueue("items", 0)
    update(harness, 10)
    post = Reselect(replace(OPTIONS, visibility_check=False), source(proven=False))
    async with running(harness.task(tolerate=True, processor=post, dead_letters=True)):
        await eventually(lambda: harness.offset() == 1 or bool(harness.failures))
    assert harness.failures == []
    (letter,) = harness.dead_letters.letters
    assert "reselect.visibility.check=off" in str(letter.headers)
