"""Decides which table of a worker is committed next, and when.

Each table has a freshness target: the time from the commit of a change at its source until its row is visible. A commit
has a fixed cost, so a table that waits longer writes more changes at the same cost. From this follow three rules:

1. **Order.** A free writing thread goes to the table that would have used the largest share of its target at the end of
   its commit. Under overload the tables therefore exceed their targets by equal shares, and none starves.
2. **Spare capacity.** A table is committed as soon as its changes are due (``batch.linger.ms``) while such commits take
   no more than ``SPARE_SHARE`` of the worker. A few tables are fresh at once, and many tables get larger batches.
   Of that each table may use an equal part in any case: a table that is filled again does not make the others wait.
3. **Risk.** If the commits that wait would take one of the tables beyond ``SAFE_SHARE`` of its target, all threads
   write, whatever it costs.
4. **Contention.** More commits than cores help while they wait for a storage. Where they need cores, or Python's lock,
   they take them from decoding, and unread changes become old. Decoding waits for nothing else but the catalog. If it
   has had a core for less than ``CONTENDED_SHARE`` of its time, fewer commits run at the same time, at least one more
   than cores.

The costs are those of each table's last commits. Commits that run at the same time share the cores of the worker:
each of k commits on n cores does n / k seconds of work in a second, at most one.

All times are monotonic seconds and arguments. Tests: ``tests/unit/core/batch/test_commit_scheduler.py``.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

SPARE_SHARE = 0.6
"""Share of the worker that commits may take before a target is at risk."""

SPARE_SECONDS = 2.0
"""Seconds for which spare capacity that nobody has used can be used later."""

SAFE_SHARE = 0.7
"""Share of its target that a table may have used at the end of its commit. The rest is for wrong estimates."""

CONTENDED_SHARE, FREE_SHARE = 0.5, 0.8
"""Share of its time in which decoding has a core: below the first, fewer commits run, above the second, more."""

_SAMPLE_SECONDS = 0.2  # of decoding, until its share counts
_VALID_SECONDS = 5.0  # after the newest sample: commits take nothing from decoding that does not run

RATE_SECONDS = 60.0
"""Seconds over which the written events are counted. Time in which no commit ran is not: nothing was to be written."""

_FIRST_SECONDS = 1.0  # the estimate for a table that has not been committed
_NEWEST_WEIGHT = 0.5
_SHORTEST_WAIT = 0.01
_CHECK_SECONDS = 0.1


@dataclass(slots=True)
class CommitPace:
    """What the commits of a table have taken lately, smoothed, and when the last one began.

    ``seconds`` is the time of a writing thread, ``work`` the part of it in which the commit had a core. It outlives the
    requests of the table.
    """

    seconds: float = _FIRST_SECONDS
    work: float = _FIRST_SECONDS
    began: float = -inf
    is_measured: bool = False

    def measure(self, seconds: float, work: float) -> None:
        weight = _NEWEST_WEIGHT if self.is_measured else 1.0
        self.seconds += weight * (seconds - self.seconds)
        self.work += weight * (work - self.work)
        self.is_measured = True


@dataclass(slots=True, eq=False)
class CommitRequest:
    """A table that may wait for a writing thread.

    ``due`` is when its changes may be committed at the earliest, ``since`` from when on its target counts. ``urgent``:
    waiting gains nothing, because the batch cannot become larger.
    """

    connector: str
    target: float
    pace: CommitPace = field(default_factory=CommitPace)
    due: float = 0.0
    since: float = 0.0
    urgent: bool = False
    _shifted: float = 0.0  # ``since``, minus what counts of the duration of a commit

    def ask(self, due: float, since: float, *, urgent: bool) -> None:
        """Set what the table waits for."""
        self.due, self.since, self.urgent = due, since, urgent
        # A table whose commits alone exceed its target must not outrank the others with each of its changes.
        self._shifted = since - min(self.pace.seconds, self.target / 2)

    def share(self, now: float) -> float:
        """Return the share of its target that the table has used at the end of a commit that begins now."""
        share = (now - self._shifted) / self.target
        return max(share, SAFE_SHARE) if self.urgent else share

    def slack(self, now: float) -> float:
        """Return for how many seconds the table can wait until that share is ``SAFE_SHARE``."""
        return SAFE_SHARE * self.target - (now - self._shifted)


@dataclass(slots=True)
class _Commit:
    began: float
    work: float  # of the scheduler's clocks at its start
    busy: float
    charged: float
    is_first: bool  # of its table: it creates the table, or reads its keys


class CommitScheduler:
    """Assigns the writing threads of one worker: ``threads`` of them, on ``cores``."""

    def __init__(self, threads: int, cores: float) -> None:
        self._threads = threads
        self._cores = min(cores, threads)
        self._fewest = min(threads, ceil(cores) + 1)
        self._limit, self._limited_until = threads, -inf
        self._decoding = self._decoding_cpu = 0.0
        self._tasks: Counter[str] = Counter()
        self._waiting: dict[CommitRequest, None] = {}
        self._running: dict[CommitRequest, _Commit] = {}
        self.wakes_at = inf
        """When ``start``, which has returned None, should be called again (inf: when something else has happened)."""
        self._now = -inf
        self._checked_at, self._risk_at = -inf, inf
        self._work = 0.0  # seconds of work that each running commit has done since the scheduler began
        self._spare = self._most_spare
        self._busy = 0.0  # seconds in which any commit ran that is not the first of its table
        self._written: deque[tuple[float, int, float]] = deque()  # end, events, and the busy clock at the begin
        self._written_events = 0

    @property
    def _refill(self) -> float:
        """Spare seconds of work that become available in a second."""
        return SPARE_SHARE * self._cores

    @property
    def _most_spare(self) -> float:
        return SPARE_SECONDS * self._refill

    def join(self, connector: str) -> None:
        """Register a task of a connector. With two connectors, each leaves one thread to the other."""
        self._tasks[connector] += 1

    def leave(self, connector: str) -> None:
        self._tasks -= Counter({connector: 1})

    # -- requests ------------------------------------------------------------------------------------------------------

    def ask(self, request: CommitRequest, due: float, since: float, *, urgent: bool = False) -> bool:
        """Let a table wait for a thread, or update its request. Return whether that changes anything."""
        before = (request.due, request.since, request.urgent) if request in self._waiting else None
        changes = (
            before is None or abs(before[0] - due) + abs(before[1] - since) > _SHORTEST_WAIT or before[2] is not urgent
        )
        request.ask(due, since, urgent=urgent)
        self._waiting[request] = None
        return changes

    def withdraw(self, request: CommitRequest) -> None:
        """Remove a request that waits. Idempotent."""
        self._waiting.pop(request, None)

    def start(self, now: float) -> CommitRequest | None:
        """Give a thread to the next table and return its request, or None while no table should be committed.

        After None, ``wakes_at`` is when a call may succeed although nothing else happens.
        """
        self._advance(now)
        allowed = self._allowed()
        due = [request for request in allowed if request.due <= now]
        if not due:
            self.wakes_at = min((request.due for request in allowed), default=inf)
            if self._waiting and not allowed and now < self._limited_until:
                self.wakes_at = self._limited_until
            return None
        first = max(due, key=lambda request: request.share(now))
        if self._spare <= 0 and not first.urgent and not self._is_at_risk(due, now):
            part = self._refill / (len(self._waiting) + len(self._running))  # of each table, since its last commit
            due = [request for request in due if request.pace.work <= (now - request.pace.began) * part]
        if not due:
            refilled = now - self._spare / self._refill
            self.wakes_at = max(min(refilled, self._risk_at, now + _CHECK_SECONDS), now + _SHORTEST_WAIT)
            return None
        request = max(due, key=lambda request: request.share(now))
        del self._waiting[request]
        self._running[request] = _Commit(
            now, self._work, self._busy, request.pace.work, is_first=not request.pace.is_measured
        )
        self._spare -= request.pace.work
        return request

    def end(self, request: CommitRequest, now: float, events: int | None = None) -> None:
        """Release the thread of a table. ``events`` is how many its commit has written, None without a commit."""
        self._advance(now)
        commit = self._running.pop(request)
        work = self._work - commit.work
        self._spare = max(self._spare - (work - commit.charged), -self._most_spare)
        if events is not None:
            request.pace.measure(now - commit.began, work)
            if not commit.is_first:
                self._written.append((now, events, commit.busy))
                self._written_events += events

    def observe_decoding(self, seconds: float, cpu_seconds: float, now: float) -> None:
        """Adjust how many commits may run at the same time; of ``seconds``, decoding had a core for ``cpu_seconds``."""
        self._decoding += seconds
        self._decoding_cpu += cpu_seconds
        if self._decoding < _SAMPLE_SECONDS:
            return
        share = self._decoding_cpu / self._decoding
        self._decoding = self._decoding_cpu = 0.0
        if now >= self._limited_until:
            self._limit = self._threads
        if share < CONTENDED_SHARE:
            self._limit = max(self._limit - 1, self._fewest)
        elif share > FREE_SHARE:
            self._limit = min(self._limit + 1, self._threads)
        self._limited_until = now + _VALID_SECONDS

    def events_per_second(self, now: float) -> float:
        """Return how many events the commits of the last minute have written per second in which any of them ran.

        Without the first commits of tables, which take long for any number of events; 0 if there were no others.
        """
        self._advance(now)
        while self._written and self._written[0][0] <= now - RATE_SECONDS:
            self._written_events -= self._written.popleft()[1]
        busy = self._busy - self._written[0][2] if self._written else 0.0
        return self._written_events / busy if busy > 0 else 0.0

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _advance(self, now: float) -> None:
        elapsed = max(now - self._now, 0.0) if self._now > -inf else 0.0
        self._now = max(now, self._now)
        self._spare = min(self._spare + elapsed * self._refill, self._most_spare)
        if not all(commit.is_first for commit in self._running.values()):
            self._busy += elapsed
        self._work += elapsed * min(1.0, self._cores / max(1, len(self._running)))

    def _allowed(self) -> list[CommitRequest]:
        """Return the requests that may get a thread: a connector leaves one to the others."""
        threads = self._limit if self._now < self._limited_until else self._threads
        if len(self._running) >= threads:
            return []
        if len(self._tasks) <= 1 or not self._running:
            return list(self._waiting)
        held = Counter(request.connector for request in self._running)
        most = max(1, threads - 1)
        return [request for request in self._waiting if held[request.connector] < most]

    def _is_at_risk(self, due: Sequence[CommitRequest], now: float) -> bool:
        """Return whether a table would exceed its safe share if all waited longer and were committed in their order.

        It is computed anew after ``_CHECK_SECONDS``, so that a thousand tables that wait take little of the event loop.
        """
        if now >= self._checked_at + _CHECK_SECONDS:
            slack, ahead = inf, 0.0
            for request in sorted(due, key=lambda request: request.share(now), reverse=True):
                slack = min(slack, request.slack(now) - ahead)
                ahead += request.pace.work / self._cores
            self._checked_at, self._risk_at = now, now + slack
        return now >= self._risk_at
