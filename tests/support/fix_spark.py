"""A Spark session and its warehouse, started once per run if a test requests them."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.guarded_calls import guarded_calls

from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve
from headrace_dev.worker import SHORT_LIVED

_SETTINGS = {
    **SHORT_LIVED,
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    # Each test has its own plans for a few rows: compiling them to Java takes longer than interpreting them. The tests
    # that start a worker (end to end, recordings, chaos) use the default, as in production.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
OTHER = "other"
"""A second catalog, whose tables are in a folder of this name."""


GONE = "gone"
"""A REST catalog that does not answer."""


class Warehouse:
    """A lakehouse on a local path, with other catalogs; ``read`` and ``summary`` read its files without Spark."""

    def __init__(self, path: Path) -> None:
        self.path = path
        other = f"spark.sql.catalog.{OTHER}"
        catalog = {
            other: "org.apache.iceberg.spark.SparkCatalog",
            f"{other}.type": "hadoop",
            f"{other}.warehouse": str(path / OTHER),
            f"spark.sql.catalog.{GONE}": "org.apache.iceberg.spark.SparkCatalog",
            f"spark.sql.catalog.{GONE}.type": "rest",
            f"spark.sql.catalog.{GONE}.uri": "http://127.0.0.1:1",
        }
        self.lakehouse = SparkLakehouse(str(path), _SETTINGS | catalog, resolve("lakehouse"))

    def read(self, namespace: str, name: str) -> pa.Table:
        """Return all rows and columns of a table, in any order."""
        rows = self.static_table(namespace, name).scan().to_arrow()
        if any(_is_list_of_structs(column.type) for column in rows.schema):
            # PyIceberg 0.12 returns an empty list for null; Spark returns null, as the file contains.
            return self.session().table(f"lake.`{namespace}`.`{name}`").toArrow()
        return rows

    def summary(self, namespace: str, name: str) -> Mapping[str, str]:
        """Return the properties of the newest snapshot."""
        snapshot = self.static_table(namespace, name).current_snapshot()
        return {} if snapshot is None else dict(snapshot.summary.additional_properties)

    def sql(self, statement: str) -> pa.Table:
        """Execute a statement as another writer does."""
        return self.session().sql(statement).toArrow()

    def session(self) -> Any:
        """Return a Spark session of another writer, beside those of the tables."""
        from pyspark.sql import SparkSession  # late: tests without Spark collect this file too

        session = SparkSession.getActiveSession()
        assert session is not None, "open a table first: that starts Spark"
        return session.newSession()

    def static_table(self, namespace: str, name: str) -> Any:
        """Return the newest state of a table as PyIceberg's StaticTable."""
        from headrace_dev.demo.compare import lake_table  # late, as above

        table = lake_table(self.path / namespace / name)
        assert table
        return table


def _is_list_of_structs(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore the sockets for results that PySpark leaves to the garbage collector."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.hookimpl(trylast=True)  # after the fixtures' teardown
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Collect those sockets before a test that would be blamed for them."""
    if item.get_closest_marker("spark") and (nextitem is None or not nextitem.get_closest_marker("spark")):
        gc.collect()


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """Yield one warehouse for all tests of a run; each test has its own table names (``unique``)."""
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    with guarded_calls():
        yield warehouse
        warehouse.lakehouse.close()
