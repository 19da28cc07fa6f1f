"""Harnesses for the contract suites: tables of both formats, written by Spark."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from support.fix_spark import Warehouse
from support.lake.delta_tables import delta_rows, delta_table
from support.lake.lake_actions import commit
from support.lake.lake_harness import ITEM, item, items

from headrace.ports import TableOptions, TopicPartition
from headrace_connectors.lakehouse.ledger import SUFFIX
from headrace_connectors.lakehouse.schema import column_list
from headrace_connectors.lakehouse.writer import SparkTable


@contextmanager
def moved_away(*folders: Path) -> Iterator[None]:
    """An outage of the storage: the folders are missing within the block."""
    away = [folder.with_name(f"{folder.name}.away") for folder in folders]
    for folder, elsewhere in zip(folders, away, strict=True):
        folder.rename(elsewhere)
    yield
    for folder, elsewhere in zip(folders, away, strict=True):
        elsewhere.rename(folder)


@contextmanager
def copied(*folders: Path) -> Iterator[None]:
    """Replaces the folders by copies from the beginning of the block when the block ends."""
    copies = [folder.with_name(f"{folder.name}.copy") for folder in folders]
    for folder, copy in zip(folders, copies, strict=True):
        shutil.copytree(folder, copy)
    yield
    for folder, copy in zip(folders, copies, strict=True):
        shutil.rmtree(folder)
        copy.rename(folder)


class IcebergHarness:
    """Tables of the run's warehouse. They are read without Spark."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def open(self, name: str, **options: Any) -> SparkTable:
        return self._warehouse.lakehouse.table("shop", name, TableOptions(**options))

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        self.open(name)  # starts Spark
        self._warehouse.sql("CREATE NAMESPACE IF NOT EXISTS lake.shop")
        self._warehouse.sql(f"CREATE TABLE lake.shop.`{name}` ({column_list(schema)}) USING iceberg")

    def read(self, name: str) -> pa.Table:
        return self._warehouse.read("shop", name)

    def summary(self, name: str) -> Mapping[str, str]:
        summary = self._warehouse.summary("shop", name)
        return {key: value for key, value in summary.items() if key.startswith("headrace.")}

    def drop(self, name: str) -> None:
        self._warehouse.sql(f"DROP TABLE lake.shop.`{name}`")

    def drop_ledger(self, name: str) -> None:
        self._warehouse.sql(f"DROP TABLE lake.shop.`{name}{SUFFIX}`")

    def hidden(self, name: str) -> AbstractContextManager[None]:
        return moved_away(*(self._warehouse.path / "shop" / each for each in (name, name + SUFFIX)))

    def restored(self, name: str) -> AbstractContextManager[None]:
        return copied(*(self._warehouse.path / "shop" / each for each in (name, name + SUFFIX)))

    def forget_history(self, name: str) -> None:
        self._warehouse.sql(
            f"CALL lake.system.expire_snapshots(table => 'shop.`{name}`', older_than => now(), retain_last => 1)"
        )

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self._warehouse.sql(f"INSERT INTO lake.shop.`{name}` {_row(cells)}")


class DeltaHarness:
    """The same with Delta tables. delta-rs cannot read tables with type widening."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse

    def open(self, name: str, **options: Any) -> SparkTable:
        return self._warehouse.lakehouse.table("delta_shop", name, TableOptions("delta", **options))

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        self.open(name)  # starts Spark
        self._warehouse.sql(f"CREATE TABLE {self.sql_name(name)} ({column_list(schema)}) USING delta")

    def read(self, name: str) -> pa.Table:
        table = self._table(name)
        if "typeWidening" in (table.protocol().reader_features or ()):
            return self._warehouse.sql(f"SELECT * FROM {self.sql_name(name)}")
        return delta_rows(table)

    def summary(self, name: str) -> Mapping[str, str]:
        summaries = [entry["userMetadata"] for entry in self._table(name).history() if "userMetadata" in entry]
        return dict(json.loads(summaries[0])) if summaries else {}

    def drop(self, name: str) -> None:
        shutil.rmtree(self._warehouse.path / "delta_shop" / name)

    def drop_ledger(self, name: str) -> None:
        self.drop(name + SUFFIX)

    def hidden(self, name: str) -> AbstractContextManager[None]:
        return moved_away(*(self._warehouse.path / "delta_shop" / each for each in (name, name + SUFFIX)))

    def restored(self, name: str) -> AbstractContextManager[None]:
        return copied(*(self._warehouse.path / "delta_shop" / each for each in (name, name + SUFFIX)))

    def forget_history(self, name: str) -> None:
        """Do nothing: Delta's log keeps earlier commits for its retention."""

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self._warehouse.sql(f"INSERT INTO {self.sql_name(name)} {_row(cells)}")

    def _table(self, name: str) -> Any:
        return delta_table(self._warehouse.path / "delta_shop" / name)

    def sql_name(self, name: str) -> str:
        path = str(self._warehouse.path / "delta_shop" / name).replace("`", "``")
        return f"delta.`{path}`"


def _row(cells: Mapping[str, Any]) -> str:
    return f"({', '.join(cells)}) VALUES ({', '.join(repr(cell) for cell in cells.values())})"


def with_two_commits(lake: IcebergHarness | DeltaHarness, unique: Callable[[str], str]) -> tuple[str, SparkTable]:
    """A table with two commits, each of one row and its offsets."""
    name = unique("rolled_back")
    table = lake.open(name)
    table.evolve(ITEM, ["id"])
    for number in (1, 2):
        table.merge(items(item(number, position=number)), commit(number, first=number))
    assert table.reached("connect-sink") == {TopicPartition("first", 0): 2}
    return name, table
