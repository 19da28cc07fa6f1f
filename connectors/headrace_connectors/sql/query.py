"""The batched SELECT of reselect, as text (``reselect.md`` section 7.1). Pure: names in, SQL out.

The keys are one array per key column and the needs are bit masks, so that the text is the same for any number of rows
and the server can reuse its plan. ``ord`` assigns an answer to its request, so no key is compared in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

MASK_BITS = 62
"""Columns per mask, which fit into a signed 64-bit integer."""


@dataclass(frozen=True, slots=True)
class KeyTerm:
    """How one key column is compared: its name, its type as ``(schema, name)`` and the index's equality operator."""

    name: str
    type: tuple[str, str]
    operator: tuple[str, str]


def select_rows(table: tuple[str, str], key: Sequence[KeyTerm], columns: Sequence[str], *, only: bool) -> str:
    """Return the SELECT of ``columns`` for many keys. Parameters: an array per key column, then one array per mask.

    The result contains ``ord`` (from 1) and the columns; columns that a row does not need are null and stay
    undetoasted. ``only`` excludes inheriting tables; it must be False for a partitioned root.
    """
    names = [f"k{number}" for number in range(1, len(key) + 1)]
    masks = [f"need{number}" for number in range(1, mask_count(len(columns)) + 1)]
    arrays = [f"${n}::{quoted(*term.type)}[]" for n, term in enumerate(key, 1)]
    arrays += [f"${n}::pg_catalog.int8[]" for n in range(len(key) + 1, len(key) + len(masks) + 1)]
    matches = []
    for term, name in zip(key, names, strict=True):
        schema, symbol = term.operator
        matches.append(f"t.{quoted(term.name)} OPERATOR({quoted(schema)}.{symbol}) k.{name}")
    cells = [
        f"CASE WHEN k.{masks[n // MASK_BITS]} & {1 << n % MASK_BITS} <> 0 THEN t.{quoted(column)} END"
        for n, column in enumerate(columns)
    ]
    return (
        f"SELECT {', '.join(['k.ord', *cells])} "
        f"FROM unnest({', '.join(arrays)}) WITH ORDINALITY AS k({', '.join([*names, *masks, 'ord'])}) "
        f"JOIN {'ONLY ' if only else ''}{quoted(*table)} AS t ON {' AND '.join(matches)}"
    )


def mask_count(columns: int) -> int:
    return (columns + MASK_BITS - 1) // MASK_BITS


def masks(needs: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int64]]:
    """Return the needs (rows by columns) as one array of bit masks per ``MASK_BITS`` columns."""
    packed = []
    for begin in range(0, needs.shape[1], MASK_BITS):
        part = needs[:, begin : begin + MASK_BITS].astype(np.int64)
        packed.append(part @ (np.int64(1) << np.arange(part.shape[1], dtype=np.int64)))
    return packed


def array_literal(elements: Sequence[str | None]) -> str:
    """Return an array in PostgreSQL's input form; every element is quoted, so that it cannot be read as syntax."""
    if None not in elements:  # as a rule, and nothing to escape: much faster for thousands of keys
        joined = '","'.join(cast(Sequence[str], elements))
        if "\\" not in joined and joined.count('"') == 2 * max(len(elements) - 1, 0):
            return f'{{"{joined}"}}' if elements else "{}"
    escaped = (None if text is None else text.replace("\\", "\\\\").replace('"', '\\"') for text in elements)
    return "{" + ",".join("NULL" if text is None else f'"{text}"' for text in escaped) + "}"


def quoted(*names: str) -> str:
    """Return a qualified name with every part quoted as an identifier."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
