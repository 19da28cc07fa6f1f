"""How many rows one SELECT of reselect asks for (``reselect.batch.max.keys`` and ``.max.bytes``).

The bytes of a row are known only once rows have been read, so each answer sets the size of the next question to its
table. The first one takes rows for as large as what sources store out of line tends to be. A question that took too
long is asked in halves, and only what was answered in full without such a failure lets the next one grow again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FIRST_GUESS = 64 * 1024
"""Bytes of a row of which nothing was read yet: with the defaults it leaves ``max.keys`` as the bound."""
MOST = 1 << 29
"""Bytes that are in any case few enough for one column of Arrow, which holds 2 GiB, in whatever encoding of text."""
_NUMBER = 8
_GROWTH = 8
"""Behind a time-out, each request that had none adds an eighth."""


class SelectSize:
    """The size of the next SELECT of one table: at most ``max_keys`` rows that bring about ``max_bytes``.

    Rows whose size is known bring about MOST bytes, whatever ``max_bytes`` says; the first guess is left to it.
    """

    def __init__(self, max_keys: int, max_bytes: int) -> None:
        self._max_keys = max(max_keys, 1)
        self._max_bytes = max_bytes
        self._row = FIRST_GUESS
        self._in_time = self._max_keys
        self._late = False

    def rows(self) -> int:
        """How many rows to ask for; at least one, however large it may be."""
        return max(1, min(self._in_time, self._max_bytes // max(self._row, 1)))

    def timed_out(self, rows: int) -> None:
        """A SELECT of ``rows`` rows took too long."""
        self._in_time, self._late = max(1, rows // 2), True

    def answered(self) -> None:
        """All rows of a request have been read, in however many SELECTs and attempts."""
        if not self._late:
            self._in_time = min(self._max_keys, self._in_time + max(1, self._in_time // _GROWTH))
        self._late = False

    def learn(self, rows: int, columns: Sequence[Sequence[Any]]) -> int:
        """``rows`` rows have been read; ``columns`` hold their values. Returns their bytes."""
        size = sum(value_bytes(value) for column in columns for value in column) if rows else 0
        if rows:
            self._row = -(-size // rows)
            self._max_bytes = min(self._max_bytes, MOST)
        return size


def value_bytes(value: object) -> int:
    """Bytes of a Connect value, near enough for a bound."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(value_bytes(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return sum(value_bytes(item) for item in value)
    return _NUMBER
