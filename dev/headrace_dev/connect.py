"""A Kafka Connect worker with Debezium's PostgreSQL connector, REST on 127.0.0.1 only (``stack.md`` section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from headrace_dev import jars
from headrace_dev.java import java, jvm_options
from headrace_dev.kafka import LOGGING, Kafka
from headrace_dev.postgres import SUPERUSER, Postgres
from headrace_dev.server import LOOPBACK, Server, free_ports, http, wait_until

_FAILED = "FAILED"


class ConnectorError(RuntimeError):
    """A source connector failed; the message is its trace."""


class Connect:
    """A distributed worker whose state lives in topics of ``kafka``; ``kill`` and ``start`` keep its connectors.

    ``plugins`` are folders of further plug-ins. A ``standalone`` worker loses its connectors when it ends, and needs
    no rebalance to start one. ``sustained``: see ``jvm_options``.
    """

    def __init__(
        self,
        root: Path,
        kafka: Kafka,
        plugins: Sequence[Path] = (),
        *,
        standalone: bool = False,
        sustained: bool = False,
    ) -> None:
        [port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{port}"
        folder = root / "connect"
        folder.mkdir(mode=0o755)
        (folder / "log4j2.properties").write_text(LOGGING)
        settings = _settings(kafka.bootstrap_servers, port)
        settings["plugin.path"] = ",".join(map(str, (jars.unpacked("debezium-postgres"), *plugins)))
        if standalone:
            settings["offset.storage.file.filename"] = str(folder / "offsets")
        (folder / "worker.properties").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.properties'}"
        kind = "ConnectStandalone" if standalone else "ConnectDistributed"
        main = [f"org.apache.kafka.connect.cli.{kind}", str(folder / "worker.properties")]
        options = ("-Xmx768m", *jvm_options(sustained=sustained), logging)
        command = [java(), *options, "-cp", f"{jars.folder('connect')}/*", *main]
        self.server = Server("connect", command, folder)

    def start(self) -> None:
        """Start and wait until the worker answers requests."""
        self.server.start(self._answers, seconds=120)

    def stop(self) -> None:
        """Shut down gracefully."""
        self.server.stop()

    def kill(self) -> None:
        """Send SIGKILL; the connectors resume at their committed offsets, so Kafka gets some events twice."""
        self.server.kill()

    def put_connector(self, name: str, config: Mapping[str, str], seconds: float = 180.0) -> None:
        """Create or change a connector and wait until its task runs. Raises ConnectorError with its trace."""
        wait_until(lambda: self._put(name, config), f"connector {name}", seconds)
        wait_until(lambda: self.runs(name), f"running connector {name}", seconds)

    def delete_connector(self, name: str) -> None:
        """Remove a connector; its offsets stay."""
        url, gone = f"{self.url}/connectors/{name}", (httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND)
        wait_until(lambda: http.delete(url, timeout=60).status_code in gone, f"end of connector {name}", 180)

    def status(self, name: str) -> dict[str, Any]:
        """Return the status of a connector and its tasks; empty while the worker has none."""
        answer = http.get(f"{self.url}/connectors/{name}/status", timeout=30)
        status: dict[str, Any] = answer.json() if answer.status_code == httpx.codes.OK else {}
        return status

    def runs(self, name: str) -> bool:
        """Return whether connector and tasks run. Raises ConnectorError with the trace if one has failed."""
        status = self.status(name)
        parts = [status["connector"], *status["tasks"]] if status else []
        for part in parts:
            if part["state"] == _FAILED:
                raise ConnectorError(f"{name}: {part.get('trace', '')}")
        return len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts)

    def _answers(self) -> bool:
        try:
            return http.get(f"{self.url}/health", timeout=5).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def _put(self, name: str, config: Mapping[str, str]) -> bool:
        answer = http.put(f"{self.url}/connectors/{name}/config", json=dict(config), timeout=60)
        if answer.status_code == httpx.codes.BAD_REQUEST:
            raise ConnectorError(f"{name}: {answer.json()['message']}")
        return answer.is_success  # 409 and 500 pass with the rebalance


def debezium_postgres(postgres: Postgres, database: str, prefix: str, **settings: str) -> dict[str, str]:
    """Return a configuration of Debezium's PostgreSQL connector: JSON with schemas, slot and publication ``prefix``.

    ``settings`` are further options with dots written as ``__``.
    """
    config = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "tasks.max": "1",
        "database.hostname": LOOPBACK,
        "database.port": str(postgres.port),
        "database.user": SUPERUSER,
        "database.password": "unused",
        "database.dbname": database,
        "topic.prefix": prefix,
        "plugin.name": "pgoutput",
        "slot.name": prefix,
        "publication.name": prefix,
        "publication.autocreate.mode": "all_tables",
        "snapshot.mode": "initial",
        "poll.interval.ms": "100",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "1",
    }
    return config | {key.replace("__", "."): value for key, value in settings.items()}


def _settings(bootstrap_servers: str, port: int) -> dict[str, str]:
    storage = {
        f"{kind}.storage.{key}": value
        for kind in ("config", "offset", "status")
        for key, value in {"topic": f"connect-{kind}", "replication.factor": "1"}.items()
    }
    return storage | {
        "bootstrap.servers": bootstrap_servers,
        "group.id": "connect",
        "listeners": f"http://{LOOPBACK}:{port}",
        "rest.advertised.host.name": LOOPBACK,
        "rest.advertised.port": str(port),
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "offset.storage.partitions": "2",
        "status.storage.partitions": "1",
        "offset.flush.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
        "plugin.discovery": "service_load",  # no scan of every class: starts seconds earlier
    }
