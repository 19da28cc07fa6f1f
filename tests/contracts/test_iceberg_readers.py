"""What ``docs/operations.md`` says of readers of Iceberg tables, for those that are packages of this environment."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from support.fix_spark import Warehouse
from support.lake.lake_harness import ITEM, Row, apply, item
from support.lake.spark_harness import IcebergHarness

pytestmark = pytest.mark.spark

DELETE_FILES = {2: {".parquet"}, 3: {".puffin"}}
"""The suffix of the files that mark deleted rows, by format version. Puffin files contain deletion vectors."""


def _names(rows: pa.Table) -> dict[int, str]:
    names = {row["id"]: row["name"] for row in rows.select(["id", "name"]).to_pylist()}
    assert len(names) == rows.num_rows
    return names


@pytest.mark.parametrize("version", DELETE_FILES)
def test_spark_and_pyiceberg_read_updates_and_deletes(
    warehouse: Warehouse, unique: Callable[[str], str], version: int
) -> None:
    """Of both format versions. Merges mark rows in files of other merges, and the table has no rewritten file.

    PyIceberg opens the table by its folder, as in the example of the README.
    """
    name = unique(f"read_v{version}")
    table = IcebergHarness(warehouse).open(name, format_version=version)
    table.evolve(ITEM, ["id"])
    apply(table, *(item(key, f"n{key}", position=10, at=10) for key in range(20)))
    apply(table, *(item(key, f"u{key}", position=20, at=20) for key in range(0, 20, 3)))
    apply(table, *(Row({"id": key}, position=30, at=30, delete=True) for key in range(0, 20, 5)))
    expected = {key: f"n{key}" if key % 3 else f"u{key}" for key in range(20) if key % 5}
    folder = warehouse.path / "shop" / name
    assert {file.suffix for file in folder.glob("data/[!.]*-deletes.*")} == DELETE_FILES[version]
    assert _names(warehouse.sql(f"SELECT * FROM lake.shop.`{name}`")) == expected
    assert _names(StaticTable.from_metadata(str(folder)).scan().to_arrow()) == expected
