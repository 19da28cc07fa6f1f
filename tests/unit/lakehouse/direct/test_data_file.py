"""Files of direct commits: ids of columns, and the bounds of values, beside PyIceberg's."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema

from headrace_connectors.lakehouse.direct.data_file import (
    ROW_ID,
    ROW_ID_FIELD,
    column_names,
    unsuitable_columns,
    write_file,
    write_large_file,
)

TYPES: list[tuple[str, pa.DataType, list[Any]]] = [
    ("boolean", pa.bool_(), [True, False]),
    ("int", pa.int32(), [-7, 2**31 - 1, 0]),
    ("long", pa.int64(), [-(2**63), 2**63 - 1]),
    ("float", pa.float32(), [-0.5, 1.25]),
    ("double", pa.float64(), [-1e300, 0.1]),
    ("date", pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    ("timestamp", pa.timestamp("us"), [datetime.min, datetime(2026, 11, 26, 1, 2)]),  # noqa: DTZ001, DTZ901
    ("timestamptz", pa.timestamp("us", tz="UTC"), [datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)]),
    ("string", pa.string(), ["", "zebra", "ä"]),
    ("binary", pa.binary(), [b"", b"\xff\x00"]),
    ("decimal(9, 2)", pa.decimal128(9, 2), [Decimal("-1.28"), Decimal("1.27"), Decimal("1.28")]),
    ("decimal(18, 0)", pa.decimal128(18, 0), [Decimal(-(10**17)), Decimal(255)]),
    ("decimal(38, 10)", pa.decimal128(38, 10), [Decimal("-1e27"), Decimal("0.0000000001")]),
]


def table_schema(*columns: tuple[str, Any]) -> dict[str, Any]:
    fields = [{"id": 10 + n, "name": name, "required": False, "type": kind} for n, (name, kind) in enumerate(columns)]
    return {"type": "struct", "schema-id": 0, "fields": fields}


@pytest.mark.parametrize(("kind", "data_type", "values"), TYPES, ids=[kind for kind, *_ in TYPES])
def test_bounds_are_the_least_and_the_greatest_value(kind: str, data_type: pa.DataType, values: list[Any]) -> None:
    """PyIceberg reads the bounds as these values."""
    schema = table_schema(("c", kind))
    file = write_file(pa.table({"c": pa.array([None, *values], data_type)}), schema, {"c": "full"})
    column = Schema.model_validate_json(json.dumps(schema)).find_type("c")
    metrics = file.columns[10]
    assert (metrics.values, metrics.nulls, file.rows) == (len(values) + 1, 1, len(values) + 1)
    assert metrics.lower is not None
    assert metrics.upper is not None
    low, high = from_bytes(column, metrics.lower), from_bytes(column, metrics.upper)
    stored = pa.array([low, high], data_type if "timestamp" not in kind and kind != "date" else pa.int64())
    expected = pa.array([min(values), max(values)], data_type)
    if "timestamp" in kind:
        expected = expected.view(pa.int64())
    elif kind == "date":
        expected = expected.view(pa.int32()).cast(pa.int64())
    assert stored.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("data_type", [pa.string(), pa.binary()], ids=["string", "binary"])
@given(data=st.data())
def test_cut_bounds_enclose_all_values(data_type: pa.DataType, data: st.DataObject) -> None:
    """They have at most as many characters as the mode allows; there may be no upper bound."""
    alphabet = st.sampled_from("a\ud7ff\ue000\U0010ffff")
    texts = (
        st.text(alphabet, max_size=5)
        if data_type == pa.string()
        else st.lists(st.sampled_from([b"a", b"\xff"]), max_size=5).map(b"".join)
    )
    values = data.draw(st.lists(texts, min_size=1))
    kind = "string" if data_type == pa.string() else "binary"
    file = write_file(pa.table({"c": pa.array(values, data_type)}), table_schema(("c", kind)), {"c": "truncate(2)"})
    raw = [value.encode() if isinstance(value, str) else value for value in values]
    lower, upper = file.columns[10].lower, file.columns[10].upper
    assert lower is not None
    assert lower <= min(raw)
    assert upper is None or upper >= max(raw)
    for bound in (lower, upper or b""):
        assert len(bound.decode() if kind == "string" else bound) <= 2
    if max(raw) in (b"a", b"aa", b"aaa"):
        assert upper is not None


def test_floats_without_order_have_no_bounds_and_zero_has_both_signs() -> None:
    """NaN is in no order; -0.0 is below 0.0 for Iceberg."""
    columns = {"nan": pa.array([float("nan")]), "zero": pa.array([0.0])}
    schema = table_schema(("nan", "double"), ("zero", "double"))
    file = write_file(pa.table(columns), schema, dict.fromkeys(columns, "full"))
    assert (file.columns[10].lower, file.columns[10].upper) == (None, None)
    assert file.columns[11].lower == b"\0" * 7 + b"\x80"
    assert file.columns[11].upper == b"\0" * 8


def test_modes_decide_which_metrics_there_are() -> None:
    """``none``, ``counts`` and columns with members."""
    columns = {name: pa.array(["x"]) for name in ("none", "counts")}
    members = pa.array([{"c": "z"}])
    schema = table_schema(
        ("none", "string"),
        ("counts", "string"),
        ("nested", {"type": "struct", "fields": [{"id": 20, "name": "c", "required": False, "type": "string"}]}),
        ("nested.c", "string"),
    )
    rows = pa.table({**columns, "nested": members, "nested.c": pa.array(["a"])})
    file = write_file(rows, schema, {"none": "none", "counts": "counts", "nested": "full", "nested.c": "full"})
    assert set(file.columns) == {11, 13}
    assert (file.columns[11].lower, file.columns[13].lower) == (None, b"a")


def test_columns_have_the_ids_of_the_table_at_all_depths() -> None:
    """Also row ids, members, elements, keys and values."""
    struct = {"type": "struct", "fields": [{"id": 21, "name": "m", "required": False, "type": "int"}]}
    elements = {"type": "list", "element-id": 22, "element": struct, "element-required": False}
    pairs = {"type": "map", "key-id": 23, "key": "string", "value-id": 24, "value": "long", "value-required": False}
    inner = pa.struct([("m", pa.int32())])
    rows = pa.table(
        {
            "elements": pa.array([[{"m": 1}]], pa.list_(inner)),
            "pairs": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            ROW_ID: pa.array([5], pa.int64()),
        }
    )
    content = write_file(rows, table_schema(("elements", elements), ("pairs", pairs)), {}).content
    parquet = pq.ParquetFile(pa.BufferReader(content))
    assert column_names(parquet) == {10: "elements", 11: "pairs", ROW_ID_FIELD: ROW_ID}
    text = str(parquet.schema)
    for number in (10, 11, 21, 22, 23, 24, 2147483540):
        assert f"field_id={number} " in text


@pytest.mark.parametrize(
    ("kind", "data_type", "is_suitable"),
    [
        *((kind, data_type, True) for kind, data_type, _ in TYPES),
        ("uuid", pa.string(), False),
        ("fixed[4]", pa.binary(), False),
        ("timestamp_ns", pa.timestamp("us"), False),
        ("decimal(9, 2)", pa.decimal128(9, 3), False),
        (
            {"type": "list", "element-id": 20, "element": "uuid", "element-required": False},
            pa.list_(pa.string()),
            False,
        ),
        ({"type": "list", "element-id": 20, "element": "int", "element-required": True}, pa.list_(pa.int32()), False),
        ({"type": "list", "element-id": 20, "element": "int", "element-required": False}, pa.list_(pa.int32()), True),
    ],
)
def test_only_spark_converts_some_types(kind: Any, data_type: pa.DataType, is_suitable: bool) -> None:
    """A column of another type than that of its values."""
    refused = unsuitable_columns(
        table_schema(("c", kind), ("__headrace_offset", "long")), pa.schema([("c", data_type)])
    )
    assert (refused is None) == is_suitable


@pytest.mark.parametrize("depth", [0, 1])
def test_only_spark_refuses_nulls_in_required_columns(depth: int) -> None:
    """At any depth of structs."""
    kind: Any = "int"
    if depth:
        kind = {"type": "struct", "fields": [{"id": 20, "name": "m", "required": True, "type": "int"}]}
    stored = table_schema(("c", kind))
    stored["fields"][0]["required"] = not depth
    assert unsuitable_columns(stored, pa.schema([])) == "it has required columns"


def test_a_file_of_several_row_groups_has_the_metrics_of_all_its_rows(tmp_path: Path) -> None:
    """Decimals are compared as numbers. A group of nulls has no bounds, and needs none."""
    rows = pa.table(
        {
            "amount": pa.array([Decimal("-2.50"), Decimal("1.00"), None, None, Decimal("3.00")], pa.decimal128(20, 2)),
            "name": pa.array(["m", "z", None, None, "a"]),
            "count": pa.array([-1, 3, None, None, 2], pa.int64()),
        }
    )
    schema = table_schema(("amount", "decimal(20, 2)"), ("name", "string"), ("count", "long"))
    modes = dict.fromkeys(rows.column_names, "full")
    groups = [rows.slice(0, 2), rows.slice(2, 2), rows.slice(4, 1)]
    large, small = (
        write_large_file(tmp_path / "rows.parquet", rows.schema, groups, schema, modes),
        write_file(rows, schema, modes),
    )
    assert {column: replace(metrics, size=0) for column, metrics in large.columns.items()} == {
        column: replace(metrics, size=0) for column, metrics in small.columns.items()
    }
    stored = pq.ParquetFile(tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").cast(rows.schema).equals(rows)
    assert (large.rows, large.size, len(large.row_groups)) == (5, (tmp_path / "rows.parquet").stat().st_size, 3)
    assert list(large.row_groups) == [first_page(stored.metadata.row_group(number).column(0)) for number in range(3)]
    assert list(small.row_groups) == [4]


def first_page(chunk: Any) -> int:
    return min(offset for offset in (chunk.dictionary_page_offset, chunk.data_page_offset) if offset)
