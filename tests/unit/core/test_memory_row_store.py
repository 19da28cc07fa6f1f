"""Rows of the column cache in memory pass the suite of row stores."""

from __future__ import annotations

import pytest
from contracts.row_store_suite import OpenRows, RowStoreSuite

from headrace.core.cache_rows import MemoryRowStore


class TestMemoryRowStore(RowStoreSuite):
    """Rows in this process."""

    @pytest.fixture
    def open_rows(self) -> OpenRows:
        """Opens an empty store."""
        return MemoryRowStore
