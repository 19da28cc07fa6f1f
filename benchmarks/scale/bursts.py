"""Lane ``bursts``: updates in small portions, each of which is visible before the next one is sent, beside Flink.

20 bursts of 15,000 of the events of lane ``bulk``. Each contestant begins with new JVMs, and all CPU time counts from
its first start until it is idle after the last burst, with the JIT compiler and children that have ended. A burst is
visible when a snapshot of the table contains it: Headrace's commits contain the offsets of the topic; Flink's contain a
delete for each event.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.contestants import connector
from benchmarks.cpu import Cpu, cpu_of
from benchmarks.envelope import encode
from benchmarks.kafka_to_table import prefill_in_process
from benchmarks.lake import FLINK, HEADRACE, MEASURED, SPARK, Lake, differences
from benchmarks.scale import flink, readers
from benchmarks.topic import Publisher
from benchmarks.workload import TOPIC, Source, Workload
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import Worker

FLINK_CHECKPOINT = 2_000
_VISIBLE_SECONDS = 180.0
_IDLE_SECONDS = 20
_IDLE = 0.15  # CPU seconds in a second

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Plan:
    """``bursts`` equal parts of a load."""

    contestants: Sequence[str] = (HEADRACE, FLINK)
    workload: Workload = field(default_factory=Workload)
    bursts: int = 20
    timed: bool = True


FULL = Plan()
QUICK = Plan(workload=Workload(events=2_000, keys=1_000, rows=20_000), bursts=2, timed=False)


@dataclass(frozen=True, slots=True)
class _Contestant:
    """A contestant that runs: the CPU time that it has used, and how many events its table contains."""

    cpu: Callable[[], Cpu]
    visible: Callable[[], int]


def run(plan: Plan, stack: Stack, root: Path, properties: Mapping[str, str], say: Say) -> dict[str, Any]:
    """Measure the contestants of a plan. ``wrong_rows`` of the result must be 0."""
    lake = Lake(root)
    prefill_in_process(lake, plan.workload, plan.contestants)
    say(f"tables with {plan.workload.rows:,} rows are filled")
    results, wrong_rows = [], 0
    for namespace in plan.contestants:
        lake.restore()
        _empty_topic(stack.kafka)
        source, publisher = Source(plan.workload), Publisher(stack.kafka)
        opened = partial(_headrace, properties=properties) if namespace == HEADRACE else _flink
        with opened(stack.kafka, root, lake) as running:
            result = _send_bursts(plan, source, publisher, running)
        times, rows = readers.read(lake.warehouse, namespace, timed=plan.timed)
        wrong = differences(rows, source.expected())
        wrong_rows += wrong
        name = "Headrace" if namespace == HEADRACE else f"{flink.NAME}, commits every {FLINK_CHECKPOINT // 1000} s"
        results.append({"contestant": namespace, "name": name, **result, "wrong_rows": wrong, "scan_s": times})
        say(
            f"{name}: {plan.bursts} bursts of {result['burst']:,}: CPU {result['cpu_s']:.1f} s (start "
            f"{result['start_cpu_s']:.1f}, JIT {result['jit_s']:.1f}, GC {result['gc_s']:.1f}), "
            f"a burst is visible after {result['visible_s_p50']:.1f} s (p50), {wrong} wrong rows; {times}"
        )
    return {"rows": plan.workload.rows, "results": results, "wrong_rows": wrong_rows}


def _send_bursts(plan: Plan, source: Source, publisher: Publisher, contestant: _Contestant) -> dict[str, Any]:
    events, burst = source.events(), plan.workload.events // plan.bursts
    start = contestant.cpu()
    seconds, costs, before = [], [], start
    for number in range(1, plan.bursts + 1):
        records = list(map(encode, islice(events, burst)))
        publisher.send(records)
        begin = time.monotonic()
        sent = number * burst
        wait_until(lambda sent=sent: contestant.visible() >= sent, f"burst {number}", _VISIBLE_SECONDS, 0.05)
        seconds.append(time.monotonic() - begin)
        now = contestant.cpu()
        costs.append(round(now.since(before).total, 2))
        before = now
    assert next(events, None) is None, "the load is no multiple of the bursts"
    used = _idle(contestant)
    return {
        "burst": burst,
        "bursts": plan.bursts,
        "cpu_s": round(used.total, 2),
        "start_cpu_s": round(start.total, 2),
        "jit_s": round(used.compiler, 2),
        "gc_s": round(used.collector, 2),
        "cpu_s_by_burst": costs,
        "visible_s_p50": round(statistics.median(seconds), 2),
        "visible_s_max": round(max(seconds), 2),
    }


def _idle(contestant: _Contestant) -> Cpu:
    """Return the CPU time once the contestant is idle: what it does after the last burst is a part of its cost."""
    used = contestant.cpu()
    for _ in range(_IDLE_SECONDS):
        time.sleep(1)
        before, used = used, contestant.cpu()
        if used.since(before).total < _IDLE:
            break
    return used


@contextmanager
def _headrace(kafka: Kafka, root: Path, lake: Lake, properties: Mapping[str, str]) -> Iterator[_Contestant]:
    worker = Worker(root, kafka, lake.warehouse, name="headrace-bursts", properties={**SPARK, **properties})
    worker.start()
    try:
        worker.put_connector(MEASURED, connector(MEASURED))
        folder = lake.warehouse / HEADRACE / MEASURED
        yield _Contestant(lambda: cpu_of(worker.server.pid), lambda: _offset(_summary(folder)))
    except TimeoutError as error:
        raise RuntimeError(
            f"{error}; {worker.states(MEASURED)}; end of the log:\n{worker.server.log_end(40)}"
        ) from error
    finally:
        worker.stop()


@contextmanager
def _flink(kafka: Kafka, root: Path, lake: Lake) -> Iterator[_Contestant]:
    with flink.running(root, FLINK_CHECKPOINT) as cluster:
        job = cluster.run(flink.upsert_statements(kafka.bootstrap_servers, lake.warehouse, MEASURED))
        wait_until(lambda: cluster.state(job) == "RUNNING", "running job of Flink")
        folder = lake.warehouse / FLINK / MEASURED
        yield _Contestant(cluster.cpu, lambda: _deletes(_summary(folder)))
        cluster.cancel(job)


def _summary(folder: Path) -> Mapping[str, str]:
    """Return the summary of the newest snapshot; the file of an older version may be removed while it is read."""
    with suppress(FileNotFoundError, ValueError):
        version = (folder / "metadata" / "version-hint.text").read_text().strip()
        metadata = json.loads((folder / "metadata" / f"v{version}.metadata.json").read_text())
        newest = metadata["current-snapshot-id"]
        summary: Mapping[str, str] = next(
            each["summary"] for each in metadata["snapshots"] if each["snapshot-id"] == newest
        )
        return summary
    return {}


def _offset(summary: Mapping[str, str]) -> int:
    offsets = json.loads(summary.get("headrace.offsets", "{}")).get(TOPIC, {}).get("offsets", {})
    return int(offsets.get("0", 0))


def _deletes(summary: Mapping[str, str]) -> int:
    """Return the deletes of a table: Flink's sink writes one for each event, by key or by place in the commit."""
    return int(summary.get("total-equality-deletes", 0)) + int(summary.get("total-position-deletes", 0))


def _empty_topic(kafka: Kafka) -> None:
    """Delete the topic of the contestant before."""
    if TOPIC in kafka.topics():
        admin = kafka.admin()  # its futures die with it
        admin.delete_topics([TOPIC])[TOPIC].result(timeout=30)
        wait_until(lambda: TOPIC not in kafka.topics(), f"deletion of {TOPIC}")
