"""Rows as a Parquet file of an Iceberg table, with the metrics of its manifest entry. Pure.

Iceberg identifies columns by the ids in the file. The metrics are those of Iceberg's own writers: counts, and bounds by
the table's metrics modes (https://iceberg.apache.org/spec/#appendix-d-single-value-serialization); columns inside
structs, lists and maps have none.

Tests: ``tests/unit/lakehouse/direct/test_data_file.py``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.model.events import OWN_PREFIX

ROW_ID = "_row_id"
ROW_ID_FIELD = 2147483540
"""The reserved field id. A row with null has the file's first row id plus its position in the file."""
SEQUENCE = "_last_updated_sequence_number"
SEQUENCE_FIELD = 2147483539
"""The reserved field id. A row with null was last updated by the snapshot that added its file."""
_FIELD_ID = b"PARQUET:field_id"
_TRUNCATE = re.compile(r"truncate\((\d+)\)")
_LAST_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)


@dataclass(frozen=True, slots=True)
class ColumnMetrics:
    """The metrics of a column by the names of the request (``DirectTable.java``). Sizes are in bytes."""

    size: int
    values: int
    nulls: int
    lower: bytes | None = None
    upper: bytes | None = None


@dataclass(frozen=True, slots=True)
class ParquetFile:
    """``columns`` has the metrics by field id, ``row_groups`` the offsets at which they begin.

    The content of a large file is in ``path``, a file of this machine.
    """

    content: bytes
    size: int
    rows: int
    row_groups: Sequence[int]
    columns: Mapping[int, ColumnMetrics]
    path: Path | None = None


_TYPES = {
    pa.bool_(): "boolean",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", tz="UTC"): "timestamptz",
    pa.string(): "string",
    pa.binary(): "binary",
}


def data_columns(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the types of a table's data columns by name, all in Iceberg's JSON."""
    return {column["name"]: column["type"] for column in stored["fields"] if not column["name"].startswith(OWN_PREFIX)}


def unsuitable_columns(stored: Mapping[str, Any], schema: pa.Schema) -> str | None:
    """Return why the columns of a table (Iceberg's JSON) need Spark; None if they do not.

    Only Spark converts a text for a column of UUIDs, and refuses a null in a required column. ``schema`` has the types
    that values have.
    """
    columns = data_columns(stored)
    if _has_required(stored["fields"]):
        return "it has required columns"
    if {ROW_ID, SEQUENCE} & columns.keys() or not all(
        is_type(columns[name], data_type)
        for name, data_type in zip(schema.names, schema.types, strict=True)
        if name in columns
    ):
        return "it has columns of types that only Spark converts"
    return None


def column_names(parquet: pq.ParquetFile) -> Mapping[int, str]:
    """Return the names of a file's columns by Iceberg's ids, which stay when a column is renamed."""
    fields = ((field.metadata or {}, field.name) for field in parquet.schema_arrow)
    return {int(metadata[_FIELD_ID]): name for metadata, name in fields if _FIELD_ID in metadata}


def _has_required(fields: Sequence[Mapping[str, Any]]) -> bool:
    return any(
        field["required"] or (isinstance(field["type"], dict) and _has_required(field["type"].get("fields", ())))
        for field in fields
    )


def is_type(iceberg_type: Any, data_type: pa.DataType) -> bool:
    """Return whether values of a type are stored in a column (Iceberg's JSON) as they are."""
    if isinstance(iceberg_type, str):
        if pa.types.is_decimal128(data_type):
            return iceberg_type == f"decimal({data_type.precision}, {data_type.scale})"
        return _TYPES.get(data_type) == iceberg_type
    match iceberg_type["type"]:
        case "list":
            return (
                pa.types.is_list(data_type)
                and not iceberg_type["element-required"]
                and is_type(iceberg_type["element"], data_type.value_type)
            )
        case "map":
            return (
                pa.types.is_map(data_type)
                and not iceberg_type["value-required"]
                and is_type(iceberg_type["key"], data_type.key_type)
                and is_type(iceberg_type["value"], data_type.item_type)
            )
    members = {member["name"]: member["type"] for member in iceberg_type["fields"]}
    return (
        pa.types.is_struct(data_type)
        and set(members) == {member.name for member in data_type}
        and all(is_type(members[member.name], member.type) for member in data_type)
    )


def write_file(
    rows: pa.Table, schema: Mapping[str, Any], modes: Mapping[str, str], compression: str = "zstd"
) -> ParquetFile:
    """Write ``rows`` in one row group, into memory.

    ``schema`` is the table's, as Iceberg's JSON, and ``modes`` are the metrics modes by column. A column ``_row_id``
    has the ids of rows that existed before, ``_last_updated_sequence_number`` the snapshots that changed them last.
    """
    sink = pa.BufferOutputStream()
    _write(sink, rows.schema, [rows], schema, compression)
    content = sink.getvalue()
    metadata = pq.read_metadata(pa.BufferReader(content))
    return _parquet_file(content.to_pybytes(), content.size, metadata, rows.schema, schema, modes)


def write_large_file(
    path: Path,
    columns: pa.Schema,
    row_groups: Iterable[pa.Table],
    schema: Mapping[str, Any],
    modes: Mapping[str, str],
    compression: str = "zstd",
) -> ParquetFile:
    """Write row groups, which have these ``columns``, into a file of this machine; else like ``write_file``."""
    _write(path, columns, row_groups, schema, compression)
    described = _parquet_file(b"", path.stat().st_size, pq.read_metadata(path), columns, schema, modes)
    return replace(described, path=path)


def _write(
    sink: Any, columns: pa.Schema, row_groups: Iterable[pa.Table], schema: Mapping[str, Any], compression: str
) -> None:
    ids = _field_ids(schema)
    fields = pa.schema([_with_field_id(field, *ids[field.name]) for field in columns])
    with pq.ParquetWriter(sink, fields, compression=compression, store_decimal_as_integer=True) as writer:
        for rows in row_groups:
            writer.write_table(rows.cast(fields), row_group_size=max(1, rows.num_rows))


def _parquet_file(
    content: bytes, size: int, metadata: Any, written: pa.Schema, schema: Mapping[str, Any], modes: Mapping[str, str]
) -> ParquetFile:
    ids = _field_ids(schema)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns, leaf = {}, 0
    for field in written:
        mode = modes.get(field.name, "none")  # none for the row ids
        if mode != "none" and not pa.types.is_nested(field.type):
            field_id, iceberg_type = ids[field.name]
            columns[field_id] = _metrics([group.column(leaf) for group in groups], iceberg_type, mode)
        leaf += _leaves(field.type)
    return ParquetFile(content, size, metadata.num_rows, list(map(_begin, groups)), columns)


def _field_ids(schema: Mapping[str, Any]) -> dict[str, tuple[int, Any]]:
    """Return id and type of the columns that a file may have."""
    ids = {column["name"]: (column["id"], column["type"]) for column in schema["fields"]}
    return ids | {ROW_ID: (ROW_ID_FIELD, "long"), SEQUENCE: (SEQUENCE_FIELD, "long")}


def _begin(row_group: Any) -> int:
    """Return the offset of the first page of a row group."""
    first = row_group.column(0)
    return int(min(filter(None, (first.dictionary_page_offset, first.data_page_offset))))


def _with_field_id(field: pa.Field, field_id: int, iceberg_type: Any) -> pa.Field:
    """Return a field with Iceberg's ids, at all depths. ``iceberg_type`` is its type in Iceberg's JSON."""
    data_type = field.type
    if isinstance(iceberg_type, dict):
        match iceberg_type["type"]:
            case "struct":
                members = {member["name"]: (member["id"], member["type"]) for member in iceberg_type["fields"]}
                data_type = pa.struct([_with_field_id(member, *members[member.name]) for member in data_type])
            case "list":
                data_type = pa.list_(
                    _with_field_id(data_type.value_field, iceberg_type["element-id"], iceberg_type["element"])
                )
            case "map":
                data_type = pa.map_(
                    _with_field_id(data_type.key_field, iceberg_type["key-id"], iceberg_type["key"]),
                    _with_field_id(data_type.item_field, iceberg_type["value-id"], iceberg_type["value"]),
                )
    return pa.field(field.name, data_type, field.nullable, {_FIELD_ID: str(field_id).encode()})


def _leaves(data_type: pa.DataType) -> int:
    """Return the number of columns that Parquet has for a type."""
    if not pa.types.is_nested(data_type):
        return 1
    return sum(_leaves(data_type.field(index).type) for index in range(data_type.num_fields))


def _metrics(chunks: Sequence[Any], iceberg_type: str, mode: str) -> ColumnMetrics:
    """Return the metrics of a column from those of its chunks, one for each row group."""
    size, values = (sum(getattr(chunk, name) for chunk in chunks) for name in ("total_compressed_size", "num_values"))
    found = [chunk.statistics for chunk in chunks]
    if any(statistics is None or not statistics.has_null_count for statistics in found):
        return ColumnMetrics(size, values, 0)
    counts = ColumnMetrics(size, values, sum(statistics.null_count for statistics in found))
    of_values = [statistics for statistics in found if statistics.num_values]  # the others have nulls only
    if mode == "counts" or not of_values or not all(statistics.has_min_max for statistics in of_values):
        return counts
    cut = _TRUNCATE.fullmatch(mode)
    width = int(cut[1]) if cut else None
    order = _unscaled_value if iceberg_type.startswith("decimal") else lambda value: value
    lower = min((statistics.min_raw for statistics in of_values), key=order)
    upper = max((statistics.max_raw for statistics in of_values), key=order)
    if iceberg_type == "string":
        bounds = lower.decode()[:width].encode(), _upper_text(upper.decode(), width)
    elif iceberg_type == "binary":
        bounds = lower[:width], _upper_bytes(upper, width)
    else:
        bounds = _bound(lower, iceberg_type), _bound(upper, iceberg_type)
    return ColumnMetrics(counts.size, counts.values, counts.nulls, *bounds)


def _bound(value: Any, iceberg_type: str) -> bytes:
    """Return a value of Parquet's physical type as Iceberg's bytes."""
    match iceberg_type:
        case "boolean":
            return bytes([value])
        case "int" | "date":
            return struct.pack("<i", value)
        case "long" | "timestamp" | "timestamptz":
            return struct.pack("<q", value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
    # A decimal: the unscaled number in as few bytes as possible.
    unscaled = _unscaled_value(value)
    return int.to_bytes(unscaled, (unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


def _unscaled_value(value: Any) -> int:
    """Return the unscaled number of a decimal, which Parquet has as a number or as bytes."""
    return int.from_bytes(value, "big", signed=True) if isinstance(value, bytes) else int(value)


def _upper_text(text: str, width: int | None) -> bytes | None:
    """Return a text that is not lower than any with the first ``width`` characters; None if there is none."""
    if width is None or len(text) <= width:
        return text.encode()
    for length in range(width, 0, -1):
        point = ord(text[length - 1]) + 1
        if point in _SURROGATES:
            point = _SURROGATES.stop
        if point <= _LAST_CODE_POINT:
            return (text[: length - 1] + chr(point)).encode()
    return None


def _upper_bytes(value: bytes, width: int | None) -> bytes | None:
    if width is None or len(value) <= width:
        return value
    cut = value[:width].rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None
