"""The options of the verification that a connector's tasks run beside their writes.

Tests: ``tests/unit/config/test_verify_options.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.connect.config_def import Importance, Type, any_case, at_least
from headrace.core.connect.typed_options import equal_to, option, seconds

INTERVAL = "verify.interval.ms"
REPAIR = "verify.repair"


@dataclass(frozen=True, slots=True)
class VerifySettings:
    """How often tables are compared with their source, and what that may cost. ``interval`` 0 is never."""

    interval: float = option(
        INTERVAL,
        Type.LONG,
        0,
        "Time after which a table is compared with its source table again, row by row, while both change, as by "
        "headrace verify. 0 is never. Needs reselect.database.*; compares of transformed tables the columns that "
        "transforms copy, and of a history the last state of each key. The result is in GET /connectors/<name>/tables, "
        "in the metrics headrace_verify_*, and in the properties headrace.verified.* of a table that is equal.",
        validator=at_least(0),
        read=seconds,
    )
    rows_per_second: int = option(
        "verify.max.rows.per.second",
        Type.INT,
        5_000,
        "Rows of the source that a task compares in a second at most, so that its writes keep their CPU time.",
        Importance.LOW,
        at_least(1),
    )
    source_ms_per_minute: int = option(
        "verify.max.source.ms.per.minute",
        Type.INT,
        3_000,
        "Time in a minute for which the statements of a task's verification may run in the source database: 3000 is 5 "
        "percent of one of its cores at most.",
        Importance.LOW,
        at_least(1),
    )
    repairs: bool = option(
        REPAIR,
        Type.STRING,
        "none",
        "auto writes rows that differ again, as headrace verify --repair does, and compares them once more. none only "
        "reports them. A history is never repaired.",
        validator=any_case("none", "auto"),
        read=equal_to("auto"),
    )
    repairs_per_hour: int = option(
        "verify.repair.max.rows.per.hour",
        Type.INT,
        1_000,
        "Rows of a table that verify.repair=auto writes in an hour at most. More rows point to a cause that a repair "
        "would hide: they stay as they are and are reported.",
        Importance.LOW,
        at_least(0),
    )
