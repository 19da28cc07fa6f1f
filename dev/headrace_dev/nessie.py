"""Nessie: a catalog with Iceberg's REST interface, in memory, on 127.0.0.1 only. It needs ``java_home_of_servers``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
from pyiceberg.table import StaticTable

from headrace_dev import jars
from headrace_dev.demo.compare import data_rows
from headrace_dev.object_store import ACCESS_KEY, REGION, SECRET_KEY, ObjectStore
from headrace_dev.server import LOOPBACK, Server, free_ports, http

WAREHOUSE = "lake"
_STORE = "nessie.catalog.service.s3.default-options"
_SECRET = "headrace-store"


class Nessie:
    """One server, whose warehouse is a folder of the bucket of ``store``. Its tables end with the process.

    It writes the metadata of tables itself, through the proxy of the store. ``client_endpoint`` is the URL of the store
    that clients get, if they reach it at another one.
    """

    def __init__(self, root: Path, java: Path, store: ObjectStore, client_endpoint: str = "") -> None:
        self.port, management = free_ports(2)
        self.url = f"http://{LOOPBACK}:{self.port}/iceberg"
        self._store = store
        self.location = f"s3://{store.bucket}/nessie"
        folder = root.resolve() / "nessie"
        folder.mkdir()
        options = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self.port),
            "quarkus.management.host": LOOPBACK,
            "quarkus.management.port": str(management),
            "nessie.version.store.type": "IN_MEMORY",
            "nessie.server.authentication.enabled": "false",
            "nessie.catalog.default-warehouse": WAREHOUSE,
            f"nessie.catalog.warehouses.{WAREHOUSE}.location": self.location,
            f"{_STORE}.endpoint": f"{store.endpoint}/",
            **({f"{_STORE}.external-endpoint": client_endpoint} if client_endpoint else {}),
            f"{_STORE}.region": REGION,
            f"{_STORE}.path-style-access": "true",
            f"{_STORE}.auth-type": "STATIC",
            f"{_STORE}.access-key": f"urn:nessie-secret:quarkus:{_SECRET}",
            # Iceberg's client does not understand the answers of this Nessie to requests for signatures.
            f"{_STORE}.request-signing-enabled": "false",
            f"{_SECRET}.name": ACCESS_KEY,
            f"{_SECRET}.secret": SECRET_KEY,
        }
        memory = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        properties = [f"-D{name}={value}" for name, value in options.items()]
        [runner] = jars.resolve("nessie")
        self.server = Server("nessie", [str(java / "bin" / "java"), *memory, *properties, "-jar", str(runner)], folder)

    def start(self) -> None:
        """Start and wait until the server answers: 10 to 60 s."""
        self.server.start(self._answers, seconds=180)

    def stop(self) -> None:
        """End the process; its tables are discarded."""
        self.server.kill()

    def load(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The answer for a table, with its newest metadata; None while it does not exist."""
        path = f"/v1/{self._prefix}/namespaces/{namespace}/tables/{name}"
        answer = http.get(f"{self.url}{path}", timeout=60)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        document: dict[str, Any] = answer.raise_for_status().json()
        return document

    def snapshot(self, namespace: str, name: str) -> int | None:
        """The id of a table's newest snapshot; None before its first commit."""
        found = self.load(namespace, name)
        return found["metadata"].get("current-snapshot-id") if found else None

    def rows(self, namespace: str, name: str) -> Sequence[dict[str, Any]]:
        """The data columns of every row of a table; none while it does not exist."""
        found = self.load(namespace, name)
        if not found:
            return []
        return data_rows(StaticTable.from_metadata(found["metadata-location"], dict(self._store.reader_settings())))

    def tables(self, namespace: str) -> Sequence[str]:
        """The names of the tables of a namespace."""
        answer = http.get(f"{self.url}/v1/{self._prefix}/namespaces/{namespace}/tables", timeout=60)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        return [table["name"] for table in answer.raise_for_status().json()["identifiers"]]

    @property
    def _prefix(self) -> str:
        config = http.get(f"{self.url}/v1/config", timeout=30).raise_for_status().json()
        prefix: str = {**config["defaults"], **config["overrides"]}["prefix"]
        return prefix

    def _answers(self) -> bool:
        try:
            return http.get(f"{self.url}/v1/config", timeout=5).is_success
        except httpx.TransportError:
            return False
