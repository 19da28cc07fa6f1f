"""What a snapshot of an Iceberg table says about its place in the history."""

from __future__ import annotations

import pytest

from headrace.core.model.table_files import TableFiles
from headrace_connectors.lakehouse.iceberg_table import Snapshot, files_of


@pytest.mark.parametrize(
    ("parent", "sequence", "first"),
    [
        pytest.param(None, 1, True, id="first"),
        pytest.param(7, 2, False, id="second"),
        pytest.param(None, 2, False, id="a catalog that hides the parent"),
        pytest.param(None, 0, True, id="first of version 1"),
        pytest.param(7, 0, False, id="second of version 1"),
    ],
)
def test_the_first_snapshot_is_known_without_its_parent(parent: int | None, sequence: int, first: bool) -> None:
    """Nessie shows no parent. Two writers that both found the table empty would not notice each other."""
    assert Snapshot(8, parent, sequence, {}).is_first is first


def test_the_files_of_a_table_are_the_totals_of_a_snapshot() -> None:
    """Totals that are zero may be missing. A summary without totals says nothing."""
    summary = {
        "total-data-files": "12",
        "total-delete-files": "3",
        "total-files-size": "48000",
        "total-records": "1000",
        "total-position-deletes": "250",
    }
    assert files_of(summary) == TableFiles(12, 3, 48_000, 1_000, 250)
    assert files_of({"total-data-files": "1", "total-records": "5"}) == TableFiles(1, 0, 0, 5, 0)
    assert files_of({"operation": "append"}) is None
