"""The number of rows of one SELECT of reselect (``reselect.batch.max.keys`` and ``.max.bytes``).

The bytes of a row are known only after rows have been read, so each answer sets the size of the next SELECT of its
table. The first SELECT assumes a typical size of values that are stored out of line. After a time-out, the rows are
read in halves, and the size grows again only after requests without time-outs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FIRST_GUESS = 64 * 1024
"""The assumed bytes of a row before the first read: with the defaults, ``max.keys`` remains the bound."""
MOST = 1 << 29
"""Bytes that fit into one column of Arrow, which holds 2 GiB, in any encoding of text."""
_NUMBER = 8
_GROWTH = 8
"""After a time-out, each request without one increases the size by an eighth."""


class SelectSize:
    """The size of the next SELECT of one table: at most ``max_keys`` rows of about ``max_bytes``.

    SELECTs of rows whose size is known read about MOST bytes at most, even if ``max_bytes`` is higher.
    """

    def __init__(self, max_keys: int, max_bytes: int) -> None:
        self._max_keys = max(max_keys, 1)
        self._max_bytes = max_bytes
        self._row = FIRST_GUESS
        self._in_time = self._max_keys
        self._late = False

    def rows(self) -> int:
        """Return the number of rows to read; at least one, regardless of its size."""
        return max(1, min(self._in_time, self._max_bytes // max(self._row, 1)))

    def timed_out(self, rows: int) -> None:
        """Register that a SELECT of ``rows`` rows took too long."""
        self._in_time, self._late = max(1, rows // 2), True

    def answered(self) -> None:
        """Register that all rows of a request have been read, in any number of SELECTs and attempts."""
        if not self._late:
            self._in_time = min(self._max_keys, self._in_time + max(1, self._in_time // _GROWTH))
        self._late = False

    def learn(self, rows: int, columns: Sequence[Sequence[Any]]) -> int:
        """Register that ``rows`` rows with these values by column have been read, and return their bytes."""
        size = sum(value_bytes(value) for column in columns for value in column) if rows else 0
        if rows:
            self._row = -(-size // rows)
            self._max_bytes = min(self._max_bytes, MOST)
        return size


def value_bytes(value: object) -> int:
    """Return the approximate bytes of a Connect value."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(value_bytes(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return sum(value_bytes(item) for item in value)
    return _NUMBER
