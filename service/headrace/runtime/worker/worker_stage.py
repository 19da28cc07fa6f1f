"""The stage of a worker, which REST answers contain while it starts, is stuck or takes too long (KIP-1017)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """An operation of the worker, and when it began."""

    name: str
    began: datetime

    def sentence(self) -> str:
        """Return Kafka Connect's sentence about the stage."""
        began = self.began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"The worker is currently {self.name}, which began at {began}."


def utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)
