"""Tables that a Spark cluster of several processes writes: the shop's comparison, kills of executors and workers."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.lane import Lane

from headrace_dev.server import wait_until
from headrace_dev.spark_cluster import SparkCluster
from headrace_dev.stack import Stack

pytestmark = [
    pytest.mark.stack,
    pytest.mark.spark,
    pytest.mark.production,
    pytest.mark.long,
    pytest.mark.timeout(600),
]

SECONDS = 180
KILLS = 12
"""Kills until one hits a running task."""
CATALOG_SECRET = "secret-of-the-storage"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """Two workers of Spark."""
    cluster = SparkCluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def lane_on(cluster: SparkCluster, stack: Stack, name: str, folder: Path) -> Lane:
    """A shop whose tables the cluster writes."""
    events = folder / "events"
    events.mkdir()
    recorded = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
    }
    secret = {"spark.hadoop.fs.s3a.secret.key": CATALOG_SECRET}
    return Lane(stack, name, folder, worker={**cluster.settings, **secret, **recorded})


def events(folder: Path) -> str:
    """What the driver recorded so far."""
    return "".join(file.read_text(errors="replace") for file in (folder / "events").rglob("*") if file.is_file())


def lost_tasks(folder: Path) -> int:
    """The number of tasks that ran on executors that ended."""
    return events(folder).count('"Reason":"ExecutorLostFailure"')


def shuffled_merges(folder: Path) -> set[str]:
    """The numbers of partitions into which merges were shuffled."""
    plans = (line for line in events(folder).splitlines() if "MergeRows" in line)
    return {number for plan in plans for number in re.findall(r"hashpartitioning\([^()]*, (\d+)\)", plan)}


def test_a_cluster_writes_the_same_tables(stack: Stack, cluster: SparkCluster, tmp_path: Path) -> None:
    """Executors run on both workers, and no secret is in their arguments, environments and pages."""
    with lane_on(cluster, stack, "clustered", tmp_path) as lane:
        lane.begin_load()
        wait_until(lambda: lane.written() > 0, "first rows", SECONDS)
        executors = cluster.executors()
        assert len(executors) == 2
        seen = cluster.pages() + "".join(
            Path(f"/proc/{pid}/{file}").read_text(errors="replace")
            for pid in executors
            for file in ("cmdline", "environ")
        )
        assert CATALOG_SECRET not in seen
        assert cluster.secret not in "".join(Path(f"/proc/{pid}/cmdline").read_text() for pid in executors)
        assert lane.prove() > 0
        assert lane.worker.tables(lane.name) == []
        assert shuffled_merges(tmp_path) == {"6"}  # three for each core of the two executors


def test_executors_are_killed_during_merges(stack: Stack, cluster: SparkCluster, tmp_path: Path) -> None:
    """Spark repeats the lost tasks on other executors; no task of the connector fails."""
    with lane_on(cluster, stack, "executors", tmp_path) as lane:
        lane.begin_load()
        wait_until(lambda: lane.written() > 0, "first rows", SECONDS)
        for kill in range(1, KILLS + 1):
            wait_until(lambda: len(cluster.executors()) == 2 and lane.events_in_hand() > 0, "executors at work", 60)
            os.kill(cluster.executors()[kill % 2], signal.SIGKILL)
            written = lane.written()
            wait_until(lambda before=written: lane.written() > before, "rows after the kill", 60)  # type: ignore[misc]
            if lost_tasks(tmp_path):
                break
        print(f"{kill} kills, {lost_tasks(tmp_path)} running tasks were lost")
        assert lost_tasks(tmp_path) > 0
        assert lane.states() == {"RUNNING"}
        assert lane.prove() > 0
        assert lane.worker.tables(lane.name) == []


def test_workers_are_killed_in_batches(stack: Stack, cluster: SparkCluster, tmp_path: Path) -> None:
    """The next worker gets the executors of its predecessor, and all changes arrive."""
    with lane_on(cluster, stack, "drivers", tmp_path) as lane:
        lane.begin_load()
        wait_until(lambda: lane.written() > 0, "first rows", SECONDS)
        for pause in (0.5, 2.0):
            lane.kill_in_a_batch(after=pause)
            lane.restart_worker()
            wait_until(lambda: lane.written() > 0, "rows of the next worker", SECONDS)
        assert lane.prove() > 0
