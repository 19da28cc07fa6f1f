"""The contract of lake tables, kept by the tables that Spark writes, in every format.

PyIceberg reads the Iceberg tables, so that not only the engine that wrote them agrees. Delta tables are read by Spark,
and what their commits say from the log itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from contracts.lake_table_suite import LakeTableSuite
from fix_spark import Warehouse

from headrace.ports import TableOptions
from headrace_connectors.lakehouse.writer import SparkTable

pytestmark = pytest.mark.spark


class IcebergHarness:
    """Tables of the run's warehouse. Reading them does not go through Spark."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def open(self, name: str) -> SparkTable:
        return self._warehouse.lakehouse.table("shop", name, TableOptions())

    def read(self, name: str) -> pa.Table:
        return self._warehouse.read("shop", name)

    def summary(self, name: str) -> Mapping[str, str]:
        summary = self._warehouse.summary("shop", name)
        return {key: value for key, value in summary.items() if key.startswith("headrace.")}

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self._warehouse.sql(f"INSERT INTO lake.shop.`{name}` {_row(cells)}")


class DeltaHarness:
    """The same with Delta tables."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def open(self, name: str) -> SparkTable:
        return self._warehouse.lakehouse.table("delta_shop", name, TableOptions("delta"))

    def read(self, name: str) -> pa.Table:
        return self._warehouse.sql(f"SELECT * FROM {self._sql_name(name)}")

    def summary(self, name: str) -> Mapping[str, str]:
        for entry in sorted((self._warehouse.path / "delta_shop" / name / "_delta_log").glob("*.json"), reverse=True):
            actions = map(json.loads, entry.read_text().splitlines())
            told = [action["commitInfo"].get("userMetadata") for action in actions if "commitInfo" in action]
            if told[0] is not None:
                return json.loads(told[0])
        return {}

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self._warehouse.sql(f"INSERT INTO {self._sql_name(name)} {_row(cells)}")

    def _sql_name(self, name: str) -> str:
        path = str(self._warehouse.path / "delta_shop" / name).replace("`", "``")
        return f"delta.`{path}`"


def _row(cells: Mapping[str, Any]) -> str:
    return f"({', '.join(cells)}) VALUES ({', '.join(repr(cell) for cell in cells.values())})"


class TestIcebergTable(LakeTableSuite):
    """Iceberg tables pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> IcebergHarness:
        return IcebergHarness(warehouse)


class TestDeltaTable(LakeTableSuite):
    """Delta tables pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)
