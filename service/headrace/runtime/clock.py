"""The current time in the unit of source times."""

from __future__ import annotations

import time


def now() -> int:
    """Return microseconds since the epoch."""
    return time.time_ns() // 1000
