"""What a snapshot of an Iceberg table says about its place in the history."""

from __future__ import annotations

import pytest

from headrace_connectors.lakehouse.iceberg_table import Snapshot


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
