"""Tests of the worker's configuration and status stores, also when their topics are unavailable."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from support.fix_asyncio import eventually

from headrace.core.connect.lifecycle import State, TableState, TargetState
from headrace.core.connect.status import Status, TableStatus, TopicStatus, encode_topic, topic_key
from headrace.core.model.errors import Retriable
from headrace.ports import LogRecord
from headrace.runtime.worker import write_behind
from headrace.runtime.worker.stores import ConfigStore, StatusStore
from headrace_dev.memory.stores import MemoryLog

pytestmark = pytest.mark.anyio
CONFIG_M = b'{"properties":{}}'
RUNNING = Status(State.RUNNING, "w")
FAILED = Status(State.FAILED, "w", trace="why")


async def test_a_configuration_is_stored_when_put_returns() -> None:
    """When the put of a configuration returns, the store has it and has notified its listener."""
    store, notified = ConfigStore(MemoryLog()), list[str]()
    await store.start(notified.append)
    await store.put_connector("n", {"a": "b"}, TargetState.PAUSED)
    assert store.state.connector_config("n") == {"a": "b"}
    assert store.state.target_state("n") is TargetState.PAUSED
    assert set(notified) == {"n"}


async def test_a_record_that_cannot_be_read_is_skipped() -> None:
    """The store skips a record that it cannot decode, so that the worker starts. A connector's has a problem."""
    log = MemoryLog()
    await log.append([("target-state-m", b"not json"), ("connector-n", b"not json"), ("connector-m", CONFIG_M)])
    store = ConfigStore(log)
    await store.start(lambda name: None)
    assert store.state.connectors() == ["n", "m"]
    assert store.state.target_state("m") is TargetState.STARTED
    assert "its value is not JSON" in (store.state.problem("n") or "")
    assert store.state.problem("m") is None


async def test_a_request_waits_for_one_change_of_connectors_at_most() -> None:
    """Thousands of connectors that write their tasks after a restore do not delay the request of a user."""
    store, order, written = ConfigStore(MemoryLog()), list[str](), asyncio.Event()

    async def write(name: str) -> None:
        async with store.changing_tasks(name):
            order.append(name)
            await written.wait()

    async def request() -> None:
        async with store.changing("request"):
            order.append("request")

    writes = [asyncio.create_task(write(f"connector-{number}")) for number in range(20)]
    await eventually(lambda: bool(order))
    requested = asyncio.create_task(request())
    await asyncio.sleep(0)
    written.set()
    await asyncio.gather(requested, *writes)
    assert order.index("request") <= 2
    assert len(order) == 21


async def test_logger_levels_apply_to_running_workers_only() -> None:
    """A store ignores logger levels from before its start, as in Kafka Connect, and skips a record without a level."""
    log, notified = MemoryLog(), list[tuple[str, str]]()
    await log.append([("logger-cluster-old", b'{"level":"TRACE"}')])
    store = ConfigStore(log)
    await store.start(lambda name: None, lambda logger, level: notified.append((logger, level)))
    await log.append([("logger-cluster-broken", b"{}")])
    await store.put_logger_level("new", "DEBUG")
    assert notified == [("new", "DEBUG")]


async def test_a_configuration_that_cannot_be_written_is_not_stored() -> None:
    """The put of a configuration raises an error to the caller if the log is unavailable."""
    log = MemoryLog()
    store = ConfigStore(log)
    await store.start(lambda name: None)
    log.outage = "no broker"
    with pytest.raises(Retriable):
        await store.put_connector("n", {})
    assert store.state.connectors() == []


async def test_a_status_is_visible_at_once_and_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """If Kafka is down, the store returns the newest status at once, and writes it when Kafka is available."""
    monkeypatch.setattr(write_behind, "_RETRY_SECONDS", 0.001)
    log = MemoryLog()
    store = StatusStore(log)
    await store.start()
    log.outage = "no broker"
    store.put_task("n", 0, RUNNING)
    store.put_task("n", 0, FAILED)
    assert store.task("n", 0) == FAILED
    log.outage = None
    written = dict[str, bytes | None]()
    await log.start(written.__setitem__)
    await eventually(lambda: "status-task-n-0" in written)
    assert b"why" in (written["status-task-n-0"] or b"")
    await store.close()


async def test_a_note_on_a_state_ends_with_it() -> None:
    """Setting a note replaces its topics, also after a restart of the worker; the other notes stay."""
    log = MemoryLog()
    store = StatusStore(log)
    await store.start()
    store.put_task("n", 0, RUNNING)
    store.note("n", 0, "no positions", "t")
    store.set_note("n", 0, "no such topic", ["a", "b"])
    store.set_note("n", 0, "no such topic", ["b"])
    await store.close()
    restarted = StatusStore(log)
    await restarted.start()
    assert restarted.tasks("n") == [(0, replace(RUNNING, notes={"no positions": ("t",), "no such topic": ("b",)}))]
    restarted.set_note("n", 0, "no such topic", [])
    assert restarted.tasks("n") == [(0, replace(RUNNING, notes={"no positions": ("t",)}))]
    await restarted.close()


async def test_many_statuses_are_written_in_parts() -> None:
    """The states of thousands of connectors after a rebalance do not keep the event loop from other work."""

    class CountingLog(MemoryLog):
        def __init__(self) -> None:
            super().__init__()
            self.sizes = list[int]()

        async def append(self, records: Sequence[LogRecord]) -> None:
            self.sizes.append(len(records))
            await super().append(records)

    log = CountingLog()
    store = StatusStore(log)
    for number in range(1_200):
        store.put_connector(f"connector-{number}", RUNNING)
    await store.start()
    await eventually(lambda: sum(log.sizes) == 1_200)
    assert log.sizes == [500, 500, 200]
    await store.close()


async def test_notes_of_a_task_are_kept_until_it_is_deleted() -> None:
    """Notes survive state changes and a restart of the worker, not the deletion of the task. Each place is unique."""
    log = MemoryLog()
    store = StatusStore(log)
    await store.start()
    store.note("n", 0, "no positions", "t")  # a task can report a note before it has a status
    store.put_task("n", 0, RUNNING)
    store.note("n", 0, "no positions", "u column c")
    store.note("n", 0, "no positions", "t")
    store.put_task("n", 0, FAILED)
    await store.close()
    restarted = StatusStore(log)
    await restarted.start()
    assert restarted.tasks("n") == [(0, replace(FAILED, notes={"no positions": ("t", "u column c")}))]
    restarted.put_task("n", 0, None)
    restarted.put_task("n", 0, RUNNING)
    assert restarted.task("n", 0) == RUNNING
    await restarted.close()


async def test_topics_are_listed_once_until_a_reset() -> None:
    """The store lists each topic once, with the task and time that recorded it, until a reset (KIP-558)."""
    log = MemoryLog()
    store = StatusStore(log)
    await store.start()
    first = TopicStatus("t", "n", 0, 1)
    store.put_topic(first)
    store.put_topic(TopicStatus("t", "n", 1, 2))
    assert store.topics("n") == ["t"]
    await store.close()
    assert await _written(log) == {topic_key("n", "t"): encode_topic(first)}
    store.reset_topics("n")
    assert store.topics("n") == []


async def test_the_owner_of_a_task_overwrites_a_late_status() -> None:
    """The owner of a task writes its status again after a late status of the previous owner."""
    old = StatusStore(MemoryLog())
    new = StatusStore(shared := MemoryLog(old._log))
    await old.start()
    await new.start()
    new.put_task("n", 0, replace(RUNNING, worker_id="new", generation=5))
    await eventually(lambda: old.task("n", 0) is not None)
    old.put_task("n", 0, replace(RUNNING, state=State.UNASSIGNED, worker_id="old", generation=5))
    await eventually(lambda: (seen := old.task("n", 0)) is not None and seen.worker_id == "new")
    assert shared.position() == 3


async def test_the_status_of_a_later_generation_is_not_overwritten() -> None:
    """If two workers own a task, the later generation's status is kept, so that they do not overwrite it endlessly."""
    stale = StatusStore(MemoryLog())
    owner = StatusStore(shared := MemoryLog(stale._log))
    await stale.start()
    await owner.start()
    stale.put_task("n", 0, replace(RUNNING, worker_id="stale", generation=5))
    await eventually(lambda: shared.position() == 1)
    owner.put_task("n", 0, replace(RUNNING, worker_id="owner", generation=6))
    await eventually(lambda: shared.position() == 2)
    stale.put_task("n", 0, replace(FAILED, worker_id="stale", generation=5))
    await eventually(lambda: shared.position() == 4)
    await eventually(
        lambda: [seen.worker_id for store in (stale, owner) for _, seen in store.tasks("n")] == ["owner", "owner"]
    )


async def _written(log: MemoryLog) -> dict[str, bytes | None]:
    written = dict[str, bytes | None]()
    await MemoryLog(log).start(written.__setitem__)
    return written


async def test_the_states_of_tables_survive_a_restart() -> None:
    """With their topics. Those that an earlier release has stored have none."""
    log = MemoryLog()
    store = StatusStore(log)
    await store.start()
    tables = (
        TableStatus("items", TableState.FAILED, "why", 1_700_000_000.0, None, ("shop.items",)),
        TableStatus("orders", TableState.RETRYING, "away", 1_700_000_000.0, 1_700_000_030.0),
    )
    store.put_task("n", 0, RUNNING)
    store.put_tables("n", 0, tables)
    await store.close()
    again = StatusStore(log)
    await again.start()
    seen = again.task("n", 0)
    assert seen is not None
    assert seen.tables == tables
    await again.close()
