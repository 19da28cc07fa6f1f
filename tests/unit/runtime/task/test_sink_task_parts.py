"""Tests of batches that are written in parts, because their reselected cells exceed the memory limit."""

from __future__ import annotations

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import PLACEHOLDER, change, key
from support.task.sink_task_harness import FIRST, TOPIC, Harness, reselect, running

from headrace.ports import TableOptions

pytestmark = pytest.mark.anyio

NAMES = [f"{number:0100}" for number in range(1, 61)]


def update_all(harness: Harness) -> None:
    for number in range(1, len(NAMES) + 1):
        update = change("u", {"id": number, "name": PLACEHOLDER}, number)
        harness.broker.append(TOPIC, update, key({"id": number}))


@pytest.mark.parametrize("history", [False, True])
async def test_a_batch_in_parts(harness: Harness, history: bool) -> None:
    """Each part is a commit with its end offset. All rows are written once, and the group's offset is committed."""
    update_all(harness)
    async with running(harness.task(history=history, processor=reselect(NAMES, batch_max_bytes=1000))):
        await eventually(lambda: harness.offset() == 60)
    table = harness.lakehouse.table("lake", "shop_public_items", TableOptions(history=history))
    assert sorted(row["name"] for row in table.to_arrow().to_pylist()) == NAMES
    assert [commit.offsets[FIRST] for commit in table.commits] == [15, 30, 45, 60]
    assert [commit.watermark >= 0 for commit in table.commits] == [False, False, False, True]


async def test_key_changes_in_parts(harness: Harness) -> None:
    """Both halves of a key change are in the same part."""
    for number in range(1, 61):
        harness.insert(number, number)
    async with running(harness.task(processor=reselect([*NAMES, *NAMES], batch_max_bytes=1000))):
        await eventually(lambda: harness.offset() == 60)
        harness.insert(1000, 61)
        for number in range(1, 61):
            move(harness, number, number + 60)
        await eventually(lambda: harness.offset() == 181)
    table = harness.lakehouse.table("lake", "shop_public_items", TableOptions())
    rows = sorted((row["id"], row["name"]) for row in harness.rows().values())
    assert rows == [*enumerate(NAMES, 61), (1000, "new")]
    ends = [commit.offsets[FIRST] for commit in table.commits if commit.offsets[FIRST] > 60]
    assert len(ends) > 3
    assert {end % 2 for end in ends} == {1}


def move(harness: Harness, old: int, new: int) -> None:
    away = change("d", None, 100 * old, columns={"id": 1, "name": ""})
    into = change("c", {"id": new, "name": PLACEHOLDER}, 100 * old + 1)
    harness.broker.append(TOPIC, away, key({"id": old}), headers=[("__debezium.newkey", key({"id": new}))])
    harness.broker.append(TOPIC, into, key({"id": new}), headers=[("__debezium.oldkey", key({"id": old}))])
