"""The digest of a table that any engine can recompute: ``headrace.verified.digest`` (``docs/operations.md``).

The digest is the sum, modulo 2**64, of the first 8 bytes of the MD5 of each row's text. So neither the order of rows
counts nor how they are divided. MD5 serves as a hash that every engine has, not as protection against an attacker. The
documentation defines the text of a row and of a cell of each type.

Tests: ``tests/unit/core/verify/test_table_digest.py``, ``tests/contracts/lake_sources_suite.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import md5
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.verify.digest import type_with_counts

_WORD = np.dtype(">u8")


class TableDigest:
    """The digest of a table at the commit ``snapshot``, of whose rows pieces are added in any order."""

    def __init__(self, snapshot: str = "") -> None:
        self.snapshot = snapshot
        self._sum = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows with all columns of the table."""
        if len(rows):
            columns = [rows[name].combine_chunks() for name in sorted(rows.column_names)]
            hashes = b"".join([md5(text, usedforsecurity=False).digest() for text in row_texts(columns)])
            words = np.frombuffer(hashes, _WORD)[::2]
            self._sum += int(words.astype(np.uint64).sum(dtype=np.uint64))

    @property
    def text(self) -> str:
        """The digest as 16 hexadecimal digits."""
        return f"{self._sum % 2**64:016x}"


def row_texts(columns: Sequence[pa.Array]) -> list[bytes]:
    """Return the text of each row of ``columns``, which are in the order of their names."""
    cells = [_cells(_texts(column)) for column in columns]
    texts: list[bytes] = pc.binary_join_element_wise(*cells, b"").to_pylist()
    return texts


def _cells(texts: pa.Array) -> pa.Array:
    lengths = pc.binary_length(texts).cast(pa.string()).cast(pa.binary())
    return pc.binary_join_element_wise(lengths, texts, b":").fill_null(b"-")


def _texts(column: pa.Array) -> pa.Array:
    """Return the texts of a column's cells as bytes, null for a null."""
    kind = column.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_nested(kind):
        texts = [None if cell is None else _text(kind, cell) for cell in _with_counts(column).to_pylist()]
        return pa.array(texts, pa.binary())
    if pa.types.is_floating(kind):
        return pa.array([None if cell is None else b"%.17g" % cell for cell in column.to_pylist()], pa.binary())
    if pa.types.is_decimal(kind):
        return _decimal_texts(column)
    return _with_counts(column).cast(pa.string()).cast(pa.binary())


def _decimal_texts(column: pa.Array) -> pa.Array:
    """Arrow writes small values with an exponent."""
    texts = column.cast(pa.string())
    if pc.any(pc.match_substring(texts, "E")).as_py():
        scale = column.type.scale
        texts = pa.array([None if cell is None else f"{cell:.{scale}f}" for cell in column.to_pylist()], pa.string())
    return texts.cast(pa.binary())


def _with_counts(column: pa.Array) -> pa.Array:
    """Return integers instead of dates and times: Python's types end at the year 9999."""
    kind = type_with_counts(column.type)
    return column if kind == column.type else column.cast(kind)


def _text(kind: pa.DataType, cell: Any) -> bytes:
    """Return the text of one cell that is not null."""
    if pa.types.is_map(kind):
        return b"".join(sorted(_cell(kind.key_type, key) + _cell(kind.item_type, item) for key, item in cell))
    if pa.types.is_list(kind):
        return b"".join(_cell(kind.value_type, item) for item in cell)
    if pa.types.is_struct(kind):
        return b"".join(_cell(member.type, cell[member.name]) for member in kind)
    if pa.types.is_boolean(kind):
        return b"true" if cell else b"false"
    if pa.types.is_floating(kind):
        return b"%.17g" % cell
    if pa.types.is_decimal(kind):
        return f"{cell:.{kind.scale}f}".encode()
    if isinstance(cell, bytes):
        return cell.hex().encode()
    return str(cell).encode()


def _cell(kind: pa.DataType, cell: Any) -> bytes:
    if cell is None:
        return b"-"
    text = _text(kind, cell)
    return b"%d:%s" % (len(text), text)
