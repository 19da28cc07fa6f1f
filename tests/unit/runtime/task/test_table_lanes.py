"""A failure stays in its table: the lane of each table of a task, its state, and what the task does with it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from envelopes import change, key
from fix_asyncio import eventually
from unit.runtime.sink_task_harness import FIRST, GROUP, TOPIC, Harness, running

from headrace.core.connect.lifecycle import TableState
from headrace.core.model.errors import Fatal, Retriable, TableMissing
from headrace.ports import LakeTable, TableOptions, TopicPartition
from headrace.runtime.task import table_lane
from headrace.runtime.task.sink_task import SinkTask
from headrace_connectors.memory import MemoryLakehouse

pytestmark = pytest.mark.anyio

OTHER = "shop.public.orders"
OTHER_FIRST = TopicPartition(OTHER, 0)
ITEMS, ORDERS = "shop_public_items", "shop_public_orders"


@dataclass
class Broken:
    """A lakehouse whose tables raise what ``errors`` has for them when they are merged into."""

    lakehouse: MemoryLakehouse
    errors: dict[str, Exception] = field(default_factory=dict)
    upkeep: dict[str, Exception] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lakehouse, name)

    def table(self, namespace: str, name: str, options: TableOptions) -> Any:
        """A handle."""
        self.opened.append(name)
        table = self.lakehouse.table(namespace, name, options)
        return _BrokenTable(table, lambda: self.errors.get(name), lambda: self.upkeep.get(name))


class _BrokenTable:
    def __init__(
        self, table: LakeTable, error: Callable[[], Exception | None], upkeep: Callable[[], Exception | None]
    ) -> None:
        self._table = table
        self._error = error
        self._upkeep = upkeep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def maintain(self, *arguments: Any) -> None:
        """Nothing, or raise."""
        if (error := self._upkeep()) is not None:
            raise error

    def merge(self, *arguments: Any) -> Any:
        """Merge, or raise."""
        if (error := self._error()) is not None:
            raise error
        return self._table.merge(*arguments)


@pytest.fixture
async def broken(harness: Harness) -> Broken:
    """Two topics; the lakehouse of the harness with tables that can be broken."""
    await harness.broker.create_topic(OTHER)
    broken = Broken(harness.lakehouse)
    harness.lakehouse = broken  # type: ignore[assignment] - it passes everything else on
    return broken


def order(harness: Harness, number: int) -> None:
    """An insert into the other topic."""
    harness.broker.append(
        OTHER, change("c", {"id": number, "name": "new"}, number, table="orders"), key({"id": number})
    )


def committed(harness: Harness, place: TopicPartition) -> int:
    return harness.broker.committed(GROUP).get(place, 0)


def states(task: SinkTask) -> dict[str, TableState]:
    return {each.table: each.state for each in task.tables()}


async def test_a_table_that_cannot_be_written_stops_alone(harness: Harness, broken: Broken) -> None:
    """Its offsets stay, whatever comes for it; the other table goes on, and the task does not fail."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        harness.insert(2, 2)
        order(harness, 1)
        order(harness, 2)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 2)
    assert not harness.failures
    assert committed(harness, FIRST) == 0
    assert len(harness.rows(ORDERS)) == 2


async def test_a_restarted_task_writes_the_table_that_had_failed(harness: Harness, broken: Broken) -> None:
    """Nothing was lost meanwhile."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    harness.insert(1, 1)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
    broken.errors.clear()
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: harness.offset() == 1)
        assert states(task) == {}
    assert set(harness.rows()) == {"=1"}


async def test_a_table_is_restarted_alone(harness: Harness, broken: Broken) -> None:
    """It reads again what it does not have, in order, and the other table misses nothing."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        order(harness, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        harness.insert(2, 2)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
        broken.errors.clear()
        opened = broken.opened.count(ITEMS)
        assert task.restart_table(ITEMS)
        order(harness, 2)
        await eventually(lambda: (harness.offset(), committed(harness, OTHER_FIRST)) == (2, 2))
        assert states(task) == {}
        assert broken.opened.count(ITEMS) == opened + 1, "a new handle"
    assert not harness.failures
    assert set(harness.rows()) == {"=1", "=2"}
    assert len(harness.rows(ORDERS)) == 2


async def test_a_table_that_is_restarted_in_a_pause_runs_after_it(harness: Harness, broken: Broken) -> None:
    """Until then it shows that the connector is paused."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        await task.pause()
        broken.errors.clear()
        assert task.restart_table(ITEMS)
        await eventually(lambda: [each.state for each in task.reports()] == [TableState.PAUSED])
        assert harness.offset() == 0
        await task.resume()
        await eventually(lambda: harness.offset() == 1)


async def test_an_unknown_table_is_not_restarted(harness: Harness, broken: Broken) -> None:
    """Nothing is read again for it."""
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: harness.offset() == 1)
        epoch = task.epoch
        assert not task.restart_table("nobody")
        assert task.epoch == epoch


async def test_nothing_is_written_between_the_request_and_the_rewind(harness: Harness, broken: Broken) -> None:
    """A history would take the events of the earlier chunk, which is read again, for those that it has already."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert task.restart_table(ITEMS)
        assert states(task) == {ITEMS: TableState.FAILED}, "until the next assignment"
        await eventually(lambda: task.epoch == 2)


async def test_what_is_known_of_a_table(harness: Harness, broken: Broken) -> None:
    """What waits, the last batch and the last error, which stays when the table runs again."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        items, orders = task.reports()
        assert (items.table, items.state, items.topics, items.last_batch) == (ITEMS, TableState.FAILED, [TOPIC], None)
        assert items.last_error is not None
        assert "the type changed" in items.last_error.trace
        assert (orders.table, orders.state) == (ORDERS, TableState.RUNNING)
        assert (orders.waiting_events, orders.oldest) == (0, None)
        assert orders.last_batch is not None
        assert (orders.last_batch.events, orders.last_batch.source_time) == (1, 1_700_000_000)
        broken.errors.clear()
        assert task.restart_table(ITEMS)
        await eventually(lambda: harness.offset() == 1)
        items, _ = task.reports()
        assert items.state is TableState.RUNNING
        assert items.last_error is not None
        await task.pause()
        assert {each.state for each in task.reports()} == {TableState.PAUSED}
        await task.resume()
        assert {each.state for each in task.reports()} == {TableState.RUNNING}


async def test_a_bad_record_stops_its_table_alone(harness: Harness, broken: Broken) -> None:
    """Also where the table has had no record before, so that nothing but its topic names it."""
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert "shop.public.items-0 at offset 0" in task.tables()[0].trace
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
    assert not harness.failures
    assert committed(harness, FIRST) == 0


async def test_what_was_read_before_a_bad_record_is_not_committed_past_it(harness: Harness, broken: Broken) -> None:
    """Good records before and behind it wait for the restart with it."""
    harness.insert(1, 1)
    harness.broker.append(TOPIC, b"{broken", key({"id": 2}))
    harness.insert(3, 3)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
    assert committed(harness, FIRST) <= 1


async def test_the_task_fails_once_no_topic_is_left(harness: Harness, broken: Broken) -> None:
    """With the error of the last table."""
    broken.errors |= {ITEMS: Fatal("first"), ORDERS: Fatal("second")}
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert not harness.failures
        order(harness, 1)
        await eventually(lambda: bool(harness.failures))
    assert str(harness.failures[0]) == "second"


async def test_without_isolation_the_task_fails_as_in_kafka_connect(harness: Harness, broken: Broken) -> None:
    """``errors.isolation=task``."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    harness.insert(1, 1)
    async with running(harness.task()) as task:
        await eventually(lambda: bool(harness.failures))
        assert task.tables() == []


async def test_a_write_that_fails_for_a_passing_reason_is_repeated(
    harness: Harness, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table shows RETRYING with cause and next attempt, the others go on; then it runs again."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)
    broken.errors[ITEMS] = Retriable("the storage is away")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.RETRYING})
        (status,) = task.tables()
        assert "the storage is away" in status.trace
        assert status.next_attempt is not None
        assert status.next_attempt >= status.since
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
        broken.errors.clear()
        await eventually(lambda: harness.offset() == 1)
        assert states(task) == {}
    assert not harness.failures


async def test_a_table_that_is_retried_for_long_is_opened_again(
    harness: Harness, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handle may be what is broken."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)
    monkeypatch.setattr(table_lane, "PATIENCE", 0.05)
    broken.errors[ITEMS] = Retriable("the storage is away")
    async with running(harness.task(isolated=True)):
        harness.insert(1, 1)
        await eventually(lambda: broken.opened.count(ITEMS) > 1)


async def test_a_pause_does_not_wait_for_a_task_that_has_failed(harness: Harness, broken: Broken) -> None:
    """Nothing more is written, so what waits never will be."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(linger=60.0)) as task:
        harness.insert(1, 1)
        await eventually(lambda: task.waiting(ITEMS) == 1)
        async with asyncio.timeout(5):
            await task.pause()
        assert [str(error) for error in harness.failures] == ["items: the type changed"]


async def test_a_pause_does_not_wait_for_a_table_that_cannot_be_written(
    harness: Harness, broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of it is written after the resume."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)
    broken.errors[ITEMS] = Retriable("the storage is away")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.RETRYING})
        await task.pause()
        broken.errors.clear()
        assert harness.rows() == {}
        await task.resume()
        await eventually(lambda: harness.offset() == 1)
    assert set(harness.rows()) == {"=1"}


async def test_a_failed_table_stays_failed_over_a_rebalance(harness: Harness, broken: Broken) -> None:
    """Only a restart brings it back; nothing of it is read until then."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        broken.errors.clear()
        await harness.broker.rebalance(harness.broker.group(GROUP))
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
        assert states(task) == {ITEMS: TableState.FAILED}
        assert committed(harness, FIRST) == 0
    assert harness.rows() == {}


@pytest.mark.parametrize(
    "error",
    [Retriable("another writer changed the table"), TableMissing("items: the table does not exist any more")],
    ids=["conflict", "dropped table"],
)
async def test_failed_upkeep_does_not_write_the_batch_again(harness: Harness, broken: Broken, error: Exception) -> None:
    """The batch is complete by then. The next batch tries the upkeep again, or reports the missing table."""
    broken.upkeep[ITEMS] = error
    async with running(harness.task(isolated=True)) as task:
        for number in (1, 2):
            harness.insert(number, number)
            await eventually(lambda number=number: harness.offset() == number)
        assert states(task) == {}
    assert not harness.failures
