"""Tests of the row source in memory with the suite of row sources."""

from __future__ import annotations

import pytest
from contracts.row_source_suite import ROWS, SCHEMAS, TABLE, RowSourceSuite

from headrace.core.model.catalog import CatalogColumn, CatalogTable, SqlType
from headrace.core.model.schema import Field, Schema
from headrace_dev.memory import MemoryRowSource


class TestMemoryRowSource(RowSourceSuite):
    """The suite over a source whose rows have Kafka Connect values."""

    @pytest.fixture
    def source(self) -> MemoryRowSource:
        """Return a source with the suite's table."""
        columns = tuple(CatalogColumn(name, n, SqlType(25, "pg_catalog", "text")) for n, name in enumerate(SCHEMAS, 1))
        after = Schema("struct", fields=tuple(Field(name, schema) for name, schema in SCHEMAS.items()))
        source = MemoryRowSource()
        source.add(CatalogTable(TABLE, "r", "d", columns), after, ROWS)
        return source
