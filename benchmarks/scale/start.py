"""Lane ``start``: from the start of a worker's process to the first rows of an existing table.

A table of 1,000,000 rows, and 100 events that wait in the topic. The worker starts for the first time, then it is
stopped or killed, and restarted with 100 new events each time. The last starts have an empty page cache, as on a new
node; only root may empty it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from benchmarks.contestants import connector
from benchmarks.cpu import cpu_of
from benchmarks.envelope import encode
from benchmarks.kafka_to_table import prefill_in_process
from benchmarks.lake import HEADRACE, MEASURED, SPARK, Lake
from benchmarks.scale.progress import events_of_headrace
from benchmarks.topic import Publisher
from benchmarks.workload import Source, Workload
from headrace_dev.server import free_ports, wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

FIRST, RESTART = "first start", "restart"
KILLED = "restart after kill -9"
COLD = "restart, empty page cache"
_VISIBLE_SECONDS = 180.0
_PAGE_CACHE = Path("/proc/sys/vm/drop_caches")

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """Starts in a row, a table's rows, and the events that wait for each start."""

    starts: Sequence[str] = (FIRST, RESTART, RESTART, KILLED, KILLED, COLD, COLD)
    rows: int = 1_000_000
    events: int = 100

    @property
    def workload(self) -> Workload:
        events = self.events * len(self.starts)
        return Workload(events=events, keys=min(100_000, self.rows // 10), rows=self.rows)


FULL = Plan()
QUICK = Plan(starts=(FIRST, KILLED), rows=20_000)


def run(plan: Plan, stack: Stack, root: Path, properties: Mapping[str, str], say: Say) -> dict[str, Any]:
    """Measure the starts of a plan. ``wrong_rows`` of the result must be 0."""
    lake = Lake(root)
    prefill_in_process(lake, plan.workload, (HEADRACE,))
    say(f"a table with {plan.rows:,} rows is filled")
    lake.restore()
    source, publisher = Source(plan.workload), Publisher(stack.kafka)
    events, folder, results = source.events(), lake.warehouse / HEADRACE / MEASURED, []
    [port] = free_ports(1)
    for number, (kind, next_kind) in enumerate(pairwise((*plan.starts, None)), 1):
        publisher.send(map(encode, islice(events, plan.events)))
        if kind == COLD and not _empty_page_cache():
            say(f"{kind}: not measured, only root may write {_PAGE_CACHE}")
            kind = RESTART
        name = f"headrace-start-{number}"
        worker = Worker(root, stack.kafka, lake.warehouse, name=name, port=port, properties={**SPARK, **properties})
        begin = time.monotonic()
        worker.start()
        try:
            answers = time.monotonic() - begin
            if kind == FIRST:
                worker.put_connector(MEASURED, connector(MEASURED))
            wait_until(
                lambda wanted=number * plan.events: events_of_headrace(folder) >= wanted, "rows", _VISIBLE_SECONDS, 0.05
            )
            result = {
                "start": kind,
                "answers_s": round(answers, 1),
                "first_rows_s": round(time.monotonic() - begin, 1),
                "cpu_s": round(cpu_of(worker.server.pid).total, 1),
            }
        finally:
            if next_kind == KILLED:
                worker.kill()
            else:
                worker.stop()
        results.append(result)
        say(
            f"{kind}: REST answers after {result['answers_s']} s, first rows after {result['first_rows_s']} s and "
            f"{result['cpu_s']} CPU s"
        )
    assert next(events, None) is None, "all events are sent"
    wrong = lake.wrong_rows(HEADRACE, source.expected())
    return {"rows": plan.rows, "events": plan.events, "results": results, "wrong_rows": wrong}


def _empty_page_cache() -> bool:
    """Let the machine forget the contents of all files; False if this user may not."""
    os.sync()
    try:
        _PAGE_CACHE.write_text("3")
    except OSError:
        return False
    return True
