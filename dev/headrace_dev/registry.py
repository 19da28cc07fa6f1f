"""Apicurio's schema registry, in memory: its own API and Confluent's, on 127.0.0.1 only (``stack.md`` section 6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx

from headrace_dev import jars
from headrace_dev.java import java, jvm_options
from headrace_dev.server import LOOPBACK, Server, free_ports, http
from headrace_dev.versions import APICURIO


class Registry:
    """One registry. ``stop`` discards the schemas."""

    def __init__(self, root: Path) -> None:
        [port] = free_ports(1)
        self.url = f"http://{LOOPBACK}:{port}"
        self.confluent_url = f"{self.url}/apis/ccompat/v7"
        self.apicurio_url = f"{self.url}/apis/registry/v2"
        folder = root / "registry"
        folder.mkdir(mode=0o755)
        runner = jars.unpacked("apicurio") / f"apicurio-registry-app-{APICURIO}-runner.jar"
        address = (f"-Dquarkus.http.host={LOOPBACK}", f"-Dquarkus.http.port={port}")
        self.server = Server("registry", [java(), "-Xmx384m", *jvm_options(), *address, "-jar", str(runner)], folder)

    def start(self) -> None:
        """Start and wait until the registry answers."""
        self.server.start(self._answers, seconds=180)

    def stop(self) -> None:
        """Shut down gracefully."""
        self.server.stop()

    def register(
        self, subject: str, schema: object, schema_type: str = "AVRO", references: list[Any] | None = None
    ) -> int:
        """Register a version of a subject and return its id. A text is sent unchanged, any other schema as JSON."""
        body = {
            "schema": schema if isinstance(schema, str) else json.dumps(schema),
            "schemaType": schema_type,
            "references": references or [],
        }
        answer = http.post(f"{self.confluent_url}/subjects/{subject}/versions", json=body, timeout=30)
        answer.raise_for_status()
        return int(answer.json()["id"])

    def _answers(self) -> bool:
        try:
            return http.get(f"{self.confluent_url}/subjects", timeout=5).is_success
        except httpx.TransportError:
            return False
