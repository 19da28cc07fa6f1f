"""Requests for rows of the source, its answers, and the usable cells of an answer.

Answers come in parts (``runtime/pipeline/source_database.py``), each as Python values by column. Each part becomes
Arrow columns before the next one is read: the large values of a batch as Python objects would cost more time than
reading them, because the kernel has to map new memory for them.

The bytes of a row are known only after rows have been read, so each answer sets the size of the next SELECT of its
table (``reselect.batch.max.keys`` and ``.max.bytes``). The first SELECT assumes a typical size of values that are
stored out of line. After a time-out, the rows are read in halves, and the size grows again only after requests without
time-outs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import Column, TableId

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class _Unreadable:
    def __repr__(self) -> str:
        return "UNREADABLE"


UNREADABLE: Final = _Unreadable()
"""The marker for a value that does not fit the target type: the cell stays open and is never cached."""


@dataclass(frozen=True, slots=True)
class RowRequest:
    """Cells to read again: rows by the values of their key columns, and for each row the columns that it needs.

    ``key`` and ``columns`` contain names and schemas; ``key`` also contains the values, one per row. ``needs`` has a
    row per requested row and a column per column. ``transactions`` are those of the rows' last events (PostgreSQL's id,
    Oracle's commit SCN), -1 if unknown.
    """

    table: TableId
    key: tuple[Column, ...]
    columns: tuple[Column, ...]
    needs: npt.NDArray[np.bool_]
    transactions: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.needs)

    def slice(self, begin: int, end: int) -> RowRequest:
        key = tuple(replace(column, values=column.values[begin:end]) for column in self.key)
        return replace(self, key=key, needs=self.needs[begin:end], transactions=self.transactions[begin:end])


@dataclass(frozen=True, slots=True)
class RowAnswer:
    """The rows in the source: ``found`` per requested row, and per column a Connect value (or UNREADABLE) per row.

    Values of rows that were not found, or not requested, are undefined. A column whose values are the texts of the
    driver may be an Arrow array: as Python objects they would be copied twice more. ``proven`` is whether the events'
    transactions were visible to the reading snapshot; answers without this proof are not cached.
    ``flashback_fallbacks`` counts, by error code, the reads that returned the current state instead of the state at the
    events' SCN (Oracle). ``waited`` is the time in seconds in which an event's transaction was not visible yet.
    """

    found: npt.NDArray[np.bool_]
    values: tuple[Sequence[Any], ...]
    proven: bool = True
    flashback_fallbacks: Mapping[str, int] = field(default_factory=dict)
    waited: float = 0.0

    def of_found(self, column: int) -> list[Any]:
        """Return the values of a column in the rows that were found, as Python objects."""
        values, rows = self.values[column], np.flatnonzero(self.found)
        if isinstance(values, pa.Array):
            return list(values.take(pa.array(rows)).to_pylist())
        return [values[row] for row in rows.tolist()]


@dataclass(frozen=True, slots=True)
class ReadCells:
    """The usable cells of one column: their indexes in the request, ascending, and the values that events would have.

    ``unreadable`` counts the requested and found cells that cannot be used.
    """

    places: Rows
    values: pa.Array
    unreadable: int = 0

    @staticmethod
    def of(column: Column, given: Sequence[Any], wanted: Rows) -> ReadCells:
        """Return the cells at the ``wanted`` indexes whose value fits the column."""
        if isinstance(given, pa.Array):
            values = given if len(wanted) == len(given) else given.take(pa.array(wanted))
            return ReadCells(wanted, build_array(column.schema, values))
        usable = [place for place in wanted.tolist() if given[place] is not UNREADABLE]
        while True:
            try:
                values = build_array(column.schema, [given[place] for place in usable])
            except BadRecord as error:
                del usable[error.culprit]
            else:
                return ReadCells(np.array(usable, np.int64), values, len(wanted) - len(usable))


@dataclass(frozen=True, slots=True)
class ReadRows:
    """All rows of the source for a request, with columns in the request's order; see ``RowAnswer``."""

    found: Mask
    columns: tuple[ReadCells, ...]
    proven: bool = True

    @staticmethod
    def of(request: RowRequest, answer: RowAnswer) -> ReadRows:
        """Return the usable cells of an answer: requested cells of found rows."""
        # proven: S13
        wanted = [np.flatnonzero(answer.found & request.needs[:, number]) for number in range(len(request.columns))]
        columns = map(ReadCells.of, request.columns, answer.values, wanted)
        return ReadRows(answer.found, tuple(columns), answer.proven)

    @staticmethod
    def joined(parts: Sequence[ReadRows]) -> ReadRows:
        """Return the combined answers for consecutive slices of a request."""
        if len(parts) == 1:
            return parts[0]
        begins = np.cumsum([0, *(len(part.found) for part in parts[:-1])])
        columns = tuple(
            ReadCells(
                np.concatenate([begin + cells.places for begin, cells in zip(begins, column, strict=True)]),
                pa.concat_arrays([cells.values for cells in column]),
                sum(cells.unreadable for cells in column),
            )
            for column in zip(*(part.columns for part in parts), strict=True)
        )
        found = np.concatenate([part.found for part in parts])
        return ReadRows(found, columns, all(part.proven for part in parts))


FIRST_GUESS = 64 * 1024
"""The assumed bytes of a row before the first read: with the defaults, ``max.keys`` remains the bound."""
MOST = 1 << 29
"""Bytes that fit into one column of Arrow, which holds 2 GiB, in any encoding of text."""
_NUMBER = 8
_GROWTH = 8
"""After a time-out, each request without one increases the size by an eighth."""


class SelectSize:
    """The size of the next SELECT of one table: at most ``max_keys`` rows of about ``max_bytes``.

    SELECTs of rows whose size is known read about MOST bytes at most, even if ``max_bytes`` is higher.
    """

    def __init__(self, max_keys: int, max_bytes: int) -> None:
        self._max_keys = max(max_keys, 1)
        self._max_bytes = max_bytes
        self._row = FIRST_GUESS
        self._in_time = self._max_keys
        self._late = False

    def rows(self) -> int:
        """Return the number of rows to read; at least one, regardless of its size."""
        return max(1, min(self._in_time, self._max_bytes // max(self._row, 1)))

    def timed_out(self, rows: int) -> None:
        """Register that a SELECT of ``rows`` rows took too long."""
        self._in_time, self._late = max(1, rows // 2), True

    def answered(self) -> None:
        """Register that all rows of a request have been read, in any number of SELECTs and attempts."""
        if not self._late:
            self._in_time = min(self._max_keys, self._in_time + max(1, self._in_time // _GROWTH))
        self._late = False

    def learn(self, rows: int, columns: Sequence[Sequence[Any]]) -> int:
        """Register that ``rows`` rows with these values by column have been read, and return their bytes."""
        size = sum(map(_bytes_of, columns)) if rows else 0
        if rows:
            self._row = -(-size // rows)
            self._max_bytes = min(self._max_bytes, MOST)
        return size


def _bytes_of(column: Sequence[Any]) -> int:
    return int(column.nbytes) if isinstance(column, pa.Array) else sum(map(value_bytes, column))


def value_bytes(value: object) -> int:
    """Return the approximate bytes of a Connect value."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, dict):
        return sum(value_bytes(part) for pair in value.items() for part in pair)
    if isinstance(value, list):
        return sum(value_bytes(item) for item in value)
    return _NUMBER
