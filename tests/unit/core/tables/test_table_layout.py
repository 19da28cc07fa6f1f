"""Partition and sort expressions are parsed and validated before a table is created."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.model.errors import ConfigError
from headrace.core.tables.table_layout import (
    PartitionField,
    SortField,
    check_columns,
    partition_fields,
    sort_fields,
    table_layout,
)

TYPES = {
    "id": pa.int64(),
    "name": pa.string(),
    "at": pa.timestamp("us"),
    "day": pa.date32(),
    "flag": pa.bool_(),
    "price": pa.float64(),
    "total": pa.decimal128(10, 2),
    "data": pa.binary(),
    "tags": pa.list_(pa.string()),
}
SCHEMA = pa.schema(TYPES.items())


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


@pytest.mark.parametrize("partition", ["name, name", "days(at), hours(at)", "bucket(2, id), bucket(4, id)"])
def test_transforms_of_one_column_that_exclude_each_other(partition: str) -> None:
    """Iceberg refuses them when the table is created; the configuration is refused instead."""
    table_layout("iceberg", "days(at), bucket(4, at), at", "")
    with pytest.raises(ConfigError, match="exclude each other"):
        table_layout("iceberg", partition, "")


@pytest.mark.parametrize(
    ("table_format", "partition", "sort"),
    [
        ("iceberg", "days(name)", ""),
        ("iceberg", "hours(day)", ""),
        ("iceberg", "bucket(4, price)", ""),
        ("iceberg", "bucket(4, flag)", ""),
        ("iceberg", "truncate(4, at)", ""),
        ("iceberg", "tags", ""),
        ("iceberg", "", "tags"),
        ("delta", "tags", ""),
        ("delta", "", "tags"),
        ("delta", "", "flag"),
        ("delta", "", "data"),
    ],
)
def test_a_column_whose_type_does_not_fit(table_format: str, partition: str, sort: str) -> None:
    """The error names table, option, column and type, before the table is created."""
    layout = table_layout(table_format, partition, sort)
    option = "table.sort.by" if sort else "table.partition.by"
    with pytest.raises(ConfigError, match=rf"shop\.items: {option} has .*, whose type .* does not fit") as refused:
        check_columns("shop.items", table_format, layout, SCHEMA)
    assert refused.value.key == option


@pytest.mark.parametrize(
    ("table_format", "partition", "sort"),
    [
        ("iceberg", "days(at), years(day)", "name desc, price, flag"),
        ("iceberg", "truncate(4, total), truncate(2, data), truncate(9, name), bucket(4, total)", ""),
        ("iceberg", "price", ""),
        ("delta", "flag, data", ""),
        ("delta", "", "name, day, price"),
    ],
)
def test_columns_whose_types_fit(table_format: str, partition: str, sort: str) -> None:
    """The check accepts the types that the formats accept."""
    check_columns("shop.items", table_format, table_layout(table_format, partition, sort), SCHEMA)
