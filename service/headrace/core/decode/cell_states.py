"""The states of the cells of events (``reselect.md`` section 2.5).

Nulls of updates may hide an unchanged value, because each connector omits values in its own way:

- PostgreSQL: types without a placeholder arrive as null (``core/model/unavailable.py: hides_value``).
- Oracle: unless ``lob.enabled`` is set at the source, LOB columns are null in every streamed event, changed or not. The
  database's catalog, or ``column.propagate.source.type`` at the source connector, determines these columns. Without
  either, any text or bytes may be a LOB (docs/guarantees.md, "What is not promised").
- MySQL, MariaDB, SQL Server, Db2: an omitted value is a placeholder, so a null is a null.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.catalog import CatalogColumn, HandlingModes
from headrace.core.model.events import Bools, CellState, Column
from headrace.core.model.inferred_types import INFERRED, MAYBE_LOB
from headrace.core.model.schema import Schema
from headrace.core.model.unavailable import hides_value

_WITHOUT_DOUBT = frozenset({"mysql", "mariadb", "sqlserver", "db2"})
_LOBS = frozenset({"CLOB", "NCLOB", "BLOB", "XMLTYPE", "JSON"})
_LOB_NAMES = frozenset({None, "io.debezium.data.Xml", "io.debezium.data.Json"})
SOURCE_TYPE = "__debezium.source.column.type"
"""The parameter in which ``column.propagate.source.type`` stores a column's type."""
SOURCE_LENGTH = "__debezium.source.column.length"
"""The parameter with its declared length: in characters, for RAW in bytes."""
_LONGEST_INLINE = {"VARCHAR2": 4000, "NVARCHAR2": 2000, "RAW": 2000}
"""A longer text is stored as a LOB (MAX_STRING_SIZE=EXTENDED)."""


def null_may_hide(connector: str, schema: Schema, column: CatalogColumn | None, modes: HandlingModes) -> bool:
    """Return whether a null in an update of ``connector`` may hide a value that did not change."""
    if connector in _WITHOUT_DOUBT:
        return False
    if connector != "oracle":
        return hides_value(schema, column, modes)
    if modes.lob_enabled:
        return False
    if column is not None:  # ``omittable`` is also a text whose declared length is stored out of line
        return column.omittable or column.type.name.upper() in _LOBS
    propagated = schema.parameter(SOURCE_TYPE)
    if propagated is not None:
        source_type, length = propagated.upper(), schema.parameter(SOURCE_LENGTH) or ""
        is_extended = length.isdecimal() and int(length) > _LONGEST_INLINE.get(source_type, int(length))
        return source_type in _LOBS or is_extended
    return schema.type in ("string", "bytes", "null") and schema.name in _LOB_NAMES


def schema_with_doubt(connector: str, schema: Schema, modes: HandlingModes) -> Schema:
    """Return the schema of an inferred column, marked if its nulls stay doubtful whatever type the table has."""
    if connector == "oracle" and schema.parameters == INFERRED and not modes.lob_enabled:
        return replace(schema, parameters=MAYBE_LOB)
    return schema


def with_states(
    name: str,
    schema: Schema,
    values: pa.Array,
    placeholders: Bools | None,
    cut: Bools | None,
    may_hide: Bools | None,
    absent: Bools | None,
) -> Column:
    """Return a column with the states of its cells (``reselect.md`` section 2.5); ``cut`` may be placeholders."""
    hidden = may_hide & np.asarray(values.is_null()) if may_hide is not None and values.null_count else None
    unknown = _either(cut, hidden)
    omitted, missing = _either(placeholders, None), _either(absent, None)
    if omitted is None and unknown is None and missing is None:
        return Column(name, schema, values)
    states = np.where(np.asarray(values.is_valid()), CellState.VALUE, CellState.NULL).astype(np.uint8)
    if unknown is not None:
        states[unknown] = CellState.UNKNOWN  # proven: S19
    if omitted is not None:
        states[omitted] = CellState.UNCHANGED
    if missing is not None:
        states[missing] = CellState.ABSENT  # proven: absent-column
    unavailable = pa.array(states >= CellState.UNCHANGED)
    return Column(name, schema, pc.if_else(unavailable, pa.scalar(None, values.type), values), states)


def _either(one: Bools | None, other: Bools | None) -> Bools | None:
    """Return the union of two masks, None for an empty one."""
    masks = [mask for mask in (one, other) if mask is not None and mask.any()]
    return np.logical_or.reduce(masks) if masks else None
