"""The admission of tables to the column cache."""

from __future__ import annotations

import pyarrow as pa

from headrace.core.model.events import TableId
from headrace.core.reselect.cache.admission import Admission

TABLE, OTHER = TableId("shop", "db", "public", "docs"), TableId("shop", "db", "public", "items")


def keys(first: int, count: int) -> pa.StringArray:
    """The keys of rows ``first`` to ``first + count``."""
    return pa.array([f"={number}" for number in range(first, first + count)], pa.string())


def test_a_table_whose_rows_are_read_once_is_not_admitted() -> None:
    """More rows than are remembered do not count as read again because they share a place."""
    admission = Admission()
    for first in range(0, 300_000, 10_000):
        admission.observe(TABLE, keys(first, 10_000))
        assert not admission.admits(TABLE)


def test_the_second_read_of_a_row_admits_a_small_table() -> None:
    """Other tables are not admitted with it."""
    admission = Admission()
    admission.observe(TABLE, keys(0, 10))
    admission.observe(OTHER, keys(0, 10))
    assert not admission.admits(TABLE)
    admission.observe(TABLE, keys(5, 10))
    assert admission.admits(TABLE)
    assert not admission.admits(OTHER)


def test_a_table_with_few_repeated_reads_is_not_admitted() -> None:
    """A share of one in a hundred costs more than it saves; one in ten is enough."""
    admission = Admission()
    for number in range(50):
        admission.observe(TABLE, keys(1_000 * number, 1_000))
        admission.observe(TABLE, keys(1_000 * number, 10))
    assert not admission.admits(TABLE)
    for number in range(50, 200):
        admission.observe(TABLE, keys(1_000 * number, 1_000))
        admission.observe(TABLE, keys(1_000 * number, 150))
    assert admission.admits(TABLE)
