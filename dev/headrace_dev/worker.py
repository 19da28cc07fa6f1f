"""The real worker as a process: ``headrace connect-distributed`` with a properties file, as an operator starts it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from headrace_dev import jars
from headrace_dev.kafka import Kafka
from headrace_dev.server import LOOPBACK, Server, free_ports, http, wait_until

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]
"""The samples of one answer of ``/metrics``, by name and labels."""

_QUICK_START = (
    *("-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=1"),
    *("-XX:ReservedCodeCacheSize=240m", "-XX:+UseSerialGC"),
)
SHORT_LIVED = {"spark.driver.extraJavaOptions": " ".join(_QUICK_START)}
"""Settings of a Spark session that ends too soon to profit from optimised code: its first merges use less CPU time.

The C1 compiler's default code cache is full after a minute of merges; then the JVM interprets the rest.
"""


class WorkerApi:
    """The REST API of a running worker, wherever it runs."""

    url: str

    def put_connector(self, name: str, config: Mapping[str, str], seconds: float = 120.0) -> None:
        """Create or change a connector over REST and wait until its tasks run. Raises RuntimeError with the answer."""
        answer = http.put(f"{self.url}/connectors/{name}/config", json=dict(config), timeout=60)
        if not answer.is_success:
            raise RuntimeError(f"{name}: {answer.json().get('message', answer.text)}")
        wait_until(lambda: self._runs(name), f"running {name}", seconds)

    def _runs(self, name: str) -> bool:
        """Return whether the connector has tasks, and each of them a status of which all are RUNNING."""
        # A task is configured before it reports: one of two that runs is not yet the connector that runs.
        configured = http.get(f"{self.url}/connectors/{name}", timeout=30).json().get("tasks", [])
        states = self.states(name)
        return bool(configured) and len(states) == 1 + len(configured) and set(states) == {"RUNNING"}

    def call(self, method: str, path: str) -> Any:
        """Send one REST request, such as ``call("PUT", "/connectors/shop/pause")``. Return the JSON answer, or None."""
        answer = http.request(method, f"{self.url}{path}", timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a connector and its tasks; empty while the worker has none (a new connector)."""
        answer = http.get(f"{self.url}/connectors/{name}/status", timeout=30)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return {}
        status: dict[str, Any] = answer.raise_for_status().json()
        return status

    def tasks(self, name: str) -> list[dict[str, Any]]:
        """Return the statuses of a connector's tasks; empty while the worker does not know the connector."""
        tasks: list[dict[str, Any]] = self.status(name).get("tasks", [])
        return tasks

    def tables(self, name: str) -> list[dict[str, Any]]:
        """Return the statuses of a connector's tables that are not in state RUNNING."""
        return [table for task in self.tasks(name) for table in task.get("tables", [])]

    def traces(self, name: str) -> str:
        """Return the traces of a connector's tasks and tables in any state."""
        return " ".join(each.get("trace", "") for each in (*self.tasks(name), *self.tables(name)))

    def states(self, name: str) -> list[str]:
        """Return the states of a connector and its tasks; empty while the worker does not know the connector."""
        status = self.status(name)
        return [part["state"] for part in (status["connector"], *status["tasks"])] if status else []

    def metrics(self) -> Samples:
        """Return the samples of one answer of ``/metrics``."""
        text = http.get(f"{self.url}/metrics", timeout=10).raise_for_status().text
        families = text_string_to_metric_families(text)
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def committed(self, name: str) -> dict[tuple[str, int], int]:
        """Return the next offset of each topic and partition that a connector has committed."""
        offsets = self.call("GET", f"/connectors/{name}/offsets")["offsets"]
        return {
            (entry["partition"]["kafka_topic"], entry["partition"]["kafka_partition"]): entry["offset"]["kafka_offset"]
            for entry in offsets
        }

    def answers(self) -> bool:
        """Return whether a process answers requests at the worker's URL."""
        try:
            return http.get(f"{self.url}/health", timeout=5).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False


class Worker(WorkerApi):
    """A distributed worker; ``kill`` and ``start`` keep its connectors, which live in topics of ``kafka``."""

    def __init__(
        self,
        root: Path,
        kafka: Kafka,
        warehouse: Path,
        *,
        name: str = "headrace",
        port: int | None = None,
        properties: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.url = f"http://{LOOPBACK}:{port or free_ports(1)[0]}"
        self.warehouse = warehouse
        folder = root.resolve() / name
        folder.mkdir(mode=0o755)
        file = folder / "worker.properties"
        settings = _settings(kafka.bootstrap_servers, self.url, warehouse) | dict(properties or {})
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = [sys.executable, "-m", "headrace", "connect-distributed", str(file)]
        jar_folder = {"HEADRACE_JARS": str(jars.folder("lakehouse"))}
        self.server = Server(name, command, folder, environment=jar_folder | dict(environment or {}))

    def start(self, seconds: float = 120.0) -> None:
        """Start and wait until the worker answers requests."""
        self.server.start(self.answers, seconds)

    def stop(self) -> None:
        """Send SIGTERM; the worker finishes the writes in progress."""
        self.server.stop(seconds=90)

    def kill(self) -> None:
        """Send SIGKILL to the worker and its JVM."""
        self.server.kill()


def _settings(bootstrap_servers: str, url: str, warehouse: Path) -> dict[str, str]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "headrace",
        "config.storage.topic": "headrace-configs",
        "config.storage.replication.factor": "1",
        "status.storage.topic": "headrace-status",
        "status.storage.replication.factor": "1",
        "status.storage.partitions": "1",
        "listeners": url,
        "warehouse": str(warehouse.resolve()),
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
    }
