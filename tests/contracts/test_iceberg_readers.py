"""What ``docs/operations.md`` says of readers of Iceberg tables, for those that are packages of this environment."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from support.fix_spark import Warehouse
from support.lake.lake_harness import ITEM, Row, apply, item
from support.lake.spark_harness import IcebergHarness

from headrace.core.tables.table_queries import TablePlace, table_queries

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
    place = TablePlace("iceberg", "lake", "shop", name, {}, str(warehouse.path))
    texts = {query.engine: query.text for query in table_queries(place)}
    assert _names(warehouse.sql(texts["Spark"])) == expected
    assert _names(_value(texts["PyIceberg"])) == expected
    if version == 3 and find_spec("duckdb"):  # make soak installs requirements/readers.txt
        assert _names(_by_duckdb(texts["DuckDB"])) == expected


def _value(text: str) -> pa.Table:
    """The value of the last line of a text in Python, which is run as it is."""
    *lines, last = text.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # noqa: S102 - what people copy has to run
    table: pa.Table = eval(last, names)  # noqa: S307 - as above
    return table


def _by_duckdb(text: str) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            import_extension(name, con=connection)
        return connection.execute(text).to_arrow_table()
