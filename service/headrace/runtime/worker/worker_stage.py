"""What a worker is busy with: a part of its answers while it starts, is stuck or takes too long (KIP-1017)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class WorkerStage:
    """What it does, and since when."""

    name: str
    began: datetime

    def sentence(self) -> str:
        """Connect's sentence about the stage."""
        began = self.began.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return f"The worker is currently {self.name}, which began at {began}."


def utc_now() -> datetime:
    """The time of day."""
    return datetime.now(UTC)
