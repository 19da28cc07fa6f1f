"""The servers of the development stack: start them, give access to them, and remove their data at the end."""

from __future__ import annotations

import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace_dev.connect import Connect
from headrace_dev.kafka import Kafka
from headrace_dev.postgres import Postgres
from headrace_dev.registry import Registry


class Part(StrEnum):
    """The servers of a stack; ``CONNECT`` needs ``KAFKA``, ``STANDBY`` follows ``POSTGRES``."""

    KAFKA = "kafka"
    POSTGRES = "postgres"
    STANDBY = "standby"
    CONNECT = "connect"
    REGISTRY = "registry"


_NEEDS = {Part.CONNECT: Part.KAFKA, Part.STANDBY: Part.POSTGRES}


class Stack:
    """Kafka, PostgreSQL, Connect, a registry, in one temporary folder; several stacks may run at the same time.

    As a context manager it starts the parts it was made with, and keeps the logs in ``logs`` if the block fails.
    ``start`` may be called again for more parts. ``sustained``: see ``jvm_options``.
    """

    def __init__(self, *parts: Part | str, logs: Path = Path(".logs"), sustained: bool = False) -> None:
        self._sustained = sustained
        self._wanted = tuple(parts) or (Part.KAFKA, Part.POSTGRES, Part.CONNECT)
        self._logs = logs
        self._started: list[Kafka | Postgres | Connect | Registry] = []

    @cached_property
    def root(self) -> Path:
        """The stack's folder, created at the first access, so that a stack that was never started has none."""
        root = Path(tempfile.mkdtemp(prefix="headrace-stack-"))
        root.chmod(0o711)  # PostgreSQL may run as another account
        return root

    @cached_property
    def kafka(self) -> Kafka:
        """The broker."""
        return Kafka(self.root, sustained=self._sustained)

    @cached_property
    def postgres(self) -> Postgres:
        """The database server."""
        return Postgres(self.root)

    @cached_property
    def standby(self) -> Postgres:
        """A streaming replica of ``postgres``."""
        return Postgres(self.root, "standby", self.postgres)

    @cached_property
    def connect(self) -> Connect:
        """The Connect worker with Debezium."""
        return Connect(self.root, self.kafka, sustained=self._sustained)

    @cached_property
    def registry(self) -> Registry:
        """A schema registry."""
        return Registry(self.root)

    def start(self, *parts: Part | str) -> None:
        """Start those of ``parts`` that do not run yet; without arguments, the parts of the constructor."""
        wanted = {Part(part) for part in parts or self._wanted}
        wanted |= {_NEEDS[part] for part in wanted if part in _NEEDS}
        # Kafka and PostgreSQL are independent; Connect needs a running broker, a standby needs its primary.
        with ThreadPoolExecutor() as pool:
            list(pool.map(self._start, [self._server(part) for part in sorted(wanted - set(_NEEDS))]))
            list(pool.map(self._start, [self._server(part) for part in sorted(wanted & set(_NEEDS))]))

    def stop(self, *, failed: bool = False) -> None:
        """Stop all parts and remove their data; ``failed`` keeps the logs and prints their folder. Idempotent."""
        while self._started:
            self._started.pop().stop()
        if "root" not in self.__dict__:
            return
        if failed and self.root.exists():
            self._keep_logs()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(failed=True)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop(failed=kind is not None)

    def _server(self, part: Part) -> Kafka | Postgres | Connect | Registry:
        server: Kafka | Postgres | Connect | Registry = getattr(self, part)
        return server

    def _start(self, server: Kafka | Postgres | Connect | Registry) -> None:
        if server not in self._started:
            self._started.append(server)
            server.start()

    def _keep_logs(self) -> None:
        kept = self._logs / self.root.name
        kept.mkdir(parents=True, exist_ok=True)
        for log in self.root.glob("*.log"):
            shutil.copy(log, kept)
        print(f"logs of the stack: {kept.resolve()}", file=sys.stderr)
