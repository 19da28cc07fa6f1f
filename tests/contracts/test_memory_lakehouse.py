"""The memory lake passes the contracts of lake tables, pipelines, soft deletes and histories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from contracts.history_suite import HistorySuite
from contracts.lake_table_suite import LakeTableSuite
from contracts.pipeline_suite import LeftOutSuite, PipelineSuite
from contracts.soft_delete_suite import SoftDeleteSuite

from headrace.ports import TableOptions
from headrace_dev.memory import MemoryLakehouse, MemoryTable


class MemoryHarness:
    """Memory tables, with the summary that a snapshot would have."""

    def __init__(self) -> None:
        self._lakehouse = MemoryLakehouse()

    def open(self, name: str, **options: Any) -> MemoryTable:
        return self._lakehouse.table("shop", name, TableOptions(**options))

    def create_otherwise(self, name: str, schema: pa.Schema) -> None:
        self.open(name).create_otherwise(schema)

    def read(self, name: str) -> pa.Table:
        return self.open(name).to_arrow()

    def summary(self, name: str) -> Mapping[str, str]:
        return self.open(name).summaries[-1]

    def drop(self, name: str) -> None:
        self._lakehouse.drop("shop", name)

    def drop_ledger(self, name: str) -> None:
        self._lakehouse.drop_ledger("shop", name)

    @contextmanager
    def hidden(self, name: str) -> Iterator[None]:
        copy = self._lakehouse.copy("shop", name)
        self.drop(name)
        self.drop_ledger(name)
        yield
        self._lakehouse.restore("shop", name, copy)

    @contextmanager
    def restored(self, name: str) -> Iterator[None]:
        copy = self._lakehouse.copy("shop", name)
        yield
        self._lakehouse.restore("shop", name, copy)

    def forget_history(self, name: str) -> None:
        self.open(name).forget_history()

    def load_otherwise(self, name: str, cells: Mapping[str, Any]) -> None:
        self.open(name).insert_unversioned(str(cells["id"]), cells)


class TestMemoryTable(LakeTableSuite):
    """Memory tables pass the suite."""

    @pytest.fixture
    def lake(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemoryPipeline(PipelineSuite, LeftOutSuite):
    """Pipelines that write memory tables pass the suite."""

    @pytest.fixture
    def lake(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemorySoftDeletes(SoftDeleteSuite):
    """Memory tables with soft deletes pass the suite."""

    @pytest.fixture
    def lake(self) -> MemoryHarness:
        return MemoryHarness()


class TestMemoryHistory(HistorySuite):
    """Memory histories pass the suite."""

    @pytest.fixture
    def lake(self) -> MemoryHarness:
        return MemoryHarness()
