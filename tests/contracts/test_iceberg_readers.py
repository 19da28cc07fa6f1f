"""What ``docs/operations.md`` says of readers of Iceberg tables, for those that are packages of this environment."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable
from support.fix_spark import Warehouse
from support.lake.lake_actions import actions, commit
from support.lake.lake_harness import ITEM, Row, apply, item
from support.lake.spark_harness import IcebergHarness

from headrace.core.tables.table_queries import TablePlace, table_queries
from headrace.core.verify.table_digest import TableDigest
from headrace_connectors.lakehouse.direct import row_index

pytestmark = pytest.mark.spark

DELETE_FILES = {2: {".parquet"}, 3: {".puffin"}}
"""The suffix of the files that mark deleted rows, by format version. Puffin files contain deletion vectors."""


def _names(rows: pa.Table) -> dict[int, str]:
    names = {row["id"]: row["name"] for row in rows.select(["id", "name"]).to_pylist()}
    assert len(names) == rows.num_rows
    return names


@pytest.mark.parametrize("version", DELETE_FILES)
def test_spark_and_pyiceberg_read_updates_and_deletes(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    """Of both format versions. Merges mark rows in files of other merges, and the table has no rewritten file.

    PyIceberg opens the table by its folder, as in the example of the README.
    """
    monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
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


def test_readers_recompute_the_digest_of_a_proof(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """The examples of ``docs/operations.md`` return the digest of the snapshot that was verified."""
    name = unique("orders")
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("state", pa.string()),
            ("total", pa.decimal128(10, 2)),
            ("paid", pa.bool_()),
            ("placed", pa.timestamp("us", "UTC")),
        ]
    )
    table = IcebergHarness(warehouse).open(name)
    table.evolve(schema, ["id"])
    for batch in range(3):
        rows = [_order(key, f"bezahlt für {batch}") for key in range(batch, 50, batch + 1)]
        table.merge(actions(schema, [Row(row, position=batch + 1, at=batch + 1) for row in rows]), commit())
    snapshot = table.snapshot(schema.names)
    assert snapshot is not None
    digest = TableDigest(snapshot)
    for piece in table.scan(schema.names, snapshot):
        digest.add(piece)
    table.merge(actions(schema, [Row(_order(7, "later"), position=9, at=9)]), commit())
    text = Path("docs/operations.md").read_text().partition("### Recompute the digest of a table")[2]
    text = text.replace("/warehouse/headrace/shop_public_orders", str(warehouse.path / "shop" / name))
    text = text.replace("5903478123", snapshot)
    [example] = re.findall(r"```python\n(.*?)```", text.partition("### Tables of Oracle")[0], re.DOTALL)
    lines, _, last = example.strip().rpartition("\n")
    names: dict[str, Any] = {}
    exec(lines, names)  # noqa: S102 - what people copy has to run
    assert eval(last.removeprefix("print"), names) == digest.text  # noqa: S307 - as above
    if find_spec("duckdb"):
        macro, query = re.findall(r"```sql\n(.*?);\n\n(.*?);\n```", text, re.DOTALL)[0]
        assert _by_duckdb(query, macro).to_pydict().popitem()[1] == [digest.text]


def _order(key: int, state: str) -> dict[str, Any]:
    """A row in which some cells are null."""
    return {
        "id": key,
        "state": state if key % 3 else None,
        "total": Decimal(key - 20) / 100 if key % 5 else None,
        "paid": key % 2 == 0,
        "placed": datetime(2026, 1, 2, 3, 4, 5, 678_901 + key, UTC) if key % 7 else None,
    }


def _value(text: str) -> pa.Table:
    """The value of the last line of a text in Python, which is run as it is."""
    *lines, last = text.splitlines()
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)  # noqa: S102 - what people copy has to run
    table: pa.Table = eval(last, names)  # noqa: S307 - as above
    return table


def _by_duckdb(text: str, *before: str) -> pa.Table:
    import duckdb
    from duckdb_extensions import import_extension

    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            import_extension(name, con=connection)
        for statement in before:
            connection.execute(statement)
        return connection.execute(text).to_arrow_table()
