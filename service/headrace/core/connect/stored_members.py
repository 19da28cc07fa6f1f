"""Members of the JSON documents in the config and status topics, which other programs may have written.

Tests: ``tests/unit/core/connect/test_dead_letters.py``, ``test_resnapshots.py``, ``test_timeline.py``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any


def text_of(value: Any) -> str:
    """Return text that an answer can contain. Raises TypeError, or UnicodeEncodeError for half of a surrogate pair."""
    if not isinstance(value, str):
        raise TypeError("a member of the document is not text")
    value.encode()
    return value


def seconds_of(text: str) -> float:
    """Return a time in seconds since the epoch. Raises ValueError or TypeError."""
    return datetime.fromisoformat(text).timestamp()
