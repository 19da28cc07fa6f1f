"""The contract of pipelines, kept by those that write Iceberg tables through Spark."""

from __future__ import annotations

import pytest
from contracts.pipeline_suite import LeftOutSuite, PipelineSuite
from contracts.spark_harness import IcebergHarness
from fix_spark import Warehouse

from headrace_connectors.lakehouse.table_session import TableSession

pytestmark = pytest.mark.spark


class TestIcebergPipeline(PipelineSuite, LeftOutSuite):
    """So do pipelines that write them."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> IcebergHarness:
        return IcebergHarness(warehouse)


class TestIcebergPipelineWithoutJvm(PipelineSuite):
    """And where Spark's JVM cannot be talked to, as under Spark Connect."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> IcebergHarness:
        monkeypatch.setattr(TableSession, "java", None)
        return IcebergHarness(warehouse)
