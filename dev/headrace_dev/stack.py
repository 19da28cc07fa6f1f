"""The real systems as one: start what is wanted, hand it out, leave nothing behind."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from headrace_dev.kafka import Kafka


class Stack:
    """Kafka, and later its neighbours, in a temporary folder of their own."""

    def __init__(self, logs: Path | None = None) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="headrace-stack-"))
        self.root.chmod(0o711)
        self._logs = logs
        self.kafka = Kafka(self.root)

    def start(self) -> None:
        """Start all parts."""
        self.kafka.start()

    def stop(self, *, failed: bool = False) -> None:
        """Stop all parts and remove their data; ``failed`` keeps the logs and says where. Idempotent."""
        self.kafka.stop()
        if failed and self._logs is not None and self.root.exists():
            self._logs.mkdir(parents=True, exist_ok=True)
            for log in self.root.glob("*.log"):
                shutil.copy(log, self._logs)
            print(f"logs of the stack: {self._logs}", file=sys.stderr)
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.stop(failed=kind is not None)
