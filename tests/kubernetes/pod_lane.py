"""The shop of ``chaos/lane.py`` with the workers of the S3 example in pods, on an object store with a REST catalog."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
from chaos.lane import Lane
from kubernetes.example_values import ONE_BROKER, example_values, merged

from headrace_dev.java import java_home_of_servers
from headrace_dev.kubernetes import KubernetesError, Release
from headrace_dev.nessie import WAREHOUSE, Nessie
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore
from headrace_dev.pod_network import HOST, Gateway, PodStack
from headrace_dev.server import wait_until
from headrace_dev.versions import JAVA_OF_SERVERS

WORKERS = 3
START_SECONDS = 400
"""For the start of three workers, or for replacing them one after the other, on two cores."""

_CATALOG = "spark.sql.catalog.lake"
_KEYS = {"AWS_ACCESS_KEY_ID": ACCESS_KEY, "AWS_SECRET_ACCESS_KEY": SECRET_KEY}


class PodLane(Lane):
    """The workers of a release are the cluster of the sink connector ``name``; ``worker`` is their service."""

    def __init__(
        self, stack: PodStack, name: str, folder: Path, release: Release, gateway: Gateway, nessie: Nessie, bucket: str
    ) -> None:
        database = {"reselect__database__hostname": HOST}
        super().__init__(stack, name, folder, tasks__max=str(WORKERS), **database)
        self.release = release
        self.nessie = nessie
        gateway.open(stack.postgres.port)
        config = {
            **ONE_BROKER,
            "warehouse": f"s3://{bucket}/warehouse",
            f"{_CATALOG}.uri": f"http://{gateway.open(nessie.port)}/iceberg",
            f"{_CATALOG}.warehouse": WAREHOUSE,
            f"{_CATALOG}.client.region": REGION,
            # Spark uses as many cores as the machine has, and this one also runs everything else.
            "spark.master": "local[1]",
        }
        here = {
            "kafka": {"bootstrapServers": stack.kafka.pod_servers},
            "existingSecret": "store",
            "worker": {"config": config},
            "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2816Mi"}},
        }
        self.values = merged(example_values("s3"), here)

    def start_worker(self, failpoints: Mapping[str, str] | None = None) -> None:
        """Install the release, and wait until its pods are ready."""
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "store"}, "stringData": _KEYS}
        self.release.create_namespace(secret)
        self.worker = self.release  # type: ignore[assignment]  # the part of a worker that is its API
        self.release.install(self.values, START_SECONDS)

    def upgrade(self, **values: Any) -> None:
        """``helm upgrade`` with changed values; return when all pods are new and ready, if the change requires that."""
        self.values |= values
        self.release.install(self.values, START_SECONDS)

    def rows(self, table: str, warehouse: Path | None = None) -> Sequence[dict[str, Any]]:
        """The rows in the lake."""
        return self.nessie.rows("headrace", f"{self.name}_public_{table}")

    def wait_until_spread(self) -> None:
        """Wait until every worker is ready and has a task, and all tasks run."""
        wait_until(lambda: len(self.release.ready()) == WORKERS, f"{WORKERS} ready pods", START_SECONDS, 1)
        wait_until(self._spread, "a task on every worker", 120, 1)

    def _spread(self) -> bool:
        addresses = {pod["status"].get("podIP") for pod in self.release.pods()}
        tasks = self.release.tasks(self.name)
        owners = {task["worker_id"].rpartition(":")[0] for task in tasks}
        return owners == addresses and self.states() == {"RUNNING"}

    def gaps(self) -> Gaps:
        """Return a watch of the tables' commits, for a ``with`` statement."""
        return Gaps({table: f"{self.name}_public_{table}" for table in self._tables}, self.nessie)


class Gaps:
    """Measures how long each table is without a new snapshot, at the catalog; ``longest`` is in seconds."""

    def __init__(self, tables: Mapping[str, str], nessie: Nessie) -> None:
        self.longest = dict.fromkeys(tables, 0.0)
        self._tables = tables
        self.nessie = nessie
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()
        print("longest time without a commit: " + ", ".join(f"{name} {s:.0f} s" for name, s in self.longest.items()))

    def _watch(self) -> None:
        newest: dict[str, int | None] = {}
        since = dict.fromkeys(self._tables, time.monotonic())
        while not self._ended.wait(0.5):
            for name, table in self._tables.items():
                with suppress(httpx.HTTPError):
                    snapshot, now = self.nessie.snapshot("headrace", table), time.monotonic()
                    self.longest[name] = max(self.longest[name], now - since[name])
                    if snapshot != newest.get(name):
                        newest[name], since[name] = snapshot, now


def refused_eviction(release: Release, pod: str) -> str:
    """Evict a pod, and return the API server's reason if it refuses; "" if it does not."""
    try:
        release.evict(pod)
    except KubernetesError as error:
        return str(error)
    return ""


@contextmanager
def catalog_for_pods(stack: PodStack, gateway: Gateway, folder: Path) -> Iterator[tuple[Nessie, str]]:
    """Start the servers of a shop, an object store and a REST catalog; yield the catalog and the bucket.

    Skips without a Java for the catalog.
    """
    java = java_home_of_servers()
    if java is None:
        pytest.skip(f"needs Java {JAVA_OF_SERVERS} for the catalog: JAVA21_HOME names it")
    stack.start("kafka", "postgres", "connect")
    gateway.open(stack.kafka.pod_port)
    store = ObjectStore(folder)
    store.start()
    nessie = Nessie(folder, java, store, f"http://{gateway.open(int(store.endpoint.rpartition(':')[2]))}")
    try:
        nessie.start()
        yield nessie, store.bucket
    finally:
        nessie.stop()
        store.stop()
