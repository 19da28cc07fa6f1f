"""A Spark standalone cluster on 127.0.0.1: a master and workers of the Spark that PySpark brings."""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx

from headrace_dev.server import LOOPBACK, Server, free_ports, http, wait_until

_DEPLOY = "org.apache.spark.deploy"
_EXECUTOR = "CoarseGrainedExecutorBackend"


class SparkCluster:
    """``workers`` processes with a core each. All parts and the driver share a secret (``spark.authenticate``)."""

    def __init__(self, root: Path, workers: int = 2, memory: str = "1g") -> None:
        folder = root.resolve() / "spark-cluster"
        folder.mkdir()
        port, self._page, *own = free_ports(2 + 2 * workers)
        self.url = f"spark://{LOOPBACK}:{port}"
        self.secret = secrets.token_hex(16)
        properties = folder / "spark.properties"
        properties.touch(mode=0o600)
        properties.write_text(f"spark.authenticate true\nspark.authenticate.secret {self.secret}\n")
        spec = importlib.util.find_spec("pyspark")
        assert spec is not None
        assert spec.origin is not None
        program = [str(Path(spec.origin).parent / "bin" / "spark-class"), "-Xmx256m"]
        common = ["--host", LOOPBACK, "--properties-file", str(properties)]
        addresses = ["--port", str(port), "--webui-port", str(self._page)]
        self._master = Server("spark-master", [*program, f"{_DEPLOY}.master.Master", *common, *addresses], folder)
        self._own = own[:workers]
        self._workers = []
        for number, (address, page) in enumerate(zip(self._own, own[workers:], strict=True)):
            home = folder / f"worker-{number}"
            home.mkdir()
            size = ["--cores", "1", "--memory", memory, "--work-dir", str(home)]
            addresses = ["--port", str(address), "--webui-port", str(page), self.url]
            command = [*program, f"{_DEPLOY}.worker.Worker", *common, *size, *addresses]
            self._workers.append(Server(f"spark-worker-{number}", command, folder))

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of a driver on this machine that uses the cluster."""
        return {
            "spark.master": self.url,
            "spark.driver.host": LOOPBACK,
            "spark.driver.bindAddress": LOOPBACK,
            "spark.executor.memory": "800m",
            "spark.authenticate": "true",
            "spark.authenticate.secret": self.secret,
        }

    def start(self) -> None:
        """Start and wait until all workers are registered."""
        self._master.start(lambda: self.state() is not None)
        for each in self._workers:
            each.start(lambda: True)
        wait_until(lambda: (self.state() or {}).get("aliveworkers") == len(self._workers), "workers of Spark", 60)

    def stop(self) -> None:
        """End all processes, executors included."""
        for each in (*self._workers, self._master):
            each.kill()

    def state(self) -> dict[str, Any] | None:
        """What the master's page says, as JSON; None while it does not answer."""
        try:
            answer = http.get(f"http://{LOOPBACK}:{self._page}/json/", timeout=5)
        except httpx.TransportError:
            return None
        found: dict[str, Any] = answer.json()
        return found

    def pages(self) -> str:
        """The master's pages, on which an operator sees applications and executors."""
        page = f"http://{LOOPBACK}:{self._page}"
        applications = [each["id"] for each in (self.state() or {})["activeapps"]]
        paths = ["/", "/json/", *(f"/app/?appId={each}" for each in applications)]
        return "\n".join(http.get(f"{page}{path}", timeout=10).text for path in paths)

    def executors(self) -> list[int]:
        """The process ids of the executors that run now."""
        return list(self._executors())

    def _executors(self) -> Iterator[int]:
        marks = [f"spark://Worker@{LOOPBACK}:{port}" for port in self._own]
        for process in Path("/proc").iterdir():
            if not process.name.isdigit():
                continue
            try:
                command = (process / "cmdline").read_text().split("\0")
            except OSError:  # it has ended
                continue
            if any(_EXECUTOR in word for word in command) and set(marks) & set(command):
                yield int(process.name)
