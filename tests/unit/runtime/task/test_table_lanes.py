"""Tests of table lanes, which isolate the failure of one table from the other tables of a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.fix_asyncio import eventually
from support.records.envelopes import change, key
from support.task.sink_task_harness import FIRST, GROUP, TOPIC, Harness, running

from headrace.core.connect.lifecycle import TableState
from headrace.core.connect.status import TableStatus
from headrace.core.connect.timeline import Kind
from headrace.core.model.errors import DamagedFile, Fatal, Retriable, TableDamaged, TableMissing
from headrace.ports import LakeTable, TableOptions, TopicPartition
from headrace.runtime import retry
from headrace.runtime.metrics.metrics import Metrics
from headrace.runtime.task import sink_task, table_lane
from headrace.runtime.task.sink_task import SinkTask
from headrace_dev.memory import MemoryLakehouse

pytestmark = pytest.mark.anyio

OTHER = "shop.public.orders"
OTHER_FIRST = TopicPartition(OTHER, 0)
ITEMS, ORDERS = "shop_public_items", "shop_public_orders"
BOTH = ((ITEMS, TOPIC), (ORDERS, OTHER))


@dataclass
class FailingLakehouse:
    """A lakehouse whose tables raise their entry in ``errors`` on a merge, and in ``upkeep`` on maintenance."""

    lakehouse: MemoryLakehouse
    errors: dict[str, Exception] = field(default_factory=dict)
    upkeep: dict[str, Exception] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lakehouse, name)

    def table(self, namespace: str, name: str, options: TableOptions) -> Any:
        """Open a table."""
        self.opened.append(name)
        table = self.lakehouse.table(namespace, name, options)
        return _FailingTable(table, lambda: self.errors.get(name), lambda: self.upkeep.get(name))


class _FailingTable:
    def __init__(
        self, table: LakeTable, error: Callable[[], Exception | None], upkeep: Callable[[], Exception | None]
    ) -> None:
        self._table = table
        self._error = error
        self._upkeep = upkeep

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def maintain(self, *arguments: Any) -> None:
        """Do nothing, or raise the configured error."""
        if (error := self._upkeep()) is not None:
            raise error

    def merge(self, *arguments: Any) -> Any:
        """Merge, or raise the configured error."""
        if (error := self._error()) is not None:
            raise error
        return self._table.merge(*arguments)


@pytest.fixture
async def broken(harness: Harness) -> FailingLakehouse:
    """Return the lakehouse of a harness with two topics, whose tables can fail."""
    await harness.broker.create_topic(OTHER)
    broken = FailingLakehouse(harness.lakehouse)
    harness.lakehouse = broken  # type: ignore[assignment] - it delegates everything else
    return broken


def order(harness: Harness, number: int) -> None:
    """Append an insert to the other topic."""
    harness.broker.append(
        OTHER, change("c", {"id": number, "name": "new"}, number, table="orders"), key({"id": number})
    )


def committed(harness: Harness, place: TopicPartition) -> int:
    return harness.broker.committed(GROUP).get(place, 0)


def states(task: SinkTask) -> dict[str, TableState]:
    return {each.table: each.state for each in task.tables()}


async def test_a_table_that_cannot_be_written_fails_alone(harness: Harness, broken: FailingLakehouse) -> None:
    """The task commits no offset of a failed table. It continues to write the other table, and does not fail."""
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


async def test_a_restarted_task_writes_the_table_that_had_failed(harness: Harness, broken: FailingLakehouse) -> None:
    """After a restart the task writes all records of the table that had failed."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    harness.insert(1, 1)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
    broken.errors.clear()
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: harness.offset() == 1)
        assert states(task) == {}
    assert set(harness.rows()) == {"=1"}


class Shown:
    """Records what the status of the task shows of its tables, without repetitions."""

    def __init__(self) -> None:
        self.states: list[dict[str, TableState]] = []
        self.blocked: Sequence[TableStatus] = ()
        self.observer = Metrics().task("items", 0, lambda topic: None, tables=self._tables)

    def _tables(self, blocked: Sequence[TableStatus]) -> None:
        self.blocked = blocked
        now = {each.table: each.state for each in blocked}
        if [now] != self.states[-1:]:
            self.states.append(now)


async def test_a_failed_table_is_never_shown_as_running_before_it_is_written(
    harness: Harness, broken: FailingLakehouse
) -> None:
    """A new run of the task shows it as RETRYING with the old cause, until it fails again or has a durable batch."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    harness.insert(1, 1)
    before = Shown()
    async with running(harness.task(isolated=True, observer=before.observer)):
        await eventually(lambda: before.states[-1] == {ITEMS: TableState.FAILED})
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
    assert [each.topics for each in before.blocked] == [(TOPIC,)]
    again = Shown()
    async with running(harness.task(isolated=True, observer=again.observer, blocked=before.blocked)):
        await eventually(lambda: again.states[-1] == {ITEMS: TableState.FAILED})
    assert again.states == [{ITEMS: TableState.RETRYING}, {ITEMS: TableState.FAILED}]
    broken.errors.clear()
    last = Shown()
    task = harness.task(isolated=True, observer=last.observer, blocked=again.blocked)
    (report,) = task.reports()
    assert (report.table, report.state, report.topics) == (ITEMS, TableState.RETRYING, (TOPIC,))
    assert report.last_error is not None
    assert "the type changed" in report.last_error.trace
    async with running(task):
        await eventually(lambda: harness.offset() == 1)
        assert [each.state for each in task.reports() if each.table == ITEMS] == [TableState.RUNNING]
    assert last.states == [{ITEMS: TableState.RETRYING}, {}]


async def test_a_restarted_table_is_retrying_until_it_is_written(harness: Harness, broken: FailingLakehouse) -> None:
    """A request to restart a table does not make it RUNNING: only a durable batch does."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    shown = Shown()
    harness.insert(1, 1)
    async with running(harness.task(isolated=True, observer=shown.observer)) as task:
        order(harness, 1)
        await eventually(lambda: shown.states[-1] == {ITEMS: TableState.FAILED})
        del shown.states[:]
        assert task.restart_table(ITEMS)
        await eventually(lambda: shown.states[-1:] == [{ITEMS: TableState.FAILED}])
        broken.errors.clear()
        assert task.restart_table(ITEMS)
        await eventually(lambda: harness.offset() == 1)
    retrying, failed = {ITEMS: TableState.RETRYING}, {ITEMS: TableState.FAILED}
    assert shown.states == [retrying, failed, retrying, {}]


async def test_tables_of_other_tasks_are_not_shown_as_retrying(harness: Harness, broken: FailingLakehouse) -> None:
    """The status of an earlier run may contain tables whose topics another task has now, or no task."""
    elsewhere = TableStatus("elsewhere", TableState.FAILED, "the cause", 0.0, None, ("shop.public.elsewhere",))
    shown = Shown()
    async with running(harness.task(isolated=True, observer=shown.observer, blocked=[elsewhere])):
        await eventually(lambda: shown.states[-1] == {})
    assert shown.states == [{"elsewhere": TableState.RETRYING}, {}]


async def test_a_table_that_lacks_nothing_is_not_retrying(
    harness: Harness, broken: FailingLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last run may have written the table, and ended before its status was written. A topic with lag stays."""
    monkeypatch.setattr(sink_task, "COMMIT_INTERVAL", 0.01)
    broken.errors[ORDERS] = Retriable("the storage is away")
    tables = [TableStatus(name, TableState.RETRYING, "away", 0.0, None, (topic,)) for name, topic in BOTH]
    harness.insert(1, 1)
    async with running(harness.task()):
        await eventually(lambda: harness.offset() == 1)
    order(harness, 1)
    shown = Shown()
    async with running(harness.task(isolated=True, observer=shown.observer, blocked=tables)):
        await eventually(lambda: shown.states[-1] == {ORDERS: TableState.RETRYING})
        assert committed(harness, OTHER_FIRST) == 0
    assert shown.states[0] == dict.fromkeys((ITEMS, ORDERS), TableState.RETRYING)


async def test_a_topic_that_fails_again_fails_the_table_that_had_failed(
    harness: Harness, broken: FailingLakehouse
) -> None:
    """Before a record of the topic is decoded, only the earlier run knows which table its changes belong to."""
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    known = TableStatus("renamed", TableState.FAILED, "the cause", 0.0, None, (TOPIC,))
    shown = Shown()
    async with running(harness.task(isolated=True, observer=shown.observer, blocked=[known])):
        await eventually(lambda: TableState.FAILED in shown.states[-1].values())
    assert shown.states == [{"renamed": TableState.RETRYING}, {"renamed": TableState.FAILED}]


async def test_a_table_is_restarted_alone(harness: Harness, broken: FailingLakehouse) -> None:
    """A restart of one table reads its records again in order. The other table loses no record."""
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


async def test_a_table_that_is_restarted_in_a_pause_runs_after_it(harness: Harness, broken: FailingLakehouse) -> None:
    """A table that is restarted while the connector is paused has the state PAUSED, and is written after resume."""
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


async def test_an_unknown_table_is_not_restarted(harness: Harness, broken: FailingLakehouse) -> None:
    """A restart of an unknown table returns False and reads no records again."""
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: harness.offset() == 1)
        epoch = task.epoch
        assert not task.restart_table("unknown")
        assert task.epoch == epoch


async def test_nothing_is_written_between_the_request_and_the_rewind(
    harness: Harness, broken: FailingLakehouse
) -> None:
    """A restarted table stays FAILED until the next assignment rewinds it, so that no chunk is written out of order."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert task.restart_table(ITEMS)
        assert states(task) == {ITEMS: TableState.FAILED}, "until the next assignment"
        await eventually(lambda: task.epoch == 2)


async def test_the_details_of_a_table(harness: Harness, broken: FailingLakehouse) -> None:
    """The last batches with their operations and offsets, and the columns with what has changed in this run."""
    reported: list[tuple[Kind, str, str]] = []
    observer = Metrics().task("items", 0, lambda topic: None, record=lambda *event: reported.append(event))
    async with running(harness.task(isolated=True, observer=observer)) as task:
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
        row = {"id": 1, "name": "new", "note": "text"}
        harness.broker.append(OTHER, change("u", row, 2, table="orders"), key({"id": 1}))
        await eventually(lambda: committed(harness, OTHER_FIRST) == 2)
        (orders,) = task.reports()
        document = orders.details().document()
        assert [batch["operations"]["updates"] for batch in document["batches"]] == [1, 0]
        assert document["batches"][1]["operations"]["creates"] == 1
        place = {"topic": OTHER, "partition": 0}
        assert document["batches"][0]["offsets"] == [{**place, "next_offset": 2}]
        assert {batch["closed_by"] for batch in document["batches"]} == {"age"}
        assert document["watermark"] == "2023-11-14T22:13:20Z"
        assert [column["name"] for column in document["columns"]] == ["id", "name", "note"]
        added, created = document["schema_changes"]
        assert (added["change"], added["column"], added["type"]) == ("added", "note", "STRING")
        assert created["change"] == "created"
        assert reported == [(Kind.SCHEMA_CHANGED, "shop_public_orders", "added note STRING")], "not the creation"
        assert "files" not in document, "a table in memory has none"


async def test_the_report_of_a_table(harness: Harness, broken: FailingLakehouse) -> None:
    """A report has the waiting events, the last batch, and the last error, which stays when the table runs again."""
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


async def test_a_bad_record_fails_only_its_table(harness: Harness, broken: FailingLakehouse) -> None:
    """A bad record fails only its table, also if the task has read no other record of that table."""
    harness.broker.append(TOPIC, b"{broken", key({"id": 1}))
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert "shop.public.items-0 at offset 0" in task.tables()[0].trace
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
    assert not harness.failures
    assert committed(harness, FIRST) == 0


async def test_offsets_are_not_committed_past_a_bad_record(harness: Harness, broken: FailingLakehouse) -> None:
    """With table isolation the task does not commit past the bad record of a failed table."""
    harness.insert(1, 1)
    harness.broker.append(TOPIC, b"{broken", key({"id": 2}))
    harness.insert(3, 3)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        order(harness, 1)
        await eventually(lambda: committed(harness, OTHER_FIRST) == 1)
    assert committed(harness, FIRST) <= 1


async def test_the_task_fails_once_no_topic_is_left(harness: Harness, broken: FailingLakehouse) -> None:
    """If all tables of a task have failed, the task fails with the error of the last table."""
    broken.errors |= {ITEMS: Fatal("first"), ORDERS: Fatal("second")}
    async with running(harness.task(isolated=True)) as task:
        harness.insert(1, 1)
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert not harness.failures
        order(harness, 1)
        await eventually(lambda: bool(harness.failures))
    assert str(harness.failures[0]) == "second"


async def test_without_isolation_the_task_fails_as_in_kafka_connect(harness: Harness, broken: FailingLakehouse) -> None:
    """With ``errors.isolation=task`` the failure of one table fails the task."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    harness.insert(1, 1)
    async with running(harness.task()) as task:
        await eventually(lambda: bool(harness.failures))
        assert task.tables() == []


@pytest.mark.parametrize("isolated", [True, False])
async def test_a_table_whose_file_stays_damaged_fails(
    harness: Harness, broken: FailingLakehouse, monkeypatch: pytest.MonkeyPatch, isolated: bool
) -> None:
    """It is retried first, then FAILED. After the file is restored and the table restarted, all rows are written."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)
    monkeypatch.setattr(table_lane, "RETRY_SECONDS", 0.03)
    monkeypatch.setattr(retry, "DAMAGE_SECONDS", 0.1)
    broken.errors[ITEMS] = DamagedFile("items: the file /w/x is damaged", "/w/x")
    harness.insert(1, 1)
    order(harness, 1)
    async with running(harness.task(isolated=isolated)) as task:
        if not isolated:
            await eventually(lambda: bool(harness.failures))
            assert type(harness.failures[0]) is TableDamaged
            return
        await eventually(lambda: states(task) == {ITEMS: TableState.RETRYING})
        await eventually(lambda: states(task) == {ITEMS: TableState.FAILED})
        assert "TableDamaged: items: the file /w/x is damaged" in task.tables()[0].trace
        broken.errors.clear()
        assert task.restart_table(ITEMS)
        await eventually(lambda: (harness.offset(), committed(harness, OTHER_FIRST)) == (1, 1))
    assert not harness.failures


async def test_a_file_that_is_damaged_for_a_moment_fails_nothing(
    harness: Harness, broken: FailingLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store may show a file late."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)
    broken.errors[ITEMS] = DamagedFile("items: the file /w/x does not exist", "/w/x")
    harness.insert(1, 1)
    async with running(harness.task(isolated=True)) as task:
        await eventually(lambda: states(task) == {ITEMS: TableState.RETRYING})
        broken.errors.clear()
        await eventually(lambda: harness.offset() == 1)
        assert states(task) == {}


async def test_a_write_with_a_retriable_error_is_repeated(
    harness: Harness, broken: FailingLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table with a retriable error is RETRYING with cause and next attempt. The other tables continue."""
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
    harness: Harness, broken: FailingLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task opens a table again after many retries, because its handle may be the cause."""
    monkeypatch.setattr(table_lane, "BACKOFF", 0.01)
    monkeypatch.setattr(table_lane, "RETRY_SECONDS", 0.05)
    broken.errors[ITEMS] = Retriable("the storage is away")
    async with running(harness.task(isolated=True)):
        harness.insert(1, 1)
        await eventually(lambda: broken.opened.count(ITEMS) > 1)


async def test_a_pause_does_not_wait_for_a_task_that_has_failed(harness: Harness, broken: FailingLakehouse) -> None:
    """The pause of a failed task ends at once, because the task writes no more batches."""
    broken.errors[ITEMS] = Fatal("items: the type changed")
    async with running(harness.task(linger=60.0)) as task:
        harness.insert(1, 1)
        await eventually(lambda: task.waiting(ITEMS) == 1)
        async with asyncio.timeout(60):
            await task.pause()
        assert [str(error) for error in harness.failures] == ["items: the type changed"]


async def test_a_pause_does_not_wait_for_a_table_that_cannot_be_written(
    harness: Harness, broken: FailingLakehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pause does not wait for a table that is RETRYING. The table's batch is written after resume."""
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


async def test_a_failed_table_stays_failed_over_a_rebalance(harness: Harness, broken: FailingLakehouse) -> None:
    """A failed table stays FAILED after a rebalance, until a restart. The task reads no records of it."""
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
async def test_failed_upkeep_does_not_write_the_batch_again(
    harness: Harness, broken: FailingLakehouse, error: Exception
) -> None:
    """The batch is complete by then. The next batch tries the upkeep again, or reports the missing table."""
    broken.upkeep[ITEMS] = error
    async with running(harness.task(isolated=True)) as task:
        for number in (1, 2):
            harness.insert(number, number)
            await eventually(lambda number=number: harness.offset() == number)
        assert states(task) == {}
    assert not harness.failures
