"""A topic whose log is not what the group has read fails its tables, and no other table."""

from __future__ import annotations

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import FIRST, GROUP, TOPIC, Harness, running

from headrace.core.connect.lifecycle import TableState
from headrace.ports import TopicPartition

pytestmark = pytest.mark.anyio

OTHER = "shop.public.orders"


async def test_a_cut_log_fails_the_tables_of_its_topic(harness: Harness) -> None:
    """While it is read and after a restart; an offset that an operator sets accepts the log as it is."""
    await harness.broker.create_topic(OTHER)
    for number in range(3):
        harness.insert(number, number)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: harness.offset() == 3)
        harness.broker.cut(FIRST, 1)
        for number in range(10, 16):
            harness.insert(number, number)
        await eventually(lambda: [each.state for each in task.tables()] == [TableState.FAILED])
        harness.broker.append(OTHER, change("c", {"id": 1}, 1, table="orders"), key({"id": 1}))
        await eventually(lambda: harness.broker.committed(GROUP).get(TopicPartition(OTHER, 0)) == 1)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: [each.state for each in task.tables()] == [TableState.FAILED])
    assert (sorted(harness.rows()), harness.offset(), harness.failures) == (["=0", "=1", "=2"], 3, [])
    harness.broker.group(GROUP).committed[FIRST] = 0
    async with running(harness.task(isolated=True)):
        await eventually(lambda: harness.offset() == 7)
    assert sorted(harness.rows()) == ["=0", "=1", *(f"={number}" for number in range(10, 16)), "=2"]


async def test_the_table_of_a_topic_that_was_created_again_is_not_written(harness: Harness) -> None:
    """The group has no offsets of the new topic, so only the table shows that it is another one."""
    for number in range(3):
        harness.insert(number, number)
    async with running(harness.task(isolated=True)):
        await eventually(lambda: harness.offset() == 3)
    await harness.broker.delete_topic(TOPIC)
    await harness.broker.create_topic(TOPIC)
    harness.insert(7, 7)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: [each.state for each in task.tables()] == [TableState.FAILED])
        assert "deleted and created again" in task.tables()[0].trace
    assert sorted(harness.rows()) == ["=0", "=1", "=2"]
