"""Where the time of a task goes: what its threads did in the last minute, by stage.

Counters of seconds since the start (``headrace_stage_seconds``) need two scrapes for this, and count a stage when it
has ended. Here a stage that is running counts until now, so that a merge which hangs is visible.

Tests: ``tests/unit/runtime/metrics/test_stage_times.py``, ``tests/rest/test_stages.py``.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

SECONDS = 60


class StageTimes:
    """The stages of one task. Any thread may call all methods. ``clock`` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._running: dict[object, tuple[str, float]] = {}
        self._ended: defaultdict[str, dict[int, float]] = defaultdict(dict)
        """By stage: the seconds that threads spent in it within each second of the clock."""

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Measure one stage of one batch or chunk."""
        run = object()
        with self._lock:
            self._running[run] = stage, self._clock()
        try:
            yield
        finally:
            with self._lock:
                _, begin = self._running.pop(run)
                self._add(stage, begin, self._clock())

    def busy(self) -> Mapping[str, float]:
        """Return how many threads were in each stage, on the average of the last minute."""
        with self._lock:
            now = self._clock()
            oldest = now - SECONDS - 1
            sums = {
                stage: sum(spent for second, spent in seconds.items() if second > oldest)
                for stage, seconds in self._ended.items()
            }
            for stage, begin in self._running.values():
                sums[stage] = sums.get(stage, 0.0) + now - max(begin, now - SECONDS)
        return {stage: seconds / SECONDS for stage, seconds in sums.items() if seconds > 0}

    def _add(self, stage: str, begin: float, end: float) -> None:
        seconds = self._ended[stage]
        begin = max(begin, end - SECONDS)
        while begin < end:  # a long stage belongs to several seconds
            second = int(begin)
            until = min(end, second + 1)
            seconds[second] = seconds.get(second, 0.0) + until - begin
            begin = until
        for second in [second for second in seconds if second <= end - SECONDS - 1]:
            del seconds[second]
