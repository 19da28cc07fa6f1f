"""The contract of lake tables, kept by Iceberg tables that Spark writes and PyIceberg reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from contracts.lake_table_suite import LakeTableSuite
from fix_spark import Warehouse

from headrace.ports import TableOptions
from headrace_connectors.lakehouse.writer import SparkTable

pytestmark = pytest.mark.spark


class SparkHarness:
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
        columns, values = ", ".join(cells), ", ".join(repr(cell) for cell in cells.values())
        self._warehouse.sql(f"INSERT INTO lake.shop.`{name}` ({columns}) VALUES ({values})")


class TestSparkTable(LakeTableSuite):
    """Iceberg tables pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> SparkHarness:
        return SparkHarness(warehouse)
