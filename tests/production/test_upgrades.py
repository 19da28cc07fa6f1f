"""A rolling upgrade to this version and back, with data flowing: mixed workers, tables equal, no task fails.

No release exists yet, so that the earlier version is a commit of this repository.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from chaos.cluster import ClusterLane, cluster_properties
from chaos.lane import SETTLE_SECONDS

from headrace_dev.server import wait_until
from headrace_dev.stack import Stack
from headrace_dev.worker import SHORT_LIVED, Worker

pytestmark = [pytest.mark.stack, pytest.mark.spark, pytest.mark.production, pytest.mark.long]

ROOT = Path(__file__).parents[2]
EARLIER = "05bf6cd7538ce1a13053341880cdb27e0bd04188"
PAIR = ("customers", "orders")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment of a process that runs the earlier version, with the packages that are installed here."""
    folder = tmp_path_factory.mktemp("earlier")
    source, packages = folder / "source", folder / "packages"
    source.mkdir()
    archive = subprocess.run(["git", "-C", ROOT, "archive", EARLIER], capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the repository here has no commit {EARLIER[:7]}: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", source], input=archive.stdout, check=True)
    install = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-deps", "--target", packages, source]
    subprocess.run(install, check=True)
    return {"PYTHONPATH": str(packages)}


class RollingLane(ClusterLane):
    """Two workers, each of which can be replaced by one of another version."""

    def __init__(self, stack: Stack, name: str, folder: Path, earlier: Mapping[str, str]) -> None:
        super().__init__(stack, name, folder, 2, 10, PAIR)
        self.ended: list[Worker] = []
        self._earlier = earlier
        self._made = 0

    def _worker(self, number: int, port: int) -> Worker:
        return self._worker_of(self._earlier, port)

    def _worker_of(self, version: Mapping[str, str], port: int) -> Worker:
        self._made += 1
        properties = {**SHORT_LIVED, **cluster_properties(self._stack.postgres, self.name, self.session_seconds)}
        return Worker(
            self._folder,
            self._stack.kafka,
            self.warehouse,
            name=f"worker-{self._made}",
            port=port,
            properties=properties,
            environment=version,
        )

    def replace(self, number: int, version: Mapping[str, str]) -> None:
        """Stop a worker as Kubernetes does, and start one of another version at its address."""
        self.workers[number].stop()
        self.ended.append(self.workers[number])
        self.worker = self.workers[1 - number]
        self.workers[number] = self._worker_of(version, self._ports[number])
        self.workers[number].start()
        self.wait_until_spread()
        self.flows()

    def flows(self) -> None:
        """Wait until rows arrive that did not exist before."""
        newest = max(row["id"] for row in self.rows("orders"))
        wait_until(lambda: max(row["id"] for row in self.rows("orders")) > newest, "new rows", SETTLE_SECONDS, 0.5)

    def errors(self) -> list[str]:
        """The task failures in the logs of all workers so far."""
        current, self.workers = self.workers, [*self.workers, *self.ended]
        try:
            return super().errors()
        finally:
            self.workers = current


@pytest.mark.timeout(900)
def test_an_upgrade_and_a_downgrade_under_load(stack: Stack, tmp_path: Path, earlier: Mapping[str, str]) -> None:
    """Every mixture writes, moves tasks and forwards requests."""
    this: Mapping[str, str] = {}
    with RollingLane(stack, "rolling", tmp_path, earlier) as lane:
        lane.wait_until_spread()
        lane.begin_load()
        wait_until(lambda: all(map(lane.rows, PAIR)), "rows in every table", SETTLE_SECONDS)
        for number, version in ((0, this), (1, this), (0, earlier), (1, earlier)):
            lane.replace(number, version)
            for worker, verb, state in zip(lane.workers, ("pause", "resume"), ("PAUSED", "RUNNING"), strict=True):
                worker.call("PUT", f"/connectors/{lane.name}/{verb}")
                lane.wait_until_all_are(state)
            lane.flows()
        assert lane.prove() > 0
        assert lane.errors() == []
