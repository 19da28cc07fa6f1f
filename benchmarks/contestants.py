"""The contestants: Headrace's worker and the hand-written stream, each in a separate process.

Both read the whole topic three times, into tables of one layout with the same rows: first in many small merges, so
that their JVMs are warm; then in merges of the measured size; and then measured, after a pause until
their compilers are idle. The measurement begins when the reading begins and ends when the last row is
visible and, for Headrace, the group's offsets are committed. It excludes the start of processes and JVMs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cpu import Cpu, cpu_of, wait_until_quiet
from benchmarks.lake import HEADRACE, MEASURED, REHEARSAL, SPARK, WARM_UP
from benchmarks.topic import Progress
from benchmarks.workload import TOPIC
from headrace_dev.kafka import Kafka
from headrace_dev.server import wait_until
from headrace_dev.worker import Worker

TIMEOUT = 180.0
"""Seconds that a contestant may take to read the topic once."""

_STAGE_CPU = "headrace_stage_cpu_seconds_total"


@dataclass(frozen=True, slots=True)
class Effort:
    """The cost of the measured reading. ``stages`` are CPU seconds of Headrace's own threads by stage."""

    seconds: float
    cpu: Cpu
    stages: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Course:
    """What all contestants run over: the topic's ``events``, ``merges`` of them to warm up, which table is where."""

    kafka: Kafka
    root: Path
    warehouse: Path
    events: int
    merges: int
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties of the worker in addition to those of Spark."""

    @property
    def warm_up_batch(self) -> int:
        """Return the events of a merge of the warm-up. Each contestant chooses the size of a measured merge."""
        return self.events // self.merges

    @property
    def rest(self) -> int:
        """Return the seconds that a contestant may wait after the warm-up, at most."""
        return 2 * self.merges


def run_headrace(course: Course) -> Effort:
    """Let a worker read the topic, with the defaults of the connector, and of the worker but for the course's."""
    properties = {**SPARK, **course.properties}
    worker = Worker(course.root, course.kafka, course.warehouse, name="headrace-bench", properties=properties)
    worker.start()
    try:
        _consume(worker, course, connector(WARM_UP) | {"batch.max.records": str(course.warm_up_batch)})
        worker.call("DELETE", f"/connectors/{WARM_UP}")
        _consume(worker, course, connector(REHEARSAL))
        worker.call("DELETE", f"/connectors/{REHEARSAL}")
        wait_until_quiet(worker.server.pid, course.rest)
        before, begin = cpu_of(worker.server.pid), time.monotonic()
        _consume(worker, course, connector(MEASURED))
        return Effort(time.monotonic() - begin, cpu_of(worker.server.pid).since(before), _stages(worker))
    finally:
        worker.stop()


def _consume(worker: Worker, course: Course, config: Mapping[str, str]) -> None:
    """Run a connector until the group's committed offset is the end of the topic."""
    name = config["collection.name.format"]
    worker.put_connector(name, config)
    progress, group = Progress(course.kafka), config.get("consumer.override.group.id", f"connect-{name}")
    try:
        wait_until(lambda: progress.committed(group) >= course.events, f"end of {name}", TIMEOUT, pause=0.1)
    except TimeoutError as error:
        raise RuntimeError(f"{error}; {worker.states(name)}; end of the log:\n{worker.server.log_end(40)}") from error


def connector(table: str) -> dict[str, str]:
    """Return the connector's configuration: topic and table name; all other options have their defaults."""
    return {
        "connector.class": "headrace.LakehouseSinkConnector",
        "topics": TOPIC,
        "table.namespace": HEADRACE,
        "collection.name.format": table,
    }


def _stages(worker: Worker) -> dict[str, float]:
    """Return CPU seconds of the measured connector by stage."""
    found: dict[str, float] = {}
    for (name, labels), value in worker.metrics().items():
        of = dict(labels)
        if name == _STAGE_CPU and of["connector"] == MEASURED:
            found[of["stage"]] = found.get(of["stage"], 0.0) + value
    return found


def run_stream(course: Course, max_offsets: int) -> Effort:
    """Let the hand-written stream read the topic, at most ``max_offsets`` records a trigger."""
    command = [sys.executable, "-m", "benchmarks.stream", "--bootstrap-servers", course.kafka.bootstrap_servers]
    command += ["--warehouse", str(course.warehouse), "--checkpoints", str(course.root / f"checkpoints-{max_offsets}")]
    command += ["--max-offsets-per-trigger", str(max_offsets), "--rest", str(course.rest)]
    command += ["--max-offsets-per-warm-up-trigger", str(course.warm_up_batch)]
    with (course.root / f"stream-{max_offsets}.log").open("wb") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, timeout=4 * TIMEOUT, check=False)
    if done.returncode:
        raise RuntimeError(f"the stream failed:\n{Path(log.name).read_text()[-4000:]}")
    effort = json.loads(done.stdout.splitlines()[-1])
    return Effort(effort["seconds"], Cpu(**effort["cpu"]))
