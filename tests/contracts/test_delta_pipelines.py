"""Delta tables that Spark writes pass the contracts of pipelines, soft deletes and histories.

The short forms have a test of each statement that the suite of tables does not have, and of what goes through the
ledger. Iceberg tables run the complete suites.
"""

from __future__ import annotations

import pytest
from contracts.history_suite import HistorySuite
from contracts.pipeline_suite import PipelineSuite
from contracts.soft_delete_suite import SoftDeleteSuite
from support.fix_spark import Warehouse
from support.lake.spark_harness import DeltaHarness

pytestmark = pytest.mark.spark


class TestDeltaPipeline(PipelineSuite):
    """Pipelines that write Delta tables pass the suite."""

    SHORT_FORM = (
        "test_an_outage_empties_no_ledger",
        "test_an_update_of_a_row_that_was_deleted_since",
        "test_a_truncate_before_the_first_row_outlives_the_worker",
    )

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


class TestDeltaSoftDeletes(SoftDeleteSuite):
    """Delta tables with soft deletes pass the suite."""

    SHORT_FORM = ("test_every_kind_is_counted", "test_a_truncate_marks_what_it_outranks")

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)


class TestDeltaHistory(HistorySuite):
    """Delta histories pass the suite."""

    SHORT_FORM = ("test_every_event_is_a_row", "test_tables_without_a_key")

    @pytest.fixture
    def lake(self, warehouse: Warehouse) -> DeltaHarness:
        return DeltaHarness(warehouse)
