"""The worker's view of its logs when they fail or answer late."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fix_asyncio import eventually

from headrace.core.connect.lifecycle import State, TargetState
from headrace.core.connect.status import Status, TopicStatus, encode_topic, topic_key
from headrace.core.model.errors import Retriable
from headrace.runtime.worker import stores
from headrace.runtime.worker.stores import ConfigStore, StatusStore
from headrace_connectors.memory.stores import MemoryLog

pytestmark = pytest.mark.anyio
RUNNING = Status(State.RUNNING, "w")
FAILED = Status(State.FAILED, "w", trace="why")


async def test_a_configuration_is_there_when_put_returns() -> None:
    """And whoever follows the log has heard of it."""
    store, heard = ConfigStore(MemoryLog()), list[str]()
    await store.start(heard.append)
    await store.put_connector("n", {"a": "b"}, TargetState.PAUSED)
    assert store.state.connector_config("n") == {"a": "b"}
    assert store.state.target_state("n") is TargetState.PAUSED
    assert set(heard) == {"n"}


async def test_a_record_that_cannot_be_read_is_passed_over() -> None:
    """One broken record must not keep a worker from starting."""
    log = MemoryLog()
    await log.append([("connector-n", b"not json"), ("connector-m", b'{"properties":{}}')])
    store = ConfigStore(log)
    await store.start(lambda name: None)
    assert store.state.connectors() == ["m"]


async def test_levels_are_asked_of_the_workers_that_run_and_of_no_later_ones() -> None:
    """As in Connect a restart begins with the levels of the start; a record without a level is passed over."""
    log, heard = MemoryLog(), list[tuple[str, str]]()
    await log.append([("logger-cluster-old", b'{"level":"TRACE"}')])
    store = ConfigStore(log)
    await store.start(lambda name: None, lambda logger, level: heard.append((logger, level)))
    await log.append([("logger-cluster-broken", b"{}")])
    await store.put_logger_level("new", "DEBUG")
    assert heard == [("new", "DEBUG")]


async def test_a_configuration_that_cannot_be_written_is_not_there() -> None:
    """The caller hears it."""
    log = MemoryLog()
    store = ConfigStore(log)
    await store.start(lambda name: None)
    log.outage = "no broker"
    with pytest.raises(Retriable):
        await store.put_connector("n", {})
    assert store.state.connectors() == []


async def test_a_status_is_seen_at_once_and_written_when_the_log_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task can fail while Kafka is down; only its newest status is written."""
    monkeypatch.setattr(stores, "_RETRY_SECONDS", 0.001)
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


async def test_notes_stand_beside_the_task_until_it_is_gone() -> None:
    """They outlive a change of its state and a restart of the worker, not the task; each place is told once."""
    log = MemoryLog()
    store = StatusStore(log)
    await store.start()
    store.note("n", 0, "no positions", "t")  # a task may note something before it has a status
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


async def test_topics_are_listed_once_and_forgotten_on_demand() -> None:
    """With who found them and when (KIP-558)."""
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


async def test_the_owner_of_a_task_has_the_last_word() -> None:
    """What the worker says that has let it go comes late, and is contradicted."""
    old = StatusStore(MemoryLog())
    new = StatusStore(shared := MemoryLog(old._log))
    await old.start()
    await new.start()
    new.put_task("n", 0, replace(RUNNING, worker_id="new", generation=5))
    await eventually(lambda: old.task("n", 0) is not None)
    old.put_task("n", 0, replace(RUNNING, state=State.UNASSIGNED, worker_id="old", generation=5))
    await eventually(lambda: (seen := old.task("n", 0)) is not None and seen.worker_id == "new")
    assert shared.position() == 3


async def test_a_later_generation_is_not_contradicted() -> None:
    """Two workers that both stand for a task would never come to an end: the later assignment is right."""
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
