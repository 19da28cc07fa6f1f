"""Pipelines that write Iceberg tables through Spark pass their contract."""

from __future__ import annotations

import pytest
from contracts.pipeline_suite import LeftOutSuite, PipelineSuite
from support.fix_spark import Warehouse
from support.lake.spark_harness import IcebergHarness

pytestmark = pytest.mark.spark


class TestIcebergPipeline(PipelineSuite, LeftOutSuite):
    """Pipelines that write Iceberg tables pass the suite."""

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> IcebergHarness:
        return IcebergHarness(warehouse)
