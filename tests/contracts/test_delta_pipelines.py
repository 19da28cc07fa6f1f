"""Delta tables that Spark writes pass the contracts of pipelines, soft deletes and histories."""

from __future__ import annotations

import pytest
from contracts.history_suite import HistorySuite
from contracts.pipeline_suite import PipelineSuite
from contracts.soft_delete_suite import SoftDeleteSuite
from contracts.spark_harness import DeltaHarness
from fix_spark import Warehouse

pytestmark = pytest.mark.spark


class TestDeltaPipeline(PipelineSuite):
    """Pipelines that write Delta tables pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


class TestDeltaSoftDeletes(SoftDeleteSuite):
    """Delta tables with soft deletes pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


class TestDeltaHistory(HistorySuite):
    """Delta histories pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)
