"""Clocks that a test sets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Clock:
    """A clock that changes only when a test sets ``now``; in the unit of what it is given to."""

    now: float = 0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True)
class Clocks:
    """A monotonic clock, and a wall clock that is 1,000 s ahead of it."""

    seconds: float = 100.0

    def monotonic(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return 1_000.0 + self.seconds
