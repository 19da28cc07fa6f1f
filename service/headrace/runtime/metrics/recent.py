"""Values of the last minute, for averages, maxima and rates."""

from __future__ import annotations

from dataclasses import dataclass

SECONDS = 60


@dataclass(slots=True)
class _Second:
    at: int = -1
    count: int = 0
    total: float = 0.0
    largest: float = 0.0


class Recent:
    """The values that were added within the last minute, in buckets of a second. Time is an argument, in seconds."""

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = [_Second() for _ in range(SECONDS)]

    def add(self, value: float, now: float) -> None:
        """Add a value."""
        second = self._seconds[int(now) % SECONDS]
        if second.at != int(now):
            second.at, second.count, second.total, second.largest = int(now), 0, 0.0, value
        second.count += 1
        second.total += value
        second.largest = max(second.largest, value)

    def average(self, now: float) -> float:
        """Return the average, NaN without values, as Kafka's metrics do."""
        lately = self._lately(now)
        count = sum(second.count for second in lately)
        return sum(second.total for second in lately) / count if count else float("nan")

    def largest(self, now: float) -> float:
        """Return the largest value, NaN without values."""
        return max((second.largest for second in self._lately(now)), default=float("nan"))

    def rate(self, now: float) -> float:
        """Return the sum per second."""
        return sum(second.total for second in self._lately(now)) / SECONDS

    def _lately(self, now: float) -> list[_Second]:
        return [second for second in self._seconds if int(now) - SECONDS < second.at <= int(now)]
