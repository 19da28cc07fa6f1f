"""Lane ``sizes``: whether a commit without a Spark job costs more in a larger table.

The tables of lane ``commit``, of 100,000 and 5,000,000 rows, in one process. They take turns in blocks of commits, so
that each block has a neighbour of the same minute: the speed of a shared machine may double within a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.lake import SPARK
from benchmarks.scale.commits import DIRECT, INDEX_BYTES, Say, Side, Table, describe, take_turns
from headrace.config.engine import EngineSettings
from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve


@dataclass(frozen=True, slots=True)
class Plan:
    """The rows of the tables, and for each size of their commits ``rounds`` blocks after ``warm_up`` commits."""

    rows: Sequence[int] = (100_000, 5_000_000)
    batches: Sequence[int] = (100, 15_000)
    history: int = 100
    rounds: int = 5
    warm_up: int = 8
    pause: float = 5.0


FULL = Plan()
QUICK = Plan(rows=(20_000, 40_000), batches=(100,), history=4, rounds=1, warm_up=1, pause=0)


def run(plan: Plan, root: Path, say: Say) -> dict[str, Any]:
    """Measure the tables of a plan. ``wrong_rows`` of the result must be 0."""
    warehouse = root / "warehouse"
    warehouse.mkdir(parents=True)
    limits = EngineSettings(index_bytes=INDEX_BYTES)
    lakehouse = SparkLakehouse(str(warehouse), SPARK, resolve("lakehouse"), limits=limits)
    result: dict[str, Any] = {"commits": [], "wrong_rows": 0}
    try:
        sides = []
        for rows in plan.rows:
            table = Table(rows, plan.batches, plan.history)
            sides.append(Side(lakehouse, warehouse, DIRECT, table, plan.pause))
            sides[-1].write_history(say)
        for batch in plan.batches:
            for found in take_turns(sides, batch, plan.rounds, plan.warm_up):
                result["commits"].append(found)
                say(describe(found))
        result["wrong_rows"] = sum(side.wrong_rows(say) for side in sides)
    finally:
        lakehouse.close()
    return result
