"""What goes wrong on the machine of a worker: its memory and its temporary folder.

Tests: ``tests/unit/core/doctor/test_machine.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity

_MIB = 2**20
LEAST_FREE = 2 * 2**30
"""Free bytes below which shuffles and staged batches of Spark may fill the temporary folder."""


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    WORKER_MEMORY = "worker-memory"
    WORKER_TEMPORARY_SPACE = "worker-temporary-space"


@dataclass(frozen=True, slots=True)
class Machine:
    """Bytes of memory that the worker needs and may have, with the sum as text, and free bytes of ``folder``."""

    needed: int
    available: int
    memory: str
    folder: str
    free: int


def findings(machine: Machine) -> Iterator[Finding]:
    """Yield the findings of a machine."""
    if machine.needed > machine.available:
        yield Finding(
            Rule.WORKER_MEMORY,
            Severity.ERROR,
            "this machine, memory",
            "the worker is killed when it uses what it is configured to use",
            machine.memory,
            "lower spark.driver.memory or worker.memory.bytes, or raise the limit of the container",
        )
    if machine.free < LEAST_FREE:
        yield Finding(
            Rule.WORKER_TEMPORARY_SPACE,
            Severity.WARNING,
            f"this machine, folder {machine.folder}",
            "large batches and compactions fail: Spark keeps their rows in temporary files",
            f"{machine.free // _MIB:,} MiB are free",
            "SPARK_LOCAL_DIRS=/path/with/space  # in the environment of the worker",
        )
