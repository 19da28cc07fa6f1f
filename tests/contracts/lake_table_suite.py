"""Contract of every ``ports.LakeTable``.

A test class provides the fixture ``lake``, a ``LakeHarness``; every test writes a table of its own.
"""

from __future__ import annotations

from contracts.lake_cells_suite import LakeCellsSuite
from contracts.lake_columns_suite import LakeColumnsSuite
from contracts.lake_commits_suite import LakeCommitsSuite
from contracts.lake_ledger_suite import LakeLedgerSuite
from contracts.lake_rows_suite import LakeRowsSuite
from contracts.lake_sources_suite import LakeSourcesSuite


class LakeTableSuite(
    LakeRowsSuite, LakeCellsSuite, LakeLedgerSuite, LakeColumnsSuite, LakeCommitsSuite, LakeSourcesSuite
):
    """Run by a subclass per implementation."""
