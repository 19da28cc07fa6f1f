"""A Spark session and its warehouse, started once per run and only when a test asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace_connectors.lakehouse import SparkLakehouse
from headrace_dev.jars import resolve
from headrace_dev.worker import SHORT_LIVED

_SETTINGS = {
    **SHORT_LIVED,
    "spark.master": "local[2]",
    "spark.driver.memory": "2g",
    # Each test has plans of its own for a few rows: to compile Java for them takes longer than to interpret them. The
    # tests that start a worker (end to end, recordings, chaos) leave this as it is in production.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


class Warehouse:
    """A lakehouse on a local path; ``read`` and ``summary`` look at its files without Spark."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lakehouse = SparkLakehouse(str(path), _SETTINGS, resolve("lakehouse"))

    def read(self, namespace: str, name: str) -> pa.Table:
        """All rows and columns of a table, in any order."""
        rows = self._table(namespace, name).scan().to_arrow()
        if any(_is_list_of_structs(column.type) for column in rows.schema):
            # PyIceberg 0.12 gives such a list as empty where it is null; Spark and the file itself say null.
            return self.session().table(f"lake.`{namespace}`.`{name}`").toArrow()
        return rows

    def summary(self, namespace: str, name: str) -> Mapping[str, str]:
        """What the newest snapshot says about itself."""
        snapshot = self._table(namespace, name).current_snapshot()
        return {} if snapshot is None else dict(snapshot.summary.additional_properties)

    def sql(self, statement: str) -> pa.Table:
        """Run a statement as somebody else would."""
        return self.session().sql(statement).toArrow()

    def session(self) -> Any:
        """A Spark session of somebody else, beside those of the tables."""
        from pyspark.sql import SparkSession  # late: tests without Spark collect this file too

        session = SparkSession.getActiveSession()
        assert session is not None, "open a table first: that starts Spark"
        return session.newSession()

    def _table(self, namespace: str, name: str) -> Any:
        from pyiceberg.table import StaticTable  # late, as above

        metadata = self.path / namespace / name / "metadata"
        version = (metadata / "version-hint.text").read_text().strip()
        return StaticTable.from_metadata(str(metadata / f"v{version}.metadata.json"))


def _is_list_of_structs(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the sockets that results come through to the garbage collector."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warehouse]:
    """One session for all tests of a run; each takes table names of its own (``unique``)."""
    warehouse = Warehouse(tmp_path_factory.mktemp("warehouse"))
    yield warehouse
    warehouse.lakehouse.close()
