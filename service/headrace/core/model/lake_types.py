"""The names of the types of lake columns (``docs/types.md``), which are those of Spark SQL.

Tests: ``tests/unit/core/model/test_lake_types.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa

TYPE_NAMES: Mapping[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
}
"""The types without parameters."""


def type_name(data_type: pa.DataType, member: Callable[[str], str] = str) -> str:
    """Return the name of a lake type; ``member`` returns the text for the name of a struct's member.

    Raises KeyError for a type that no lake column has.
    """
    if pa.types.is_decimal128(data_type):
        return f"DECIMAL({data_type.precision}, {data_type.scale})"
    if pa.types.is_list(data_type):
        return f"ARRAY<{type_name(data_type.value_type, member)}>"
    if pa.types.is_map(data_type):
        return f"MAP<{type_name(data_type.key_type, member)}, {type_name(data_type.item_type, member)}>"
    if pa.types.is_struct(data_type):
        members = ", ".join(f"{member(field.name)}: {type_name(field.type, member)}" for field in data_type)
        return f"STRUCT<{members}>"
    return TYPE_NAMES[data_type]
