"""A table that a later release has written is left alone: this one might misread its rows."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.fix_spark import Warehouse
from support.lake.lake_harness import ITEM, apply, item
from support.lake.spark_harness import DeltaHarness, IcebergHarness

from headrace.core.model.errors import Fatal
from headrace_connectors.lakehouse import table_properties

pytestmark = pytest.mark.spark

LATER = "2"
NAMED = "is in version 2 of Headrace's format, and this release writes version 1; run the release again that wrote"


@pytest.mark.parametrize("harness", [IcebergHarness, DeltaHarness])
def test_a_table_of_a_later_release_is_refused(
    warehouse: Warehouse, unique: Callable[[str], str], harness: type[IcebergHarness] | type[DeltaHarness]
) -> None:
    """Neither its property nor its commits are ignored, and nothing is written. Other tables are not concerned."""
    lake, name, other = harness(warehouse), unique("later"), unique("other")
    tables = [lake.open(each) for each in (name, other)]
    for table in tables:
        table.evolve(ITEM, ["id"])
        apply(table, item(1, position=10))
    table = f"lake.shop.`{name}`" if harness is IcebergHarness else f"delta.`{warehouse.path}/delta_shop/{name}`"
    warehouse.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('{table_properties.FORMAT}' = '{LATER}')")
    with pytest.raises(Fatal, match=NAMED):
        lake.open(name).schema()
    assert lake.read(name).num_rows == 1
    assert apply(tables[1], item(2, position=20)) == (1, 0)


def test_an_open_table_notices_a_commit_of_a_later_release(
    warehouse: Warehouse, unique: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a rolling upgrade, in which the table moves to a worker of the later release and back."""
    lake, name = IcebergHarness(warehouse), unique("upgraded")
    table = lake.open(name)
    table.evolve(ITEM, ["id"])
    apply(table, item(1, position=10))
    table.reached("connect-shop")
    with monkeypatch.context() as later:
        later.setattr(table_properties, "FORMAT_VERSION", LATER)
        newer = lake.open(name)
        later.setattr("headrace_connectors.lakehouse.writer.refuse_newer", lambda *_: None)
        apply(newer, item(2, position=20, at=20))
    with pytest.raises(Fatal, match=NAMED):
        table.reached("connect-shop")
