"""Canonical texts of row keys.

Equal keys have equal texts in all their representations (1.50 and 1.5, -0.0 and 0.0, any time zone), and widening a key
column does not change the text. The fold groups by it, the tombstone ledger stores it, and the cache uses it as its
key, so its format is part of the stored format.

The text of a single key column is its value. Several are joined as netstrings (``<length>:<text>,``), which makes the
text unambiguous for any content.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.arrow_columns import FEW, plain_text
from headrace.core.model.events import Changes

FLOOR_KEY = ""
"""The ledger's key for the floor of the last truncate; no row has it, since single texts carry a tag."""

TAKEN_PREFIX = "-"
"""The prefix of ledger keys for rows that lost their key to another row (``core/merge/key_changes.py``)."""

ORIGINS_PREFIX = "*"
"""The prefix of ledger keys for the origins of columns (``core/model/absent_columns.py``), which never expire."""

RESTART_PREFIX = "~"
"""The prefix of ledger keys for records at which positions start again (``core/merge/position_restarts.py``)."""

DEFAULT_PREFIX = "+"
"""The prefix of ledger keys for the defaults of columns (``core/model/absent_columns.py``)."""

TABLE_PREFIXES = (DEFAULT_PREFIX, ORIGINS_PREFIX, RESTART_PREFIX)
"""The first characters of ledger keys that are not of rows, besides FLOOR_KEY."""

_TAG = "="  # before a single key: distinguishes an empty text key from FLOOR_KEY


def is_table_entry(ledger_key: str) -> bool:
    """Return whether a ledger entry is of the table, not of a row. A ledger has few of them."""
    return ledger_key == FLOOR_KEY or ledger_key.startswith(TABLE_PREFIXES)


def canonical_keys(columns: Sequence[pa.Array]) -> pa.StringArray:
    """Return the canonical text per row of the key columns, in key order. Null where any key column is null."""
    kind = columns[0].type
    if len(columns) == 1 and len(columns[0]) <= FEW and (pa.types.is_integer(kind) or pa.types.is_string(kind)):
        # Their texts, as below, are what Python prints.
        values = columns[0].to_pylist()
        return pa.array([None if value is None else f"{_TAG}{value}" for value in values], pa.string())
    texts = [_text(column) for column in columns]
    if len(texts) == 1:
        return pc.binary_join_element_wise(_TAG, texts[0], "")
    parts = []
    for text in texts:
        length = pc.cast(pc.binary_length(text), pa.string())
        parts.append(pc.binary_join_element_wise(length, text, ":"))
    return pc.binary_join_element_wise(*parts, ",")


def in_key_order(changes: Changes, key_fields: Sequence[str]) -> Changes:
    """Return the changes with keys in the order of ``key_fields``, the order that the table uses.

    A source may declare its primary key again with another order of columns: the rows stay the same, and so must their
    texts. Changes whose key has other columns are returned unchanged.
    """
    if changes.key_fields == tuple(key_fields) or set(changes.key_fields) != set(key_fields):
        return changes
    order = [changes.key_fields.index(name) for name in key_fields]
    return replace(
        changes,
        key_fields=tuple(key_fields),
        key=pa.array([_reorder_key(key, order) for key in changes.key.to_pylist()], pa.string()),
        key_changes=changes.key_changes.with_keys(lambda key: _reorder_key(key, order)),
    )


def _reorder_key(key: str, order: Sequence[int]) -> str:
    parts, rest = [], key.encode()
    while rest:
        length, _, rest = rest.partition(b":")
        parts.append(rest[: int(length)])
        rest = rest[int(length) + 1 :]
    return b",".join(b"%d:%s" % (len(parts[index]), parts[index]) for index in order).decode()


def _text(column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_decimal(kind):
        return pa.array([None if v is None else plain_text(v) for v in column.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        return pc.cast(column.view(pa.int64()), pa.string())
    if pa.types.is_date32(kind):
        return pc.cast(column.view(pa.int32()), pa.string())
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())
    if pa.types.is_floating(kind):
        return pc.cast(pc.add(column, 0.0), pa.string())  # -0.0 + 0.0 = 0.0
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        return pa.array([None if v is None else repr(v) for v in column.to_pylist()], pa.string())
    return pc.cast(column, pa.string())
