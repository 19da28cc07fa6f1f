"""Partition and sort expressions are parsed and validated before a table is created."""

from __future__ import annotations

import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.tables.table_layout import PartitionField, SortField, partition_fields, sort_fields, table_layout


def test_partition_expressions() -> None:
    """A partition expression contains columns of any name, and the transforms of Iceberg's Kafka Connect sink."""
    assert partition_fields(" days(created at), bucket(16, id) ,region, TRUNCATE(4,`x`)") == (
        PartitionField("created at", "days"),
        PartitionField("id", "bucket", 16),
        PartitionField("region"),
        PartitionField("`x`", "truncate", 4),
    )
    assert partition_fields("") == ()


@pytest.mark.parametrize("text", ["bucket(id)", "weeks(a)", "a,,b", "days()", "bucket(0, a)", "days(a", "a), b"])
def test_an_invalid_partition_expression_is_refused(text: str) -> None:
    """An invalid partition expression is a configuration error of ``table.partition.by``."""
    with pytest.raises(ConfigError, match=r"table\.partition\.by") as refused:
        partition_fields(text)
    assert refused.value.key == "table.partition.by"


def test_sort_expressions() -> None:
    """A sort expression is ascending unless it ends with ``desc``; transforms are refused."""
    assert sort_fields("a, b c desc, d ASC") == (SortField("a"), SortField("b c", True), SortField("d"))
    with pytest.raises(ConfigError, match=r"table\.sort\.by"):
        sort_fields("days(a)")


@pytest.mark.parametrize(("partition", "sort"), [("days(a)", ""), ("a", "b")])
def test_delta_refuses_transforms_and_sorted_partitions(partition: str, sort: str) -> None:
    """Delta refuses partition transforms, and a sort order together with partitions."""
    table_layout("iceberg", partition, sort)
    with pytest.raises(ConfigError, match="Delta"):
        table_layout("delta", partition, sort)
