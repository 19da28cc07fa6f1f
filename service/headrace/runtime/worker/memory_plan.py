"""How a worker divides its memory: the lakehouse (Spark's JVM, key indexes), Python, changes that are not durable."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MEBIBYTE = 1024 * 1024

PYTHON_BYTES = 512 * MEBIBYTE
"""Interpreter, libraries, catalogs, and what the Kafka clients have fetched ahead."""

LEAST_BYTES = 64 * MEBIBYTE
"""The least for changes: below it batches would be too small to be worth a commit."""

_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes: ``available`` to the worker, ``parts`` of the lakehouse, ``changes`` that are read and not durable.

    A batch that is written takes its size once more while it is folded and handed to Spark, so ``working`` equals
    ``changes``.
    """

    available: int
    parts: Mapping[str, int]
    changes: int

    @property
    def engine(self) -> int:
        """Bytes of the lakehouse: of Spark's JVM and of key indexes."""
        return sum(self.parts.values())

    @property
    def working(self) -> int:
        """Bytes for copies of the changes that are being written."""
        return self.changes

    @property
    def needed(self) -> int:
        return self.engine + PYTHON_BYTES + self.changes + self.working

    def __str__(self) -> str:
        of_spark = ", ".join(f"{name} {_mebibytes(size)}" for name, size in self.parts.items())
        parts = (
            f"lakehouse {_mebibytes(self.engine)} ({of_spark}) + Python {_mebibytes(PYTHON_BYTES)} + "
            f"changes (worker.memory.bytes) {_mebibytes(self.changes)} + "
            f"their copies while they are written {_mebibytes(self.working)}"
        )
        return f"{parts} = {_mebibytes(self.needed)} of {_mebibytes(self.available)}"

    @property
    def fits(self) -> bool:
        return self.needed <= self.available


def memory_plan(changes: int | None, parts: Mapping[str, int], available: int | None = None) -> MemoryPlan:
    """Plan with ``worker.memory.bytes`` if it is set, else with half of what Spark and Python leave.

    ``parts`` are what the lakehouse needs; ``available`` is found out if it is not given.
    """
    available = available_memory() if available is None else available
    if changes is None:
        changes = max(LEAST_BYTES, (available - sum(parts.values()) - PYTHON_BYTES) // 2)
    return MemoryPlan(available, parts, changes)


def engine_memory(changes: int | None) -> int:
    """Return the bytes that Python and ``worker.memory.bytes``, if it is set, leave to Spark and to other changes."""
    return available_memory() - PYTHON_BYTES - 2 * (changes or 0)


def available_memory() -> int:
    """The least of the limits of the process's cgroups (versions 1 and 2), its address space and the machine."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for file in _limit_files(Path("/proc/self/cgroup")):
        try:
            limits.append(int(file.read_text(encoding="ascii")))
        except (OSError, ValueError):  # outside of what the container sees, or "max"
            continue
    address_space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if address_space != resource.RLIM_INFINITY:
        limits.append(address_space)
    return min(limits)


def used_memory(process: int | None = None) -> int:
    """The resident bytes of this process and of those that it has started, such as Spark's JVM; 0 outside of Linux."""
    folder = Path("/proc", "self" if process is None else str(process))
    try:
        pages = int((folder / "statm").read_text(encoding="ascii").split()[1])
        children = [int(number) for file in folder.glob("task/*/children") for number in file.read_text().split()]
    except (OSError, ValueError, IndexError):  # it has just ended
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") + sum(map(used_memory, children))


def _limit_files(own_cgroups: Path) -> Iterator[Path]:
    """The files with the limits of the process's cgroup and of all above it; a container sees its own as the root."""
    try:
        lines = own_cgroups.read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            root = _CGROUPS / controllers
            group = root / path.lstrip("/")
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield folder / ("memory.limit_in_bytes" if controllers else "memory.max")


def _mebibytes(size: int) -> str:
    return f"{size // MEBIBYTE} MiB"
