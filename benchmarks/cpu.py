"""CPU time and memory of a process and its descendants, from /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_QUIET = 0.1  # CPU seconds in a second
_COMPILER = ("C1 CompilerThre", "C2 CompilerThre")
_COLLECTOR = ("GC Thread", "G1 ", "VM Thread")


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU seconds, user and system. ``compiler`` and ``collector`` are parts of ``jvm``, ``loop`` one of ``python``.

    ``loop`` is the main thread of the first Python process: a worker's event loop.
    """

    python: float = 0.0
    jvm: float = 0.0
    compiler: float = 0.0
    collector: float = 0.0
    loop: float = 0.0
    fetch: float = 0.0

    @property
    def total(self) -> float:
        """Return the sum of user and system time."""
        return self.python + self.jvm

    def __add__(self, other: Cpu) -> Cpu:
        return Cpu(*(getattr(self, name) + getattr(other, name) for name in Cpu.__slots__))

    def since(self, before: Cpu) -> Cpu:
        """Return the CPU time that was used after ``before``."""
        return Cpu(*(getattr(self, name) - getattr(before, name) for name in Cpu.__slots__))


def cpu_of(pid: int) -> Cpu:
    """Return the CPU time that the process ``pid`` and its descendants have used, those included that have ended.

    An ended process counts where its parent does: a program that a JVM has run is a part of ``jvm``.
    """
    python = jvm = compiler = collector = 0.0
    for process in processes_of(pid):
        if _name(process) == "java":
            jvm += _seconds(process) + _seconds_of_ended(process)
            compiler += _threads(process, *_COMPILER)
            collector += _threads(process, *_COLLECTOR)
        else:
            python += _seconds(process) + _seconds_of_ended(process)
    root = Path(f"/proc/{pid}")
    return Cpu(python, jvm, compiler, collector, _seconds(root / "task" / str(pid)), _threads(root, "headrace-kafka"))


def machine_seconds() -> float:
    """Return the CPU time that all processes of the machine have used."""
    with Path("/proc/stat").open() as lines:
        user, nice, system, _, _, irq, softirq = map(int, lines.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / _TICKS


def peaks_of(pid: int) -> list[tuple[str, int]]:
    """Return the name of each of these processes, and the most memory that it had so far (VmHWM), in MiB."""
    return [(_name(process), _peak(process) >> 10) for process in processes_of(pid)]


def wait_until_quiet(pid: int, seconds: float) -> None:
    """Wait at most ``seconds`` until the process and its descendants are idle: the JIT compilers have finished."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = cpu_of(pid)
        time.sleep(1)
        if cpu_of(pid).since(before).total < _QUIET:
            return


def processes_of(pid: int) -> Iterator[Path]:
    """Yield the process and its descendants that run now."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _fields(entry)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [pid]
    while waiting:
        found = waiting.pop()
        yield Path(f"/proc/{found}")
        waiting += children.get(found, ())


def _threads(process: Path, *names: str) -> float:
    """Return CPU seconds of the running threads whose names begin with one of ``names``."""
    tasks = process.joinpath("task").iterdir() if process.exists() else ()
    return sum(_seconds(task) for task in tasks if _name(task).startswith(names))


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:
        return ""


def _seconds(task: Path) -> float:
    fields = _fields(task)
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _seconds_of_ended(process: Path) -> float:
    """Return CPU seconds of the children that have ended, and of their descendants (proc(5): cutime and cstime)."""
    fields = _fields(process)
    return (int(fields[13]) + int(fields[14])) / _TICKS if fields else 0.0


def _peak(process: Path) -> int:
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0)


def _fields(task: Path) -> list[str]:
    """Return ``stat`` from the state on (proc(5)): [1] parent, [11] user, [12] system time; empty after its end."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
