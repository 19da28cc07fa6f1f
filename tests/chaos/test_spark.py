"""Spark's JVM is killed or does not answer: the worker starts another one, and all changes arrive."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest
from chaos.lane import Lane

from headrace_dev.server import http, wait_until
from headrace_dev.stack import Stack

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.chaos]

FLOWS_AGAIN_SECONDS = 60
LINGERING = {"batch__linger__ms": "15000"}
"""Long enough for rows of 400 MB to come in one batch."""


@pytest.mark.parametrize(
    "number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.long)], ids=["killed", "stopped"]
)
def test_a_worker_replaces_its_jvm(stack: Stack, tmp_path: Path, number: signal.Signals) -> None:
    """Data flows again within a minute; the probes and the metrics show the state at each moment."""
    with Lane(stack, f"jvm{number.name.lower()}", tmp_path) as lane:
        lane.begin_load()
        wait_until(lambda: lane.written() > 0, "first rows", 120)
        assert probe(lane, "ready") == probe(lane, "live") == 200
        jvm, written = jvm_of(lane), lane.written()
        os.kill(jvm, number)
        struck = time.monotonic()
        wait_until(lambda: probe(lane, "ready") == 503, "a worker that is not ready", 40)
        assert probe(lane, "live") == 200
        wait_until(lambda: lane.written() > written, "rows of the next JVM", FLOWS_AGAIN_SECONDS)
        print(f"rows {time.monotonic() - struck:.1f} s after {number.name}")
        wait_until(lambda: probe(lane, "ready") == 200, "a worker that is ready", 30)
        assert jvm_of(lane) != jvm
        assert lane.worker.metrics()["headrace_spark_restarts", frozenset()] == 1
        assert lane.prove() > 0
        assert lane.worker.tables(lane.name) == []


@pytest.mark.long
def test_a_worker_without_its_jvm_stops_and_leaves_no_process(stack: Stack, tmp_path: Path) -> None:
    """Neither a dead JVM nor one that does not answer delays the stop beyond its time limit."""
    with Lane(stack, "jvmleft", tmp_path, tables=("orders",)) as lane:
        wait_until(lambda: probe(lane, "ready") == 200, "Spark", 60)
        jvm = jvm_of(lane)
        os.kill(jvm, signal.SIGSTOP)
        lane.worker.stop()
        assert not Path("/proc", str(jvm)).exists()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_batch_that_is_too_large_for_the_heap_is_written_in_parts(stack: Stack, tmp_path: Path) -> None:
    """Rows of 700 kB come in one batch that ends each JVM; the worker divides it until its parts fit."""
    heap = {"spark.driver.memory": "512m"}
    with Lane(
        stack, "heap", tmp_path, ("reviews", "orders"), worker=heap, batch__max__bytes="700000000", **LINGERING
    ) as lane:
        wait_until(lambda: lane.applied_by(lane.worker, lane.name), "first rows", 180)
        with stack.postgres.connect(lane.name) as connection:
            connection.execute(
                "INSERT INTO reviews SELECT gen_random_uuid(), 1, 5, n || repeat(md5(n::text), 22000), 0 "
                "FROM generate_series(1, 600) AS n"
            )
        divided = r"the batch ran out of memory and is written in \d+ parts"
        wait_until(lambda: re.search(divided, lane.log()), "a batch in parts", 300)
        assert lane.prove() > 600
        print(*re.findall(divided, lane.log()), sep="\n")
        assert lane.worker.tables(lane.name) == []
        assert lane.worker.metrics()["headrace_spark_restarts", frozenset()] >= 1


def probe(lane: Lane, name: str) -> int:
    """The status of a probe."""
    return http.get(f"{lane.worker.url}/health/{name}", timeout=5).status_code


def jvm_of(lane: Lane) -> int:
    """The process id of the worker's JVM."""
    worker = lane.worker.server.pid

    def child() -> int | None:
        for thread in Path(f"/proc/{worker}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread or a child has ended
                for pid in (thread / "children").read_text().split():
                    if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                        return int(pid)
        return None

    pid: int = wait_until(child, "the JVM", 60)
    return pid
