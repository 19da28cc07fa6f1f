"""Tables of a second catalog: ``table.catalog``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.fix_spark import OTHER, Warehouse
from support.lake.lake_actions import delete
from support.lake.lake_harness import DAY, ITEM, NOW, apply, item
from support.lake.spark_harness import IcebergHarness

from headrace.core.tables.table_layout import Maintenance
from headrace_connectors.lakehouse.ledger import SUFFIX

pytestmark = pytest.mark.spark


def test_tables_of_one_name_in_two_catalogs(warehouse: Warehouse, unique: Callable[[str], str]) -> None:
    """Each has its own rows, ledger and upkeep; the worker's warehouse has nothing of the second."""
    harness, name = IcebergHarness(warehouse), unique("catalogs")
    tables = [harness.open(name, catalog=catalog, maintenance=Maintenance.INLINE) for catalog in ("lake", OTHER)]
    for keys, table in zip((range(10), range(10, 30)), tables, strict=True):
        table.evolve(ITEM, ["id"])
        for key in keys:
            apply(table, item(key, position=10 + key, at=key))
        apply(table, delete({"id": keys[0]}, position=100, at=100))
        table.maintain(NOW, 7 * DAY)
    for catalog, keys in (("lake", range(1, 10)), (OTHER, range(11, 30))):
        rows = warehouse.sql(f"SELECT id FROM {catalog}.shop.`{name}`")
        assert sorted(rows["id"].to_pylist()) == [*keys]
        folder = warehouse.path / ("" if catalog == "lake" else OTHER) / "shop"
        assert {each.name for each in folder.glob(f"{name}*")} == {name, f"{name}{SUFFIX}"}
