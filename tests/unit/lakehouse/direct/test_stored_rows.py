"""Rows of a data file by their positions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from headrace_connectors.lakehouse.direct import stored_rows
from headrace_connectors.lakehouse.direct.stored_rows import Columns, live_rows, read_rows
from headrace_connectors.lakehouse.failures import Declined

ROWS = 1000
NESTED = pa.struct([("a", pa.list_(pa.field("element", pa.int32()))), ("m", pa.map_(pa.string(), pa.int64()))])


def parquet_file(rows_per_group: int = 300, **columns: pa.Array) -> pq.ParquetFile:
    """A file whose columns have the ids 1, 2, … in the order of their names here."""
    fields = [
        pa.field(name, array.type, metadata={"PARQUET:field_id": str(number)})
        for number, (name, array) in enumerate(columns.items(), 1)
    ]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(list(columns.values()), pa.schema(fields)), sink, row_group_size=rows_per_group)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue()))


def column(field_id: int, iceberg_type: Any, data_type: pa.DataType, **more: Any) -> Any:
    """A column that has this id, and its Arrow type."""
    return {"id": field_id, "type": iceberg_type, **more}, data_type


LONGS: Columns = {"n": column(1, "long", pa.int64())}


@pytest.mark.parametrize("rows_per_group", [1, 7, 300, ROWS])
def test_rows_are_in_the_order_of_the_request(rows_per_group: int) -> None:
    """Whatever row groups they are in."""
    parquet = parquet_file(rows_per_group, n=pa.array(range(ROWS)))
    for wanted in ([999, 0, 300, 299, 5], [601], [7, 7, 6]):
        assert read_rows(parquet, np.array(wanted), LONGS)["n"].to_pylist() == wanted


@pytest.mark.parametrize(("rows_per_group", "at_once"), [(1, 7), (7, 300), (300, 7), (ROWS, 99)])
def test_live_rows_are_all_but_the_deleted(monkeypatch: pytest.MonkeyPatch, rows_per_group: int, at_once: int) -> None:
    """In parts of a limited size, which may contain deleted rows only. Columns that were added later are null."""
    monkeypatch.setattr(stored_rows, "ROWS_AT_ONCE", at_once)
    deleted = BitMap64([0, 298, *range(300, 420), 999])
    columns = {"later": column(9, "int", pa.int32()), **LONGS}
    parts = list(live_rows(parquet_file(rows_per_group, n=pa.array(range(ROWS))), deleted, columns))
    assert max(map(len, parts)) <= at_once
    rows = pa.concat_tables(parts)
    assert rows["n"].to_pylist() == [number for number in range(ROWS) if number not in deleted]
    assert rows.schema == pa.schema([("later", pa.int32()), ("n", pa.int64())])
    assert rows["later"].null_count == len(rows)


def test_only_row_groups_with_these_rows_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one file may cost is compared with the chunks that are read, not with the file."""
    parquet = parquet_file(100, n=pa.array(range(ROWS)))
    chunk = parquet.metadata.row_group(0).column(0).total_uncompressed_size
    monkeypatch.setattr(stored_rows, "MOST_BYTES", 2 * chunk)
    assert read_rows(parquet, np.array([150, 950]), LONGS)["n"].to_pylist() == [150, 950]
    with pytest.raises(Declined, match="large files"):
        read_rows(parquet, np.array([150, 250, 950]), LONGS)


def test_columns_are_those_of_the_table() -> None:
    """By id, not by name; widened ones in the new type, added ones with nulls, nested ones with other inner names."""
    nested = {
        "type": "struct",
        "fields": [
            {"name": "a", "type": {"type": "list", "element": "int", "element-required": False}},
            {"name": "m", "type": {"type": "map", "key": "string", "value": "long", "value-required": False}},
        ],
    }
    parquet = parquet_file(
        old=pa.array([1, 2], pa.int32()),
        price=pa.array(["1.5", "2.5"]).cast(pa.decimal128(4, 1)),
        nested=pa.array([{"a": [1], "m": [("k", 1)]}, None], NESTED),
    )
    columns: Columns = {
        "new": column(1, "long", pa.int64()),
        "price": column(2, "decimal(9, 1)", pa.decimal128(9, 1)),
        "nested": column(3, nested, pa.struct([("a", pa.list_(pa.int32())), ("m", pa.map_(pa.string(), pa.int64()))])),
        "added": column(4, "string", pa.string()),
    }
    rows = read_rows(parquet, np.array([1, 0]), columns)
    assert rows.schema.types == [data_type for _, data_type in columns.values()]
    assert rows["new"].to_pylist() == [2, 1]
    assert [str(price) for price in rows["price"].to_pylist()] == ["2.5", "1.5"]
    assert rows["nested"].to_pylist() == [None, {"a": [1], "m": [("k", 1)]}]
    assert rows["added"].to_pylist() == [None, None]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"n": column(1, "string", pa.string())}, "only Spark converts"),
        ({"n": column(1, "double", pa.float64())}, "only Spark converts"),
        ({"more": column(9, "int", pa.int32(), **{"initial-default": 5})}, "has a default"),
    ],
)
def test_what_only_spark_reads_is_declined(columns: Columns, reason: str) -> None:
    """Before anything is written."""
    with pytest.raises(Declined, match=reason):
        read_rows(parquet_file(n=pa.array(range(ROWS))), np.array([1]), columns)


def test_a_name_with_a_dot_is_declined() -> None:
    """PyArrow would take it for a member of a struct."""
    parquet = parquet_file(**{"n.m": pa.array(range(ROWS))})
    with pytest.raises(Declined, match="contains a dot"):
        read_rows(parquet, np.array([1]), LONGS)
