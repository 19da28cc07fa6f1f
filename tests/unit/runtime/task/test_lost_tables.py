"""Tests of tables that do not exist any more, or that are older than the committed offsets of their group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.kafka.feed_harness import until
from support.records.envelopes import change, key
from support.task.sink_task_harness import FIRST, GROUP, TOPIC, Harness, running

from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableStatus, table_statuses, tables_document
from headrace.core.model.errors import TableMissing
from headrace.ports import OffsetNote, TableOptions, TopicPartition
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.task.write_checks import WrittenTables

TABLE = "shop_public_items"
pytestmark = pytest.mark.anyio


async def written(harness: Harness, *numbers: int, **options: Any) -> None:
    """Insert rows, start a task, wait until it has written them, and stop it."""
    for number in numbers:
        harness.insert(number, 100 + number)
    end = harness.broker.end(FIRST)
    async with running(harness.task(**options)):
        await until(lambda: harness.offset() == end or bool(harness.failures), "the rows or a failure")


def drop(harness: Harness) -> None:
    harness.lakehouse.drop("lake", TABLE)


def older(harness: Harness) -> Callable[[], None]:
    """Copy the table, and return a function that restores the copy."""
    copy = harness.lakehouse.copy("lake", TABLE)
    return lambda: harness.lakehouse.restore("lake", TABLE, copy)


def set_offset(harness: Harness, offset: int) -> None:
    """Set the group's offset as PATCH /connectors/items/offsets and Kafka's tools do, which write no metadata."""
    group = harness.broker.group(GROUP)
    group.committed[FIRST], group.notes = offset, {}


def assert_refused(harness: Harness, *words: str) -> None:
    """Assert that the task failed with TableMissing and these words in its message."""
    assert [type(error) for error in harness.failures] == [TableMissing]
    for word in words:
        assert word in str(harness.failures[0])
    harness.failures.clear()


@pytest.mark.parametrize("history", [False, True])
async def test_a_table_that_was_dropped_is_not_filled_from_the_middle(harness: Harness, history: bool) -> None:
    """If the table was dropped between two runs, the next batch fails. A rewind fills the table from the topic."""
    await written(harness, 1, 2, history=history)
    drop(harness)
    await written(harness, 3, history=history)
    assert_refused(
        harness, "lake.shop_public_items", f"{TOPIC}-0@2", "does not exist", "/connectors/items/offsets", "verify"
    )
    assert (harness.rows(), harness.offset()) == ({}, 2)
    set_offset(harness, 0)
    await written(harness, history=history)
    assert harness.failures == []
    table = harness.lakehouse.table("lake", TABLE, TableOptions(history=history))
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3]


async def test_a_table_that_is_dropped_while_the_task_runs(harness: Harness) -> None:
    """If the table is dropped between two batches, the next batch fails."""
    async with running(harness.task()):
        harness.insert(1, 101)
        await until(lambda: harness.offset() == 1, "the first row")
        drop(harness)
        harness.insert(2, 102)
        await until(lambda: bool(harness.failures), "a failure")
    assert_refused(harness, "does not exist", f"{TOPIC}-0@1")
    assert (harness.rows(), harness.offset()) == ({}, 1)


@pytest.mark.parametrize("stopped", [False, True])
async def test_an_older_copy_is_not_continued(harness: Harness, stopped: bool) -> None:
    """The task fails with both offsets if an older copy of the table was restored, also while the task was stopped."""
    await written(harness, 1)
    restore = older(harness)
    if stopped:
        await written(harness, 2)
        restore()
        await written(harness, 3)
    else:
        async with running(harness.task()):
            harness.insert(2, 102)
            await until(lambda: harness.offset() == 2, "the second row")
            restore()
            harness.insert(3, 103)
            await until(lambda: bool(harness.failures), "a failure")
    assert_refused(harness, "lake.shop_public_items", f"up to {TOPIC}-0@1", f"up to {TOPIC}-0@2", "older copy")
    assert (set(harness.rows()), harness.offset()) == ({"=1"}, 2)
    set_offset(harness, 1)
    await written(harness)
    assert (set(harness.rows()), harness.failures) == ({"=1", "=2", "=3"}, [])


async def test_a_missing_table_is_recreated_if_configured(harness: Harness) -> None:
    """With ``table.missing=recreate`` a new table begins at the group's offset. A later drop is detected again."""
    await written(harness, 1)
    drop(harness)
    await written(harness, 2, recreate=True)
    assert (set(harness.rows()), harness.failures) == ({"=2"}, [])
    drop(harness)
    await written(harness, 3)
    assert_refused(harness, f"{TOPIC}-0@2")


async def test_offsets_that_are_set_by_hand_accept_the_table_as_it_is(harness: Harness) -> None:
    """After an operator sets offsets the task continues the table as it is, also if the offsets skip records."""
    await written(harness, 1)
    drop(harness)
    harness.insert(2, 102)
    set_offset(harness, 2)
    await written(harness, 3)
    assert (set(harness.rows()), harness.failures) == ({"=3"}, [])


async def test_a_table_with_a_late_first_row_is_not_missing(harness: Harness) -> None:
    """Committed tombstones, bad records and rows of other tables do not require that a table exists."""
    await written(harness, 1)
    other = "shop.public.others"
    await harness.broker.create_topic(other)
    harness.broker.append(other, None, key({"id": 1}))
    harness.broker.append(other, b"no document", key({"id": 1}))
    async with running(harness.task(tolerate=True)):
        place = TopicPartition(other, 0)
        await until(lambda: harness.broker.committed(GROUP).get(place) == 2, "the tombstone")
    harness.broker.append(other, change("c", {"id": 7, "name": "new"}, 107), key({"id": 7}))
    drop(harness)
    async with running(harness.task(tolerate=True)):
        await until(lambda: harness.broker.committed(GROUP).get(place) == 3, "the first row")
    assert (set(harness.rows("shop_public_others")), harness.failures) == ({"=7"}, [])


async def test_a_table_ahead_of_its_group_is_not_refused(harness: Harness) -> None:
    """A task that was killed between the table commit and the offset commit continues with the table as it is."""
    await written(harness, 1, 2)
    group = harness.broker.group(GROUP)
    note = group.notes[FIRST].note
    group.committed[FIRST], group.notes[FIRST] = 1, OffsetNote(1, note)
    restore = older(harness)
    await written(harness, 3)
    assert (set(harness.rows()), harness.failures) == ({"=1", "=2", "=3"}, [])
    restore()  # the table contains offset 2, and the metadata of offset 1 require no more
    group.committed[FIRST], group.notes[FIRST] = 1, OffsetNote(1, note)
    await written(harness)
    assert harness.failures == []


async def test_offsets_that_no_commit_contains_any_more_are_no_loss(harness: Harness) -> None:
    """Another engine compacted the table and expired its snapshots: the next commit contains all offsets again."""
    two = TopicPartition("shop.two", 1)
    await harness.broker.create_topic(two.topic, partitions=2)
    for number, place in enumerate((two, TopicPartition(two.topic, 0)), 1):
        row = change("c", {"id": number, "name": "new"}, 100 + number)
        harness.broker.append(two.topic, row, key({"id": number}), place.partition)
        async with running(harness.task()):
            await until(lambda place=place: harness.broker.committed(GROUP).get(place) == 1, "the row")
        table = harness.lakehouse.table("lake", "shop_two", TableOptions())
        if place == two:
            table.summaries.clear()
    assert harness.failures == []
    assert table.reached(GROUP) == {two: 1, TopicPartition(two.topic, 0): 1}


async def test_a_note_names_only_partitions_of_the_assignment() -> None:
    """A task writes no offset metadata for partitions that are assigned to another task of the group."""
    mine, others = TopicPartition("a", 0), TopicPartition("b", 0)
    tables = WrittenTables("items", GROUP, {mine: OffsetNote(0, "")})
    assert set(tables.written("lake.item", {mine: 5, others: 9})) == {mine}
    assert tables.written("lake.item", {mine: 5, others: 10}) == {}
    assert tables.required("lake.item") == {mine: 5}


async def test_one_lost_table_is_accepted_by_its_restart(harness: Harness) -> None:
    """A restart with ``recreate`` continues the table at the group's offset, once: a later drop is detected again."""

    def states(task: SinkTask) -> set[TableState]:
        return {status.state for status in task.tables()}

    await harness.broker.create_topic("shop.public.orders")  # the task fails when all of its topics have stopped
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 101)
        await until(lambda: harness.offset() == 1, "the first row")
        drop(harness)
        harness.insert(2, 102)
        await until(lambda: states(task) == {TableState.FAILED}, "the failure")
        assert task.restart_table(TABLE, recreate=True)
        await until(lambda: harness.offset() == 2, "the second row")
        assert set(harness.rows()) == {"=2"}
        drop(harness)
        harness.insert(3, 103)
        await until(lambda: states(task) == {TableState.FAILED}, "the next failure")
    assert (harness.offset(), harness.failures) == (2, [])


async def test_the_next_run_of_the_task_accepts_the_table(harness: Harness) -> None:
    """The request is in the status of the table, so that it also holds after a restart of the worker."""
    await written(harness, 1)
    drop(harness)
    requested = TableStatus(TABLE, TableState.FAILED, "the cause", 0.0, None, (TOPIC,), recreate=True)
    assert table_statuses(tables_document([requested])) == (requested,)
    await written(harness, 2, isolated=True, blocked=[requested])
    assert (set(harness.rows()), harness.failures) == ({"=2"}, [])
