"""Which data files of a table are worth rewriting: by the share of deleted rows, by size, and within a budget. Pure.

Each commit adds a small file, and marks rows of older files as deleted. Readers pay for each file and for each deleted
row; a rewrite pays for each byte that it writes. Files of similar size form a tier, and ``FAN_OUT`` files of a tier
become one file of the next, together with all smaller ones: a row is rewritten once per tier and not once per
compaction. A large file is rewritten only if enough of its rows are deleted.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

FAN_OUT = 8
"""Files of a tier until they are combined; each tier's files are up to this many times larger than the last tier's."""

WORN = 0.3
"""Share of deleted rows at which a file of any size is rewritten: 2.3 bytes are written for each byte it saves."""

TARGET_SIZE = 512 * 2**20
"""Bytes of a combined file, Iceberg's default."""

_SMALLEST_TIER = 64 * 2**10
_FULL = 0.75
"""Share of the target size from which a file is never combined with others."""

_OPEN_COST = 4 * 2**20
"""Bytes whose reading takes as long as opening a file, by Iceberg's ``read.split.open-file-cost``."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file. Only files of one ``partition`` (any text) can be combined. ``size`` is in bytes."""

    path: str
    partition: str
    size: int
    rows: int
    deleted: int

    @property
    def live_size(self) -> int:
        """Bytes that a rewrite of the file writes."""
        return self.size * (self.rows - self.deleted) // self.rows if self.rows else 0

    @property
    def is_worn(self) -> bool:
        return self.deleted > 0 and self.deleted >= WORN * self.rows

    @property
    def tier(self) -> int:
        return max(0, 1 + math.floor(math.log(max(1, self.live_size) / _SMALLEST_TIER, FAN_OUT)))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Files that become one file, or none if all of their rows are deleted."""

    files: tuple[DataFile, ...]

    @property
    def cost(self) -> int:
        return sum(file.live_size for file in self.files)

    @property
    def benefit(self) -> float:
        """What readers save per written byte: opened files and bytes of deleted rows."""
        opened = len(self.files) - (self.cost > 0)
        deleted = sum(file.size - file.live_size for file in self.files)
        return (opened * _OPEN_COST + deleted) / max(1, self.cost)


def plan(files: Sequence[DataFile], budget: float, target_size: int = TARGET_SIZE) -> list[Rewrite]:
    """Return the rewrites to do, the most useful first. Together they write at most ``budget`` bytes."""
    partitions: dict[str, list[DataFile]] = defaultdict(list)
    for file in files:
        partitions[file.partition].append(file)
    rewrites = [rewrite for files in partitions.values() for rewrite in _rewrites(files, target_size)]
    affordable = []
    for rewrite in sorted(rewrites, key=lambda rewrite: rewrite.benefit, reverse=True):
        if rewrite.cost <= budget:
            affordable.append(rewrite)
            budget -= rewrite.cost
    return affordable


def _rewrites(files: Sequence[DataFile], target_size: int) -> Iterator[Rewrite]:
    """Yield rewrites of a partition's worn files, and of those of the highest full tier and of the tiers below it."""
    worn = [file for file in files if file.is_worn]
    small = [file for file in files if not file.is_worn and file.live_size < _FULL * target_size]
    tiers = [0] * (1 + max((file.tier for file in small), default=0))
    for file in small:
        tiers[file.tier] += 1
    full = -1
    for tier, count in enumerate(tiers):
        if count + (full == tier - 1 and full >= 0) >= FAN_OUT:  # the combined file of the tier below joins it
            full = tier
    chosen = (*worn, *(file for file in small if file.tier <= full))

    # Fill files of the target size, the smallest first. A single file is rewritten only if it is worn.
    waiting: list[DataFile] = []
    for file in sorted(chosen, key=lambda file: (file.live_size, file.path)):
        if waiting and sum(other.live_size for other in waiting) + file.live_size > target_size:
            yield Rewrite(tuple(waiting))
            waiting = []
        waiting.append(file)
    if len(waiting) > 1 or any(file.is_worn for file in waiting):
        yield Rewrite(tuple(waiting))


RATIO = 3
"""Bytes that upkeep may write for each byte that merges have written: together four times the merges alone."""

_HOUR = 3600.0


class HourlyBytes:
    """An allowance that fills evenly to ``per_hour`` bytes; 0 is no limit. Thread-safe.

    A full allowance also pays for more than ``per_hour`` at once, so that no file is too large to be rewritten.
    """

    def __init__(self, per_hour: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_hour = per_hour
        self._clock = clock
        self._lock = threading.Lock()
        self._left = float(per_hour)
        self._since = clock()

    @property
    def available(self) -> float:
        """Bytes that may be written now."""
        with self._lock:
            left = self._refill()
            return math.inf if not self._per_hour or left >= self._per_hour else left

    def spend(self, written: int) -> None:
        """Take written bytes out of the allowance, which may become negative."""
        with self._lock:
            self._left = self._refill() - written

    def _refill(self) -> float:
        now = self._clock()
        self._left = min(float(self._per_hour), self._left + (now - self._since) * self._per_hour / _HOUR)
        self._since = now
        return self._left


class WriteBudget:
    """The budget of one table: ``RATIO`` times what its merges write, within its own and the worker's allowance.

    One thread may ``earn`` while another one uses the rest.
    """

    def __init__(self, table: HourlyBytes, worker: HourlyBytes) -> None:
        self._hourly = (table, worker)
        self._earned = 0.0
        self._spent = 0

    def earn(self, merged: int | None) -> None:
        """Register the bytes of a merge. None if the format does not report them: then only the allowances count."""
        self._earned = math.inf if merged is None else self._earned + RATIO * merged

    @property
    def available(self) -> float:
        return max(0.0, min(self._earned - self._spent, *(allowance.available for allowance in self._hourly)))

    def spend(self, written: int) -> None:
        self._spent += written
        for allowance in self._hourly:
            allowance.spend(written)
