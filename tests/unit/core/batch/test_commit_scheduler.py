"""Which table is committed next, and when, on a virtual clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count, pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.batch.commit_scheduler import CommitPace, CommitRequest, CommitScheduler

LINGER = 1.0


@dataclass
class Table:
    """A table with a change every ``interval`` seconds; a commit of it needs ``work`` seconds of a core."""

    interval: float
    work: float = 0.05
    target: float = 10.0
    connector: str = "shop"
    first: float = 0.0
    until: float = 1e9
    commits_per_hour: float = 0.0
    fills_at: float = 1e9
    """Changes that make a full batch."""
    commits: list[tuple[float, float, int]] = field(default_factory=list)
    """Begin, end and changes of each commit."""
    ages: list[float] = field(default_factory=list)
    """Of the oldest change of each commit when it ends."""


@dataclass
class _Lane:
    """The state of a table in the simulation."""

    table: Table
    request: CommitRequest
    waiting: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    began: float = 0.0
    left: float = 0.0


class Worker:
    """Simulates the lanes of a worker: ``cores`` are shared by the commits that run, on ``threads``."""

    def __init__(self, tables: Mapping[str, Table], threads: int = 8, cores: float = 2.0) -> None:
        self.scheduler = CommitScheduler(threads, cores)
        self._cores = cores
        self._lanes = [
            _Lane(table, CommitRequest(table.connector, table.target, CommitPace())) for table in tables.values()
        ]
        for connector in {table.connector for table in tables.values()}:
            self.scheduler.join(connector)
        self._by_request = {lane.request: lane for lane in self._lanes}
        self._running: list[_Lane] = []
        self.work = 0.0

    def run(self, seconds: float) -> None:
        """Run from time 0."""
        now, wakes_at, ties = 0.0, 0.0, count()
        arrivals = [(lane.table.first, next(ties), lane) for lane in self._lanes]
        heapq.heapify(arrivals)
        while now < seconds:
            changed = now >= wakes_at
            while arrivals and arrivals[0][0] <= now:
                at, _, lane = heapq.heappop(arrivals)
                lane.waiting.append(at)
                changed |= self._ask(lane)
                if at + lane.table.interval <= lane.table.until:
                    heapq.heappush(arrivals, (at + lane.table.interval, next(ties), lane))
            for lane in [lane for lane in self._running if lane.left <= 1e-9]:
                self._end(lane, now)
                changed = True
            if changed:
                while (request := self.scheduler.start(now)) is not None:
                    self._start(self._by_request[request], now)
                wakes_at = self.scheduler.wakes_at
            speed = min(1.0, self._cores / max(1, len(self._running)))
            events = [seconds, wakes_at, *(now + lane.left / speed for lane in self._running)]
            if arrivals:
                events.append(arrivals[0][0])
            after = max(min(events), now)
            for lane in self._running:
                lane.left -= speed * (after - now)
            self.work += speed * (after - now) * len(self._running)
            now = after

    def _ask(self, lane: _Lane) -> bool:
        if lane.writes or not lane.waiting:
            return False
        table, oldest = lane.table, lane.waiting[0]
        full = len(lane.waiting) >= table.fills_at
        due = oldest if full else oldest + LINGER
        if table.commits_per_hour:
            due = max(due, lane.request.pace.began + 3600 / table.commits_per_hour)
        return self.scheduler.ask(lane.request, due, oldest, urgent=full)

    def _start(self, lane: _Lane, now: float) -> None:
        lane.writes, lane.waiting = lane.waiting, []
        lane.began = lane.request.pace.began = now
        lane.left = lane.table.work
        self._running.append(lane)

    def _end(self, lane: _Lane, now: float) -> None:
        writes, lane.writes = lane.writes, []
        self._running.remove(lane)
        lane.table.commits.append((lane.began, now, len(writes)))
        lane.table.ages.append(now - writes[0])
        self.scheduler.end(lane.request, now, len(writes))
        self._ask(lane)


def many(number: int, interval: float, make: Callable[..., Table] = Table, **options: float) -> dict[str, Table]:
    """Return tables whose first changes are spread over an interval."""
    return {f"t{each}": make(interval, first=interval * each / number, **options) for each in range(number)}


def late(tables: Mapping[str, Table], after: float = 0.0) -> list[float]:
    """Return the shares of their targets that commits after a time have used, sorted."""
    return sorted(
        age / table.target
        for table in tables.values()
        for age, (_, end, _) in zip(table.ages, table.commits, strict=True)
        if end >= after
    )


def test_a_single_table_is_committed_after_the_linger() -> None:
    """With spare capacity a change waits for no more than the linger, whatever the target is."""
    tables = {"t": Table(5.0, work=0.5, target=600.0)}
    Worker(tables).run(100)
    assert len(tables["t"].commits) == 20
    assert max(tables["t"].ages) <= LINGER + 0.5 + 0.01


def test_an_idle_table_is_not_committed() -> None:
    """A table without changes has no commits."""
    tables = {"busy": Table(0.1), "idle": Table(1.0, until=1.0)}
    Worker(tables).run(100)
    assert len(tables["idle"].commits) <= 2
    assert len(tables["busy"].commits) > 50


def test_a_few_tables_have_what_they_have_alone() -> None:
    """Commits that need less than the spare share of the worker begin after the linger."""
    tables = many(8, 0.2, work=0.1)  # 0.8 of 2 cores, if each is committed once a second
    worker = Worker(tables)
    worker.run(120)
    assert late(tables, 20)[-1] * 10 < 1.5


def test_tables_that_are_filled_again_leave_the_others_fresh() -> None:
    """Their commits alone exceed the spare capacity of the worker; the others are nearly as early as without them."""
    others = many(4, 0.2)
    Worker({f"filled {number}": Table(0.001, work=2.5) for number in range(2)} | others).run(120)
    assert late(others, 20)[-1] * 10 < 1.5


def test_many_tables_get_larger_batches_and_keep_the_target() -> None:
    """200 tables with two changes a second each stay within the target, and use a half of two cores."""
    tables = many(200, 0.5, work=0.04)
    worker = Worker(tables)
    worker.run(300)
    shares = late(tables, 60)
    assert shares[-1] <= 0.8
    assert worker.work / 300 < 1.3
    sizes = [size for table in tables.values() for begin, _, size in table.commits if begin > 60]
    assert sum(sizes) / len(sizes) > 10


def test_the_capacity_that_is_used_follows_the_target() -> None:
    """Tables that may be staler take less of the worker, once spare capacity does not suffice for the linger."""
    work = {}
    for target in (10.0, 60.0):
        worker = Worker(many(300, 0.5, work=0.06, target=target))
        worker.run(100)
        work[target] = worker.work / 100
    assert work[60.0] < 1.3 < 1.9 < work[10.0]


def test_changes_that_come_at_once_are_in_time() -> None:
    """The commits that wait count: they begin before the oldest change alone would require it."""
    tables = {f"t{each}": Table(20.0, work=0.06) for each in range(200)}  # 6 s of two cores, all at the same moment
    Worker(tables).run(200)
    assert late(tables, 25)[-1] <= 1.0


def test_a_hot_table_does_not_delay_the_others() -> None:
    """A table with a thousand times the changes has larger batches, not more commits than its share."""
    tables = {"hot": Table(0.002, work=0.1), **many(20, 2.0, work=0.05)}
    Worker(tables).run(60)
    assert late(tables, 10)[-1] <= 0.4
    assert sum(size for _, _, size in tables["hot"].commits) / len(tables["hot"].commits) > 200


def test_overload_is_shared() -> None:
    """If commits need twice what the worker has, each table exceeds its target by the same share, and none starves."""
    tables = many(60, 0.5, work=0.4) | {f"s{number}": Table(0.5, work=0.4, target=30.0) for number in range(60)}
    worker = Worker(tables)  # 60 / 10 s + 60 / 30 s = 8 commits a second of 0.4 s: 3.2 cores
    worker.run(600)
    used = [late({"t": table}, 300) for table in tables.values()]
    assert all(used), "a table was not committed any more"
    worst = sorted(shares[-1] for shares in used)
    assert worst[0] > 1.0
    assert worst[-1] / worst[0] < 1.5
    assert worker.work / 600 > 1.95, "threads are idle"


def test_after_overload_tables_are_in_time_again() -> None:
    """When the changes of most tables end, the others are in time within a minute."""
    tables = many(300, 0.5, work=0.1, until=100.0) | {"stays": Table(0.5, work=0.1)}
    Worker(tables).run(300)
    assert late(tables)[-1] > 1.0
    assert late({"stays": tables["stays"]}, 160)[-1] <= 0.2


def test_a_table_with_long_commits_does_not_keep_the_threads() -> None:
    """Tables whose commits alone exceed the target leave threads to the others, which stay within theirs."""
    tables = {f"slow{number}": Table(0.5, work=10.0) for number in range(2)} | many(20, 1.0, work=0.05)
    Worker(tables, threads=4, cores=4).run(300)
    assert late({name: table for name, table in tables.items() if name.startswith("t")}, 30)[-1] < 1.0


def test_the_shortest_target_is_served_first() -> None:
    """Of two tables that have waited equally long, the one with the shorter target is first."""
    scheduler = CommitScheduler(1, 1)
    relaxed, strict = CommitRequest("a", 60.0), CommitRequest("a", 5.0)
    scheduler.ask(relaxed, 1.0, 0.0)
    scheduler.ask(strict, 1.0, 0.0)
    assert scheduler.start(0.9) is None
    assert scheduler.start(1.0) is strict
    assert scheduler.start(1.0) is None, "there is one thread"
    scheduler.end(strict, 2.0, 1)
    assert scheduler.start(2.0) is relaxed


def test_commits_per_hour_bound_a_table() -> None:
    """A bounded table has at most that number of commits in any hour, at equal intervals, and loses no change."""
    tables = {"bounded": Table(1.0, commits_per_hour=60, fills_at=10), "free": Table(1.0)}
    Worker(tables).run(7200)
    begins = [begin for begin, _, _ in tables["bounded"].commits]
    assert len(begins) >= 118
    assert min(after - before for before, after in pairwise(begins)) >= 60
    assert sum(size for _, _, size in tables["bounded"].commits) >= 7130
    assert len(tables["free"].commits) > 3000


def test_a_full_batch_is_written_at_once() -> None:
    """A batch that cannot become larger waits neither for the linger nor for spare capacity."""
    tables = {"full": Table(0.001, work=0.3, target=600.0, fills_at=100)} | many(300, 1.0, work=0.05, target=600.0)
    Worker(tables).run(60)
    assert len(tables["full"].commits) > 90


def test_a_connector_leaves_a_thread_to_others() -> None:
    """Of two connectors none holds all threads; the only one may."""
    scheduler = CommitScheduler(2, 2)
    scheduler.join("a")
    first, second, other = (CommitRequest(name, 10.0) for name in ("a", "a", "b"))
    scheduler.join("b")
    for request in (first, second):
        scheduler.ask(request, 0.0, 0.0, urgent=True)
    assert scheduler.start(1.0) is first
    assert scheduler.start(1.0) is None
    assert scheduler.wakes_at == inf, "only an event can change that"
    scheduler.ask(other, 0.0, 0.9)
    assert scheduler.start(1.0) is other
    scheduler.end(other, 2.0, 1)
    scheduler.leave("b")
    assert scheduler.start(2.0) is second


def test_commits_leave_cores_to_decoding() -> None:
    """While decoding lacks cores, one commit more than cores runs; while it has them, or has not run, all threads."""
    scheduler = CommitScheduler(threads=8, cores=2)
    for _ in range(40):
        scheduler.ask(CommitRequest("a", 10.0), 0.0, 0.0, urgent=True)

    def begun(now: float) -> list[CommitRequest]:
        return list(iter(lambda: scheduler.start(now), None))

    def observe(share: float, times: int, now: float) -> None:
        for _ in range(times):
            scheduler.observe_decoding(0.25, 0.25 * share, now)

    observe(0.3, 10, 1.0)
    running = begun(1.0)
    assert len(running) == 3
    assert scheduler.wakes_at == 6.0, "the others wait for a commit, or until the observation is too old"
    observe(0.6, 10, 2.0)
    assert not begun(2.0), "enough is not plenty"
    observe(0.9, 2, 3.0)
    running += begun(3.0)
    assert len(running) == 5
    scheduler.end(running.pop(), 4.0, 1)
    assert len(begun(4.0)) == 1
    assert len(begun(8.1)) == 3, "nothing was decoded for five seconds"


def test_a_withdrawn_request_gets_no_thread() -> None:
    """A lane that stops waits no more, and may be withdrawn twice."""
    scheduler = CommitScheduler(1, 1)
    request = CommitRequest("a", 10.0)
    scheduler.ask(request, 0.0, 0.0)
    scheduler.withdraw(request)
    scheduler.withdraw(request)
    assert scheduler.start(1.0) is None
    assert scheduler.wakes_at == inf


@given(
    st.lists(
        st.builds(
            Table,
            st.floats(0.05, 5),
            st.floats(0.01, 3),
            st.floats(1, 60),
            st.sampled_from(["a", "b"]),
            st.floats(0, 10),
            st.just(30.0),
            st.sampled_from([0, 0, 600]),
            st.sampled_from([5, 1e9]),
        ),
        min_size=1,
        max_size=12,
    ),
    st.integers(2, 8),
    st.floats(0.5, 8),
)
def test_no_change_is_left(tables: list[Table], threads: int, cores: float) -> None:
    """Each change of any tables is committed: no table waits for an event that never comes."""
    named = {str(number): table for number, table in enumerate(tables)}
    Worker(named, threads, cores).run(30 + 200)
    for table in tables:
        changes = sum(size for _, _, size in table.commits)
        assert changes == len([at for at in _arrivals(table) if at <= table.until or at == table.first])


def _arrivals(table: Table) -> Iterator[float]:
    at = table.first
    while at <= table.until or at == table.first:
        yield at
        at += table.interval


def test_the_rate_is_that_of_the_last_minute() -> None:
    """Events that were written more than a minute ago do not count, nor does the time in which nothing was written."""
    scheduler = CommitScheduler(1, 1)
    request = CommitRequest("a", 10.0)
    for now in (0.0, 70.0, 100.0):
        scheduler.ask(request, now, now)
        assert scheduler.start(now) is request
        scheduler.end(request, now + 1, 600)
    assert scheduler.events_per_second(110.0) == pytest.approx(600.0)
    assert scheduler.events_per_second(500.0) == 0.0


def test_first_commits_of_tables_say_nothing_of_the_rate() -> None:
    """Each takes a second for one event. Neither their events nor the time in which they alone run count."""
    scheduler = CommitScheduler(1, 1)
    requests = [CommitRequest("a", 10.0) for _ in range(20)]
    for now, request in enumerate(requests):
        scheduler.ask(request, now, now)
        assert scheduler.start(now) is request
        scheduler.end(request, now + 1, 1)
    assert scheduler.events_per_second(20.0) == 0.0
    scheduler.ask(requests[0], 20.0, 20.0)
    assert scheduler.start(20.0) is requests[0]
    scheduler.end(requests[0], 21.0, 600)
    assert scheduler.events_per_second(25.0) == pytest.approx(600.0)
