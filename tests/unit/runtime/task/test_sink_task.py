"""Tests of a sink task over a broker and a lakehouse in memory."""

from __future__ import annotations

from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import PLACEHOLDER, change, key
from support.task.sink_task_harness import (
    FIRST,
    GROUP,
    TOPIC,
    Harness,
    running,
)

from headrace.core.model.errors import Fatal, Retriable
from headrace.core.tables.field_selection import field_selection
from headrace.ports import Chunk, Commit, TableOptions
from headrace.runtime import retry

pytestmark = pytest.mark.anyio


async def test_rows_arrive_and_offsets_follow(harness: Harness) -> None:
    """The task applies inserts, a delete and an update that omits a column, and commits all offsets.

    The table's last commit contains the source time up to which all events are applied.
    """
    harness.insert(1, 10, "one")
    harness.insert(2, 20, "two")
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
        update = change("u", {"id": 1, "name": PLACEHOLDER, "size": 5}, 30)
        harness.broker.append(TOPIC, update, key({"id": 1}))
        harness.broker.append(TOPIC, change("d", None, 40, columns={"id": 1, "name": ""}), key({"id": 2}))
        harness.broker.append(TOPIC, None, key({"id": 2}))
        await eventually(lambda: harness.offset() == 5)
    assert harness.rows() == {"=1": {"id": 1, "name": "one", "size": 5}}
    assert harness.lakehouse.table("lake", "shop_public_items", TableOptions()).commits[-1].watermark == 17 * 10**14
    assert harness.failures == []


async def test_every_event_is_appended_to_a_history(harness: Harness) -> None:
    """A history contains each event once, with or without a key, also if the group's offset was lost."""
    harness.insert(1, 10, "one")
    harness.broker.append(TOPIC, change("d", None, 20, columns={"id": 1, "name": "one"}), key({"id": 1}))
    harness.broker.append(TOPIC, change("c", {"id": 2, "name": "keyless"}, 30), None)
    async with running(harness.task(history=True)):
        await eventually(lambda: harness.offset() == 3)
    harness.broker.group(GROUP).committed[FIRST] = 0
    harness.insert(1, 40, "again")
    async with running(harness.task(history=True)):
        await eventually(lambda: harness.offset() == 4)
    rows = harness.lakehouse.table("lake", "shop_public_items", TableOptions(history=True)).to_arrow().to_pylist()
    assert harness.failures == []
    assert [(row["__headrace_operation"], row["name"]) for row in rows] == [
        ("c", "one"), ("d", None), ("c", "keyless"), ("c", "again"),
    ]  # fmt: skip


async def test_columns_are_selected(harness: Harness) -> None:
    """The table has no excluded columns, and has the selected metadata columns."""
    harness.insert(1, 10, "one")
    async with running(harness.task(fields=field_selection([], ["name"], ["op"]))):
        await eventually(lambda: harness.offset() == 1)
    assert harness.rows() == {"=1": {"id": 1, "__op": "c"}}


async def test_a_restarted_task_continues_at_the_group_offset(harness: Harness) -> None:
    """After a restart the task continues at the committed offset, without lost or duplicate rows."""
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    harness.insert(2, 20)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 2)
    assert set(harness.rows()) == {"=1", "=2"}


async def test_two_tasks_share_the_topics(harness: Harness) -> None:
    """A rebalance assigns topics of a running task to a second task, without lost or duplicate rows."""
    await harness.broker.create_topic("shop.public.notes")
    for number in range(200):
        harness.insert(number, number + 1)
        harness.broker.append(
            "shop.public.notes", change("c", {"id": number}, number + 1, table="notes"), key({"id": number})
        )
    async with running(harness.task(0)), running(harness.task(1)):
        await eventually(lambda: sum(harness.broker.committed(GROUP).values()) == 400)
    assert len(harness.rows()) == len(harness.rows("shop_public_notes")) == 200
    assert harness.failures == []


async def test_two_source_tables_are_not_written_to_one_table(harness: Harness) -> None:
    """If a topic has rows of two source tables, the task fails before it writes or commits the second one."""
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
        harness.broker.append(TOPIC, change("c", {"id": 1, "name": "x"}, 20, table="notes"), key({"id": 1}))
        await eventually(lambda: bool(harness.failures))
    assert isinstance(harness.failures[0], Fatal)
    assert "shop.shop.public.notes" in str(harness.failures[0])
    assert (harness.rows()["=1"]["name"], harness.offset()) == ("new", 1)


async def test_a_write_that_fails_temporarily_is_repeated(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task retries a batch after a retriable error of the lakehouse, and commits its offsets afterwards."""
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    merge, attempts = table.merge, []

    def failing_once(self: Any, actions: Any, commit: Commit) -> Any:
        attempts.append(harness.offset())
        if len(attempts) < 2:
            raise Retriable("disk full")
        return merge(self, actions, commit)

    monkeypatch.setattr(table, "merge", failing_once)
    monkeypatch.setattr(retry, "_INITIAL_SECONDS", 0.01)
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    assert attempts == [0, 0]
    assert set(harness.rows()) == {"=1"}


async def test_a_worker_that_the_group_has_removed_writes_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that the group removed while it opened its tables writes nothing until it has joined again."""
    table = type(harness.lakehouse.table("lake", "x", TableOptions()))
    ledger, group = table.ledger, harness.broker.group(GROUP)
    removed: list[int] = []

    def remove_members(self: Any) -> Any:
        if not removed:
            removed.extend(len(member.positions) for member in group.members.values())
            for member in group.members.values():
                member.positions = {}
        return ledger(self)

    monkeypatch.setattr(table, "ledger", remove_members)
    harness.insert(1, 10)
    async with running(harness.task()):
        await eventually(lambda: "is left to another worker" in caplog.text)
        assert (removed, harness.rows(), harness.offset()) == ([1], {}, 0)
        await harness.broker.rebalance(group)
        await eventually(lambda: harness.offset() == 1)
    assert (set(harness.rows()), harness.failures) == ({"=1"}, [])


async def test_a_gap_in_the_sequence_fails_the_task(harness: Harness) -> None:
    """The task fails if a chunk skips offsets, and does not commit past the gap."""
    async with running(harness.task()) as task:
        epoch = task.epoch
        await task.put([_chunk(epoch, 0, 0, 0)])
        await task.put([_chunk(epoch, 1, 5, 5)])
    assert isinstance(harness.failures[0], Fatal)
    assert "a gap in the fetched records" in str(harness.failures[0])


def _chunk(epoch: int, sequence: int, begin: int, end: int) -> Chunk:
    return Chunk(epoch, sequence, FIRST, [], begin, end)
