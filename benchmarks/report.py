"""The results of the benchmark as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.contestants import Effort

_PARTS = {
    "fetch": "consumer thread: fetch, decompress, records",
    "decode": "JSON to columns",
    "fold": "one action per row",
    "reselect": "open cells",
    "ledger": "tombstones, Python's part",
    "hand-over": "rows to Spark: staging, statement, Parquet file",
    "upkeep": "compaction and expiry, Python's part",
    "settle": "the exact path, only where rows did not apply at once",
    "loop": "worker's event loop: channel, batches, REST, commits",
    "Spark": "the JVM: merge, ledger, upkeep",
    "rest": "interpreter threads that belong to nothing above",
}
_STAGES = {"decode": "decode", "fold": "fold", "reselect": "reselect", "ledger": "ledger", "merge": "hand-over"}
_STAGES |= {"maintain": "upkeep", "settle": "settle"}


@dataclass(frozen=True, slots=True)
class Score:
    """One contestant's result."""

    name: str
    events: int
    effort: Effort
    wrong_rows: int

    @property
    def per_second(self) -> float:
        """Return events a second, from the start of reading until the last row is visible."""
        return self.events / self.effort.seconds

    @property
    def per_cpu_second(self) -> float:
        """Return events a CPU second of all processes."""
        return self.events / self.effort.cpu.total


def table(scores: Sequence[Score]) -> str:
    """Return a table with a line per contestant."""
    lines = [
        f"{'':<34}{'events/s':>10}{'CPU s':>8}{'JIT':>7}{'GC':>6}{'events per CPU s':>18}{'wrong rows':>12}",
    ]
    for score in scores:
        cpu = score.effort.cpu
        lines.append(
            f"{score.name:<34}{score.per_second:>10,.0f}{cpu.total:>8.1f}{cpu.compiler:>7.1f}{cpu.collector:>6.1f}"
            f"{score.per_cpu_second:>18,.0f}{score.wrong_rows:>12,}"
        )
    return "\n".join(lines)


def ratios(headrace: Score, others: Sequence[Score]) -> str:
    """Return how many times as many events a CPU second Headrace applies as the others."""
    return "\n".join(
        f"Headrace does {headrace.per_cpu_second / other.per_cpu_second:.1f} times the events per CPU second "
        f"(and {headrace.per_second / other.per_second:.1f} times the events per second) of {other.name}"
        for other in others
    )


def breakdown(headrace: Score) -> str:
    """Return Headrace's CPU time by part."""
    parts = cpu_by_part(headrace.effort)
    total = headrace.effort.cpu.total
    lines = ["where Headrace's CPU time goes:"]
    for name, meaning in _PARTS.items():
        if name in parts:
            seconds = parts[name]
            micros = 1_000_000 * seconds / headrace.events
            lines.append(
                f"  {name:<10}{seconds:>7.2f} s{100 * seconds / total:>6.0f} %{micros:>7.1f} us an event   {meaning}"
            )
    return "\n".join(lines)


def cpu_by_part(effort: Effort) -> dict[str, float]:
    """Return CPU seconds by part: those of each stage's threads, and the rest of the process."""
    parts = {_STAGES.get(stage, stage): seconds for stage, seconds in effort.stages.items()}
    parts |= {"fetch": effort.cpu.fetch, "loop": effort.cpu.loop}
    parts["rest"] = max(0.0, effort.cpu.python - sum(parts.values()))
    parts["Spark"] = effort.cpu.jvm
    return parts
