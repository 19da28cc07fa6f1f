"""Lane ``bulk``: many updates in one go, beside Flink and the hand-written stream; with the load of ``make bench``.

300,000 events of 100,000 keys for 1,000,000 rows (``workload.py``). Each contestant reads the topic twice to warm up,
and is then measured. Its table must contain exactly the expected rows, and is then read by Spark, DuckDB and PyIceberg.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.contestants import Effort, run_headrace, run_stream
from benchmarks.kafka_to_table import Benchmark
from benchmarks.lake import FLINK, HEADRACE, STREAM, differences
from benchmarks.scale import flink, readers
from benchmarks.workload import Workload
from headrace_dev.stack import Stack

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """A load, the merges of the warm-up, and the records of a trigger of the stream.

    Without ``timed`` the tables are only compared, as that of the stream is in any case.
    """

    contestants: Sequence[str] = (HEADRACE, FLINK, STREAM)
    workload: Workload = field(default_factory=Workload)
    merges: int = 10
    trigger: int = 150_000
    timed: bool = True


FULL = Plan()
QUICK = Plan(workload=Workload(events=6_000, keys=2_000, rows=20_000), merges=1, timed=False)


def run(plan: Plan, stack: Stack, root: Path, properties: Mapping[str, str], say: Say) -> dict[str, Any]:
    """Measure the contestants of a plan. ``wrong_rows`` of the result must be 0."""
    benchmark = Benchmark(stack, root, plan.workload, plan.merges, properties)
    benchmark.prepare(plan.contestants)
    names = {HEADRACE: "Headrace", FLINK: flink.NAME, STREAM: f"hand-written stream, {plan.trigger:,} a trigger"}
    runs: dict[str, Callable[[], Effort]] = {
        HEADRACE: partial(run_headrace, benchmark.course),
        FLINK: partial(flink.run_flink, benchmark.course),
        STREAM: partial(run_stream, benchmark.course, plan.trigger),
    }
    results, wrong_rows = [], 0
    for namespace in plan.contestants:
        reads: dict[str, readers.Times] = {}

        def wrong(namespace: str, expected: Any, reads: dict[str, readers.Times] = reads) -> int:
            times, rows = readers.read(benchmark.lake.warehouse, namespace, timed=plan.timed and namespace != STREAM)
            reads.update(times)
            return differences(rows, expected)

        score = benchmark.measure(names[namespace], namespace, runs[namespace], wrong)
        wrong_rows += score.wrong_rows
        cpu = score.effort.cpu
        result = {
            "contestant": namespace,
            "name": score.name,
            "events": score.events,
            "seconds": round(score.effort.seconds, 2),
            "cpu_s": round(cpu.total, 2),
            "jit_s": round(cpu.compiler, 2),
            "gc_s": round(cpu.collector, 2),
            "events_per_cpu_s": round(score.per_cpu_second),
            "wrong_rows": score.wrong_rows,
            "scan_s": reads,
        }
        results.append(result)
        say(
            f"{score.name}: {score.effort.seconds:.1f} s, CPU {cpu.total:.1f} s (JIT {cpu.compiler:.1f}, GC "
            f"{cpu.collector:.1f}), {score.per_cpu_second:,.0f} events per CPU s, "
            f"{score.wrong_rows} wrong rows; {reads}"
        )
    return {"rows": plan.workload.rows, "results": results, "wrong_rows": wrong_rows}
