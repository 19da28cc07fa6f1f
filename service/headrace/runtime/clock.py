"""The time of day in the unit of source times."""

from __future__ import annotations

import time


def now() -> int:
    """Microseconds since the epoch."""
    return time.time_ns() // 1000
