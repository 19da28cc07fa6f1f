"""Lane ``bursts``: updates in small portions, each of which is visible before the next one is sent, beside Flink.

20 bursts of 15,000 of the events of lane ``bulk``. Each contestant begins with new JVMs, and all CPU time counts from
its first start until it is idle after the last burst, with the JIT compiler and children that have ended. A burst is
visible when a snapshot of the table contains it: Headrace's commits contain the offsets of the topic; Flink's contain a
delete for each event.

The contestants take turns with each burst, and the processes of the others are stopped meanwhile (SIGSTOP): the speed
of a shared machine may double within minutes.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.contestants import connector
from benchmarks.cpu import Cpu, cpu_of, processes_of
from benchmarks.envelope import encode
from benchmarks.kafka_to_table import prefill_in_process
from benchmarks.lake import FLINK, HEADRACE, MEASURED, SPARK, Lake, differences
from benchmarks.scale import flink, readers
from benchmarks.scale.progress import events_of_flink, events_of_headrace
from benchmarks.topic import Publisher
from benchmarks.workload import Source, Workload
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
    """A contestant that runs, its first processes, and how many events its table contains."""

    name: str
    pids: Sequence[int]
    visible: Callable[[], int]

    def cpu(self) -> Cpu:
        return sum(map(cpu_of, self.pids), Cpu())

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let the processes run within the block, and stop them afterwards."""
        self.send(signal.SIGCONT)
        yield
        self.send(signal.SIGSTOP)

    def seconds_until(self, events: int) -> float:
        """Wait until the table contains the first ``events`` of the topic."""
        begin = time.monotonic()
        wait_until(
            lambda: self.visible() >= events, f"{events:,} events in the table of {self.name}", _VISIBLE_SECONDS, 0.05
        )
        return time.monotonic() - begin

    def send(self, number: signal.Signals) -> None:
        for pid in self.pids:
            for process in processes_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(int(process.name), number)


@dataclass(slots=True)
class _Record:
    """What was measured of a contestant: CPU at its start and until now, and by burst seconds and CPU seconds."""

    start: Cpu
    used: Cpu
    seconds: list[float] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        return {
            "cpu_s": round(self.used.total, 2),
            "start_cpu_s": round(self.start.total, 2),
            "jit_s": round(self.used.compiler, 2),
            "gc_s": round(self.used.collector, 2),
            "cpu_s_by_burst": self.costs,
            "visible_s_p50": round(statistics.median(self.seconds), 2),
            "visible_s_max": round(max(self.seconds), 2),
        }


def run(plan: Plan, stack: Stack, root: Path, properties: Mapping[str, str], say: Say) -> dict[str, Any]:
    """Measure the contestants of a plan. ``wrong_rows`` of the result must be 0."""
    lake = Lake(root)
    prefill_in_process(lake, plan.workload, plan.contestants)
    say(f"tables with {plan.workload.rows:,} rows are filled")
    lake.restore()
    source, publisher = Source(plan.workload), Publisher(stack.kafka)
    with ExitStack() as stopped_last:
        contestants = []
        for namespace in plan.contestants:
            opened = partial(_headrace, properties=properties) if namespace == HEADRACE else _flink
            contestant = stopped_last.enter_context(opened(stack.kafka, root, lake))
            stopped_last.callback(contestant.send, signal.SIGCONT)
            contestants.append(contestant)
            contestant.send(signal.SIGSTOP)
        records = _send_bursts(plan, source, publisher, contestants, say)

    results, wrong_rows = [], 0
    for namespace, contestant, record in zip(plan.contestants, contestants, records, strict=True):
        times, rows = readers.read(lake.warehouse, namespace, timed=plan.timed)
        wrong = differences(rows, source.expected())
        wrong_rows += wrong
        burst = {"burst": plan.workload.events // plan.bursts, "bursts": plan.bursts}
        result = {"contestant": namespace, "name": contestant.name, **burst, **record.result()}
        results.append({**result, "wrong_rows": wrong, "scan_s": times})
        say(
            f"{contestant.name}: {plan.bursts} bursts of {result['burst']:,}: CPU {result['cpu_s']:.1f} s (start "
            f"{result['start_cpu_s']:.1f}, JIT {result['jit_s']:.1f}, GC {result['gc_s']:.1f}), "
            f"a burst is visible after {result['visible_s_p50']:.1f} s (p50), {wrong} wrong rows; {times}"
        )
    return {"rows": plan.workload.rows, "results": results, "wrong_rows": wrong_rows}


def _send_bursts(
    plan: Plan, source: Source, publisher: Publisher, contestants: Sequence[_Contestant], say: Say
) -> list[_Record]:
    events, burst = source.events(), plan.workload.events // plan.bursts
    records = [_Record(contestant.cpu(), contestant.cpu()) for contestant in contestants]
    for number in range(1, plan.bursts + 1):
        publisher.send(list(map(encode, islice(events, burst))))
        for contestant, record in zip(contestants, records, strict=True):
            with contestant.turn():
                record.seconds.append(contestant.seconds_until(number * burst))
            before, record.used = record.used, contestant.cpu()
            record.costs.append(round(record.used.since(before).total, 2))
        say(f"burst {number} of {plan.bursts}: CPU s {', '.join(str(record.costs[-1]) for record in records)}")
    assert next(events, None) is None, "the load is no multiple of the bursts"
    for contestant, record in zip(contestants, records, strict=True):
        with contestant.turn():
            record.used = _idle(contestant)
    return records


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
        yield _Contestant("Headrace", [worker.server.pid], lambda: events_of_headrace(folder))
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
        name = f"{flink.NAME}, commits every {FLINK_CHECKPOINT // 1000} s"
        yield _Contestant(name, cluster.pids, lambda: events_of_flink(folder))
        cluster.cancel(job)
