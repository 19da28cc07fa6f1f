"""Cells in columns, the result of a reader of blocks; otherwise, events have a tuple for each row.

Cells are physical values (``core/model/connect_data.py``): in Arrow, or in a list if they are nested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Cells: TypeAlias = "pa.Array | list[Any]"
Places = npt.NDArray[np.int64]

Wanted: TypeAlias = Mapping[str, "Wanted | None"]
"""The fields of a struct to read, None for a complete field. Other fields are skipped."""


@dataclass(frozen=True, slots=True)
class Struct:
    """The wanted fields of structs, of the rows where the struct is not null: None for all rows."""

    columns: Mapping[str, Cells | Struct]
    present: Places | None = None


@dataclass(slots=True)
class ColumnRows:
    """The rows of ``count`` events, by the names of their columns."""

    columns: dict[str, Cells]
    count: int

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, cut: slice) -> ColumnRows:
        begin, end, _ = cut.indices(self.count)
        return self._at(np.arange(begin, end))

    def __delitem__(self, index: int) -> None:
        kept = self._at(np.delete(np.arange(self.count), index))
        self.columns, self.count = kept.columns, kept.count

    def _at(self, rows: Places) -> ColumnRows:
        return ColumnRows({name: take_rows(cells, rows) for name, cells in self.columns.items()}, len(rows))


def in_python(cells: Cells) -> list[Any]:
    return cells if isinstance(cells, list) else cells.to_pylist()


def take_rows(cells: Cells, rows: Places) -> Cells:
    """The cells at ``rows``, null where that is negative."""
    if isinstance(cells, list):
        return [None if row < 0 else cells[row] for row in rows.tolist()]
    return cells.take(pa.array(rows, mask=rows < 0))


def fill_rows(cells: Cells, places: Places, count: int, others: Mapping[int, Any] = MappingProxyType({})) -> Cells:
    """Put cells at their ``places`` of ``count`` rows, and ``others`` at theirs; all other rows are null."""
    if len(places) == count:
        return cells
    rows = np.full(count, -1)
    rows[places] = np.arange(len(places))
    if others:
        rows[list(others)] = len(places) + np.arange(len(others))
        values = list(others.values())
        if isinstance(cells, list):
            cells = [*cells, *values]
        elif pa.types.is_null(cells.type):  # its type is unknown
            cells = pa.array([*cells.to_pylist(), *values])
        else:
            cells = pa.concat_arrays([cells, pa.array(values, cells.type)])
    return take_rows(cells, rows)
