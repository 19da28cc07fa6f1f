"""Tests of tables that requests pause while the other tables of their task continue."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import FIRST, GROUP, TOPIC, Harness, running

from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.paused_tables import PausedTable
from headrace.core.connect.status import TableStatus
from headrace.core.model.errors import Fatal, Retriable
from headrace.ports import TableOptions, TopicPartition
from headrace.runtime.observation import Observer
from headrace.runtime.task.sink_task import SinkTask
from headrace.runtime.task.task_tables import PAUSED

pytestmark = pytest.mark.anyio

ITEMS, ORDERS = "shop_public_items", "shop_public_orders"
OTHER = "shop.public.orders"
OTHER_FIRST = TopicPartition(OTHER, 0)
PAUSED_ITEMS = {ITEMS: PausedTable((TOPIC,), 1_700_000_000.0)}


@pytest.fixture
async def shop(harness: Harness) -> Harness:
    """A harness with two topics."""
    await harness.broker.create_topic(OTHER)
    return harness


@pytest.fixture
def before_merge(shop: Harness, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Return a function that sets what is called before each merge."""
    table = type(shop.lakehouse.table("lake", "x", TableOptions()))
    merge = table.merge

    def call_before(step: Callable[[], None]) -> None:
        def merge_after(table: Any, *arguments: Any) -> Any:
            step()
            return merge(table, *arguments)

        monkeypatch.setattr(table, "merge", merge_after)

    return call_before


def refusal(error: Exception) -> Callable[[], None]:
    """Return a function that raises the error."""

    def refuse() -> None:
        raise error

    return refuse


def order(shop: Harness, number: int) -> None:
    """Append an insert to the other topic."""
    row = {"id": number, "name": "new"}
    shop.broker.append(OTHER, change("c", row, number, table="orders"), key({"id": number}))


def states(task: SinkTask) -> dict[str, TableState]:
    return {each.table: each.state for each in task.tables()}


def orders_offset(shop: Harness) -> int:
    return shop.broker.committed(GROUP).get(OTHER_FIRST, 0)


class Shown(Observer):
    """Records the subjects of the note, and the statuses of the tables."""

    def __init__(self) -> None:
        self.paused: list[list[str]] = []
        self.blocked: Sequence[TableStatus] = ()

    def set_note(self, text: str, locations: Sequence[str]) -> None:
        if text == PAUSED:
            self.paused.append(list(locations))

    def on_blocked_tables(self, blocked: Sequence[TableStatus]) -> None:
        self.blocked = blocked


def lag(shop: Harness) -> int:
    return shop.broker.end(FIRST) - shop.offset()


def reported(task: SinkTask) -> dict[str, TableState]:
    return {each.table: each.state for each in task.reports()}


async def test_a_paused_table_waits_while_the_others_continue(shop: Harness) -> None:
    """Its records stay in Kafka, its offsets stay, and after the resume each record is written once."""
    shown = Shown()
    async with running(shop.task(isolated=True, observer=shown)) as task:
        shop.insert(1, 1)
        await eventually(lambda: shop.offset() == 1)
        task.set_paused_tables(PAUSED_ITEMS)
        assert shown.paused[-1] == [ITEMS]
        await eventually(lambda: states(task) == {ITEMS: TableState.PAUSED})  # once its write has ended
        for number in (2, 3):
            shop.insert(number, number)
            order(shop, number)
        await eventually(lambda: orders_offset(shop) == 2)
        assert (set(shop.rows()), lag(shop), task.waiting(ITEMS)) == ({"=1"}, 2, 0)
        assert reported(task) == {ITEMS: TableState.PAUSED, ORDERS: TableState.RUNNING}
        task.set_paused_tables({})
        assert (states(task), shown.paused[-1]) == ({}, [])
        await eventually(lambda: shop.offset() == 3)
    assert set(shop.rows()) == {"=1", "=2", "=3"}


async def test_a_table_is_paused_before_its_first_record(shop: Harness) -> None:
    """A new run of the task reads nothing of the table's topics, and shows it with the topics of the record."""
    shown = Shown()
    task = shop.task(isolated=True, observer=shown)
    task.set_paused_tables(PAUSED_ITEMS)
    shop.insert(1, 1)
    order(shop, 1)
    async with running(task):
        await eventually(lambda: orders_offset(shop) == 1)
        assert reported(task) == {ITEMS: TableState.PAUSED, ORDERS: TableState.RUNNING}
        assert ([each.topics for each in shown.blocked], shown.paused[-1]) == ([(TOPIC,)], [ITEMS])
        assert (shop.rows(), lag(shop), task.waiting(ITEMS)) == ({}, 1, 0)
        task.set_paused_tables({})
        await eventually(lambda: shop.offset() == 1)
    assert set(shop.rows()) == {"=1"}


async def test_a_write_in_progress_ends_before_the_table_is_paused(
    shop: Harness, before_merge: Callable[[Callable[[], None]], None]
) -> None:
    """What was read behind it waits in memory, and is written after the resume."""
    began, go = Event(), Event()

    def wait() -> None:
        began.set()
        assert go.wait(10)

    before_merge(wait)
    async with running(shop.task(isolated=True)) as task:
        shop.insert(1, 1)
        await eventually(began.is_set)
        shop.insert(2, 2)
        await eventually(lambda: task.waiting(ITEMS) == 1)
        task.set_paused_tables(PAUSED_ITEMS)
        assert states(task) == {}, "its write is in progress"
        go.set()
        await eventually(lambda: states(task) == {ITEMS: TableState.PAUSED})
        order(shop, 1)
        await eventually(lambda: orders_offset(shop) == 1)
        assert (set(shop.rows()), shop.offset(), task.waiting(ITEMS)) == ({"=1"}, 1, 1)
        task.set_paused_tables({})
        await eventually(lambda: shop.offset() == 2)
    assert set(shop.rows()) == {"=1", "=2"}


async def test_a_rebalance_keeps_the_pause(shop: Harness) -> None:
    """What waited in memory is discarded, and read again after the resume."""
    async with running(shop.task(isolated=True, linger=1.0)) as task:
        shop.insert(1, 1)
        await eventually(lambda: task.waiting(ITEMS) == 1)
        task.set_paused_tables(PAUSED_ITEMS)
        await shop.broker.create_topic("shop.public.notes")
        order(shop, 1)
        await eventually(lambda: orders_offset(shop) == 1)
        assert (states(task), shop.rows(), task.waiting(ITEMS)) == ({ITEMS: TableState.PAUSED}, {}, 0)
        task.set_paused_tables({})
        await eventually(lambda: shop.offset() == 1)
    assert set(shop.rows()) == {"=1"}


async def test_the_pause_moves_with_the_topics_of_the_table(shop: Harness) -> None:
    """All tasks of the connector receive the paused tables; the one that reads the topics shows them."""
    first, second = shop.task(0, isolated=True), shop.task(1, isolated=True)
    for task in (first, second):
        task.set_paused_tables(PAUSED_ITEMS)
    async with running(first):
        await eventually(lambda: states(first) == {ITEMS: TableState.PAUSED})
        async with running(second):
            await eventually(lambda: len(states(first)) + len(states(second)) == 1)
            shop.insert(1, 1)
            order(shop, 1)
            await eventually(lambda: orders_offset(shop) == 1)
            assert shop.rows() == {}
            for task in (first, second):
                task.set_paused_tables({})
            await eventually(lambda: shop.offset() == 1)
    assert set(shop.rows()) == {"=1"}


async def test_pause_and_resume_of_the_connector_keep_the_pause(shop: Harness) -> None:
    """A connector's pause neither waits for the table nor writes it; a resume of one does not lift the other's."""
    async with running(shop.task(isolated=True, linger=1.0)) as task:
        shop.insert(1, 1)
        await eventually(lambda: task.waiting(ITEMS) == 1)
        task.set_paused_tables(PAUSED_ITEMS)
        async with asyncio.timeout(60):
            await task.pause()
        assert shop.rows() == {}
        await task.resume()
        assert reported(task) == {ITEMS: TableState.PAUSED}
        order(shop, 1)
        await eventually(lambda: orders_offset(shop) == 1)
        await task.pause()
        task.set_paused_tables({})
        assert reported(task) == {ITEMS: TableState.PAUSED, ORDERS: TableState.PAUSED}
        assert (shop.rows(), shop.offset()) == ({}, 0)
        await task.resume()
        await eventually(lambda: shop.offset() == 1)
    assert set(shop.rows()) == {"=1"}


async def test_a_failed_table_stays_failed_until_it_is_restarted(
    shop: Harness, before_merge: Callable[[Callable[[], None]], None]
) -> None:
    """A restart during the pause makes it PAUSED; the resume writes it."""
    before_merge(refusal(Fatal("items: the type changed")))
    async with running(shop.task(isolated=True)) as task:
        shop.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        task.set_paused_tables(PAUSED_ITEMS)
        assert states(task) == {ITEMS: TableState.FAILED}
        task.set_paused_tables({})
        assert states(task) == {ITEMS: TableState.FAILED}
        task.set_paused_tables(PAUSED_ITEMS)
        before_merge(lambda: None)
        assert task.restart_table(ITEMS)
        await eventually(lambda: states(task) == {ITEMS: TableState.PAUSED})
        assert [each.last_error is not None for each in task.reports() if each.table == ITEMS] == [True]
        task.set_paused_tables({})
        assert states(task) == {ITEMS: TableState.RETRYING}, "it has no durable batch yet"
        await eventually(lambda: shop.offset() == 1)
        assert states(task) == {}
    assert set(shop.rows()) == {"=1"}


async def test_a_table_that_is_retried_is_paused(
    shop: Harness, before_merge: Callable[[Callable[[], None]], None]
) -> None:
    """No attempt begins during the pause. The batch is written after the resume."""
    before_merge(refusal(Retriable("the storage is away")))
    async with running(shop.task(isolated=True)) as task:
        shop.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.RETRYING})
        task.set_paused_tables(PAUSED_ITEMS)
        await eventually(lambda: states(task) == {ITEMS: TableState.PAUSED})
        before_merge(lambda: None)
        order(shop, 1)
        await eventually(lambda: orders_offset(shop) == 1)
        assert shop.rows() == {}
        task.set_paused_tables({})
        await eventually(lambda: shop.offset() == 1)
    assert set(shop.rows()) == {"=1"}


async def test_a_topic_that_joins_a_paused_table_is_not_read_further(shop: Harness) -> None:
    """The record has the topics of the moment of the pause; others follow with their first change."""
    task = shop.task(isolated=True)
    task.set_paused_tables({ITEMS: PausedTable((), 1_700_000_000.0)})
    async with running(task):
        shop.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.PAUSED})
        shop.insert(2, 2)
        order(shop, 1)
        await eventually(lambda: orders_offset(shop) == 1)
        assert (shop.rows(), task.waiting(ITEMS), lag(shop)) == ({}, 1, 2)
        task.set_paused_tables({})
        await eventually(lambda: shop.offset() == 2)
    assert set(shop.rows()) == {"=1", "=2"}


async def test_a_paused_table_is_shown_from_the_start_of_the_next_run(shop: Harness) -> None:
    """Also before the group has assigned its topics: a status without it would look as if it were resumed."""
    paused = TableStatus(ITEMS, TableState.PAUSED, "paused", 1_700_000_000.0, None, (TOPIC,))
    task = shop.task(isolated=True, blocked=[paused])
    task.set_paused_tables(PAUSED_ITEMS)
    assert reported(task) == {ITEMS: TableState.PAUSED}
    resumed = shop.task(isolated=True, blocked=[paused])
    assert reported(resumed) == {}
