"""Tables for commits without a Spark job; observes these, and lets others commit just before one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest
from support.fix_spark import Warehouse
from support.lake.lake_harness import ITEM

from headrace.ports import LakeTable, TableOptions
from headrace_connectors.lakehouse.direct import row_index
from headrace_connectors.lakehouse.direct.direct_table import DirectTable
from headrace_connectors.lakehouse.failures import Conflict

VECTORS, SMALL = "vectors", "small"
EITHER_WAY = pytest.mark.parametrize("shop", [VECTORS, SMALL], indirect=True)


@dataclass
class Shop:
    """Tables of one test."""

    warehouse: Warehouse
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def open(self) -> LakeTable:
        return self.warehouse.lakehouse.table("shop", self.name, TableOptions(**self.options))

    def sql(self, statement: str) -> None:
        self.warehouse.session().sql(statement.format(table=f"lake.shop.`{self.name}`", name=self.name)).collect()

    def rows(self) -> dict[int, tuple[Any, ...]]:
        """All rows as Spark and PyIceberg read them, by id."""
        columns = ", ".join(ITEM.names)
        by_spark = self.warehouse.sql(f"SELECT {columns} FROM lake.shop.`{self.name}`").to_pylist()
        by_pyiceberg = self.warehouse.read("shop", self.name).select(ITEM.names).to_pylist()
        rows = {row["id"]: (row["name"], row["note"], row["qty"]) for row in by_spark}
        assert len(rows) == len(by_spark) == len(by_pyiceberg)
        assert rows == {row["id"]: (row["name"], row["note"], row["qty"]) for row in by_pyiceberg}
        return rows

    def rows_by_other_readers(self) -> dict[str, dict[int, tuple[Any, ...]]]:
        """All rows by id, as each reader of requirements/readers.txt reads them."""
        polars = pytest.importorskip("polars", reason="make soak installs requirements/readers.txt")
        duckdb = pytest.importorskip("duckdb", reason="make soak installs requirements/readers.txt")
        from duckdb_extensions import import_extension

        table = self.warehouse.static_table("shop", self.name)
        by_polars = polars.scan_iceberg(table).select(ITEM.names).collect().rows()
        with duckdb.connect() as connection:
            for name in ("avro", "iceberg"):
                import_extension(name, con=connection)
            # Otherwise 1.5.5 may take one vector of a Puffin file for another: duckdb/duckdb-iceberg#1182.
            connection.execute("SET enable_external_file_cache = false")
            columns = ", ".join(ITEM.names)
            query = f"SELECT {columns} FROM iceberg_scan('{table.metadata_location}')"
            by_duckdb = connection.execute(query).fetchall()
        rows = {"Polars": {row[0]: row[1:] for row in by_polars}, "DuckDB": {row[0]: row[1:] for row in by_duckdb}}
        assert len(rows["Polars"]) == len(by_polars)
        assert len(rows["DuckDB"]) == len(by_duckdb)
        return rows

    def row_ids(self) -> dict[int, int]:
        rows = self.warehouse.sql(f"SELECT id, _row_id FROM lake.shop.`{self.name}`").to_pylist()
        assert len({row["_row_id"] for row in rows}) == len(rows)
        return {row["id"]: row["_row_id"] for row in rows}


@pytest.fixture
def shop(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Shop:
    """Tables with deletion vectors, however small they are, or small ones where the test asks for them."""
    monkeypatch.setattr(warehouse.lakehouse.indexes, "limit", 2**20)
    if getattr(request, "param", VECTORS) == VECTORS:
        monkeypatch.setattr(row_index, "SMALL_BYTES", 0)
    return Shop(warehouse, unique("direct"))


@dataclass
class Commits:
    """How many commits were made without Spark; ``meanwhile`` is called once, just before the next one."""

    count: int = 0
    meanwhile: Callable[[], object] | None = None
    lost: bool = False
    """Whether the answer to the next commit is lost."""


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> Commits:
    found, made = Commits(), DirectTable.commit

    def observed(self: DirectTable, *request: Any, **options: Any) -> Any:
        other, found.meanwhile = found.meanwhile, None
        if other is not None:
            other()
        before = self._snapshot
        result = made(self, *request, **options)
        found.count += 1
        if found.lost:
            self._snapshot, found.lost = before, False
            raise Conflict("the result of the commit is unknown")
        return result

    monkeypatch.setattr(DirectTable, "commit", observed)
    return found
