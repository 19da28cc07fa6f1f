"""A 32-bit transaction id of an event is extended to the nearest 64-bit id."""

from __future__ import annotations

import pytest

from headrace_connectors.sql.postgres import full_transaction_id

EPOCH = 1 << 32


@pytest.mark.parametrize(
    ("number", "next_id", "expected"),
    [
        (700, 750, 700),
        (750, 750, 750),
        (760, 750, 760),
        (5, EPOCH + 10, EPOCH + 5),
        (EPOCH - 5, EPOCH + 10, EPOCH - 5),
        (3, 2 * EPOCH - 2, 2 * EPOCH + 3),
    ],
)
def test_nearest_full_id(number: int, next_id: int, expected: int) -> None:
    """The nearest id may be in the previous, the same or the next epoch of the 32-bit counter."""
    assert full_transaction_id(number, next_id) == expected
