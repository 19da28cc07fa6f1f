"""The contracts of pipelines, soft deletes and histories, kept by the Delta tables that Spark writes."""

from __future__ import annotations

import pytest
from contracts.history_suite import HistorySuite
from contracts.pipeline_suite import PipelineSuite
from contracts.soft_delete_suite import SoftDeleteSuite
from contracts.spark_harness import DeltaHarness
from fix_spark import Warehouse

pytestmark = pytest.mark.spark


class TestDeltaPipeline(PipelineSuite):
    """So do pipelines that write them."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


class TestDeltaSoftDeletes(SoftDeleteSuite):
    """So do tables that mark deleted rows."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


class TestDeltaHistory(HistorySuite):
    """So do histories."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)
