"""A snapshot of one table. The test gives the answers of source connector and worker, and moves the clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

from headrace.core.model.errors import Fatal, Retriable
from headrace.core.resnapshot.signals import Signal, new_id, snapshot_request
from headrace.core.resnapshot.source_connector import SignalSettings
from headrace.ports import TopicPartition
from headrace.runtime.resnapshot.source_connector import SourceConnector
from headrace.runtime.resnapshot.table_snapshot import Progress, SnapshotTable, TableSnapshot
from headrace.runtime.verify.table_verifier import Clock
from headrace_dev.memory.signals import MemorySignals

BEGAN = 1_700_000_000.0
NAME, TOPIC = "public.orders", "shop.public.orders"
LOST = "headrace.core.model.errors.TableMissing: lake.orders: the table does not exist"


@dataclass
class World:
    """Source connector, sink connector and clock. ``steps`` are run before the polls of that number."""

    steps: dict[int, Callable[[World], None]] = field(default_factory=dict)
    signals: MemorySignals = field(default_factory=MemorySignals)
    log_end: int = 100
    position: int = 50
    tables: list[str] = field(default_factory=list)
    source_state: str = "RUNNING"
    table: Mapping[str, Any] | None = None
    committed: int = 10
    end: int = 10
    idle: bool = False
    restarts: int = 0
    notices: list[str] = field(default_factory=list)
    reports: list[Progress] = field(default_factory=list)
    polls: int = 0
    seconds: float = 0.0

    def get(self, path: str) -> Any:
        """The REST API of the source connector's worker."""
        if path.endswith("/status"):
            return {"connector": {"state": "RUNNING"}, "tasks": [{"state": self.source_state}]}
        collections = [{"incremental_snapshot_collections_id": name} for name in self.tables]
        offset = {"lsn": self.position, "incremental_snapshot_collections": json.dumps(collections)}
        offset["incremental_snapshot_total_rows"] = "40"
        return {"offsets": [{"partition": {"server": "shop"}, "offset": offset}]}

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.polls += 1
        self.steps.get(self.polls, lambda world: None)(self)

    def ends(self, topic: str) -> Mapping[TopicPartition, int]:
        return {TopicPartition(topic, 0): self.end}

    def committed_offsets(self) -> Mapping[TopicPartition, int]:
        return {TopicPartition(TOPIC, 0): self.committed}

    def snapshot(self, *, kafka: bool = False) -> TableSnapshot:
        settings = SignalSettings("shop", topic="signals") if kafka else SignalSettings("shop", "public.signals")
        ids = count()
        return TableSnapshot(
            SnapshotTable(NAME, TOPIC, "orders", "shop"),
            SourceConnector("source", self.get),
            settings,
            self.signals,
            Sink(self),
            self,
            lambda: self.log_end,
            Clock(lambda: self.seconds, self.sleep),
            lambda: new_id(BEGAN + self.seconds, f"{next(ids):08}"),
            self.notices.append,
            self.reports.append,
            180.0,
        )

    def sent(self, type: str) -> list[Signal]:
        return [signal for signal in self.signals.sent if signal.type == type]


class Sink:
    """The tables of the sink connector."""

    def __init__(self, world: World) -> None:
        self._world = world

    def table(self, table: str) -> Mapping[str, Any] | None:
        assert table == "orders"
        return self._world.table

    def restart_table(self, table: str) -> None:
        self._world.restarts += 1
        self._world.table = {"state": "RETRYING"}


def change(**values: Any) -> Callable[[World], None]:
    """A step that sets these fields."""

    def step(world: World) -> None:
        for name, value in values.items():
            setattr(world, name, value)

    return step


def rows(number: int) -> dict[str, Any]:
    """The document of a table that contains this many rows of a load."""
    return {"state": "RUNNING", "load": {"rows": number, "began": "2023-11-14T22:13:20Z"}}


def test_a_snapshot_is_followed_until_it_is_applied() -> None:
    """The request is sent once. The reads end when the offsets do not contain the table any more."""
    world = World(
        {
            1: change(tables=["public.items", NAME]),
            2: change(tables=[NAME], table=rows(10)),
            4: change(tables=[], end=50, committed=30),
            6: change(committed=50),
        }
    )
    snapshot = world.snapshot()
    snapshot.follow()
    assert [signal.data["data-collections"] for signal in world.sent("execute-snapshot")] == [[NAME]]
    assert world.polls == 6
    steps = [report.step for report in world.reports]
    assert steps == ["requested", "source reads public.items first", *["source reads"] * 2, *["sink applies"] * 2]
    assert (world.reports[3].rows, world.reports[3].total, world.reports[3].seconds_left) == (10, 40, 9.0)
    assert world.reports[-1].left == 20
    snapshot.finish()
    assert not snapshot.cancel(), "the request has ended"


def test_a_snapshot_that_no_commit_of_offsets_shows() -> None:
    """The source connector has read beyond the signal, and its offsets never contain the table: it was read between
    two commits of offsets. An earlier position proves nothing."""
    world = World({2: change(position=99), 4: change(position=100)})
    world.snapshot().follow()
    assert world.polls == 4


def test_an_open_request_is_continued() -> None:
    """After an interruption no second request is sent, and a cancelled one is not continued."""
    world = World({1: change(position=100), 3: change(position=200)})
    request = snapshot_request(new_id(BEGAN - 60, "interrupted"), NAME, "shop")
    world.signals.send(request)
    snapshot = world.snapshot()
    snapshot.follow()
    assert world.sent("execute-snapshot") == [request]
    assert world.notices[0] == f"continues the request {request.id}"
    assert snapshot.cancel()
    assert [signal.request for signal in world.sent("stop-snapshot")] == [request.id]
    world.log_end = 200
    world.snapshot().follow()
    assert len(world.sent("execute-snapshot")) == 2


def test_a_request_whose_reads_have_ended_before_this_run() -> None:
    """With a signal topic only the caller can know it: the offsets do not contain the table any more."""
    world = World()
    request = snapshot_request(new_id(BEGAN - 60, "interrupted"), NAME, "shop")
    world.signals.send(request)
    snapshot = world.snapshot(kafka=True)
    snapshot.follow(request.id)
    assert (world.polls, snapshot.request) == (0, request.id)
    with pytest.raises(Retriable, match="has not begun to read"):
        world.snapshot(kafka=True).follow("headrace-1-another")


def test_a_snapshot_of_another_request_is_followed() -> None:
    """Debezium would read the table a second time."""
    world = World({3: change(tables=[])}, tables=[NAME])
    snapshot = world.snapshot()
    snapshot.follow()
    snapshot.finish()
    assert not world.sent("execute-snapshot")
    assert [signal.request for signal in world.sent("log")] == [None], "a mark, and no end of a request"


def test_an_idle_database_gets_marks() -> None:
    """A source connector stores its offsets with events only. Marks come after 10 s without a change."""
    world = World({1: change(tables=[NAME], position=101), 25: change(tables=[])})
    world.snapshot().follow()
    assert len(world.sent("log")) == 3


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_lost_table_is_accepted_after_the_request(is_lost: bool) -> None:
    """A table that was dropped or rolled back is restarted. Another failure needs an operator first."""
    trace = LOST if is_lost else "headrace.core.model.errors.Fatal: the type changed"
    world = World({2: change(position=100)}, table={"state": "FAILED", "last_error": {"trace": f"{trace}\n\tat x"}})
    if is_lost:
        world.snapshot().follow()
    else:
        with pytest.raises(Fatal, match="the type changed; remove the cause"):
            world.snapshot().follow()
    assert world.restarts == is_lost
    assert len(world.sent("execute-snapshot")) == 1


def test_a_source_connector_that_is_down_is_waited_for() -> None:
    """Its downtime does not count as a time without progress."""
    world = World({1: change(source_state="FAILED"), 400: change(source_state="RUNNING"), 401: change(position=100)})
    world.snapshot().follow()
    assert world.reports[300].waits_for == "source connector source is FAILED"


def test_a_signal_that_is_not_received_is_an_error() -> None:
    """The request is ended, so that the next run sends a new one."""
    world = World()
    snapshot = world.snapshot(kafka=True)
    with pytest.raises(Retriable, match="has not begun to read within 180 s"):
        snapshot.follow()
    assert not snapshot.cancel()


def test_reads_without_a_confirmed_end() -> None:
    """With a signal topic, rows that have arrived show the begin, and a time without rows the end."""
    world = World({1: change(table=rows(3)), 30: change(table=rows(40)), 50: change(position=60)})
    world.snapshot(kafka=True).follow()
    assert world.polls == 30 + 70
    assert "has not confirmed the end" in world.notices[-1]


def test_a_sink_that_applies_nothing_is_an_error() -> None:
    """The request stays: the command can be run again."""
    world = World(position=100, committed=3)
    snapshot = world.snapshot()
    with pytest.raises(Retriable, match=r"has applied nothing for 180 s \(7 record"):
        snapshot.follow()
    assert snapshot.cancel()
