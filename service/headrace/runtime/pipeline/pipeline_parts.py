"""The options of a table's pipeline, and the measurement of its stages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


class Stages(Protocol):
    """Where the time goes: ``stages("fold")`` measures what its block does."""

    def __call__(self, stage: str) -> AbstractContextManager[None]:
        """Measure one stage of one batch."""


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """What the connector says about applying changes. Times in microseconds.

    ``shared``: the operator has named a key, so that several source tables may feed one table. ``unknown_null_mode``
    is for histories; in other tables the post-processor applies it.
    """

    unresolved_insert_mode: str = "auto"
    unknown_null_mode: str = "keep"
    evolve: bool = True
    position_regression: int = 3_600_000_000
    tombstone_retention: int = 7 * 86_400_000_000
    shared: bool = False
