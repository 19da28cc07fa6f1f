"""Convert one request to Oracle statements and binds, split into parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import oracledb

from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes
from headrace.core.reselect.rows import RowRequest
from headrace_connectors.sql.cells import ReadableColumns, Wanted, key_column
from headrace_connectors.sql.oracle_keys import key_bind_sql, key_values
from headrace_connectors.sql.oracle_query import (
    SCN,
    SLOTS,
    KeyBind,
    cell_expression,
    key_bind,
    need_bind,
    select_rows,
    slots_for,
)
from headrace_connectors.sql.oracle_session import bind_type
from headrace_connectors.sql.oracle_values import KNOWN_TYPES, reader
from headrace_connectors.sql.query import masks


@dataclass(frozen=True, slots=True)
class Statement:
    """A SELECT for one part of a request, whose first row has ordinal 1 and is request row ``begin``."""

    begin: int
    slots: int
    text: str
    binds: dict[str, Any]
    bind_types: dict[str, Any]


def readable_columns(catalog: CatalogTable, wanted: Sequence[Wanted], modes: HandlingModes) -> ReadableColumns:
    """No expression for a type that none may contain: a LONG would fail the complete SELECT."""

    def find(name: str) -> CatalogColumn | None:
        known = catalog.column(name)
        return known if known is not None and known.type.name in KNOWN_TYPES else None

    return ReadableColumns.of(wanted, find, lambda schema, column: reader(schema, column, modes))


@dataclass(frozen=True, slots=True)
class OracleRead:
    """A request, ready for execution: ``cells`` read its ``readable`` columns.

    ``keys`` and ``needs`` contain the values of each key column and need mask by row.
    """

    catalog: CatalogTable
    request: RowRequest
    readable: ReadableColumns
    cells: tuple[str, ...]
    key: tuple[KeyBind, ...]
    key_types: tuple[Any, ...]
    keys: tuple[Sequence[Any], ...]
    needs: tuple[Sequence[int], ...]

    @staticmethod
    def of(catalog: CatalogTable, request: RowRequest, modes: HandlingModes) -> OracleRead:
        """Prepare a request. Raises Fatal if the key's columns cannot be compared exactly."""
        readable = readable_columns(catalog, request.columns, modes)
        key = [(column, key_column(catalog, column.name)) for column in request.key]
        return OracleRead(
            catalog,
            request,
            readable,
            cells=tuple(cell_expression(each.known.name, each.known.type.name) for each in readable.columns),
            key=tuple(key_bind_sql(*pair) for pair in key),
            key_types=tuple(bind_type(column.type.name) for _, column in key),
            keys=tuple(key_values(*pair, modes) for pair in key),
            needs=tuple(mask.tolist() for mask in masks(request.needs[:, readable.places])),
        )

    @property
    def where(self) -> str:
        """Return the table's name for messages."""
        return f"{self.catalog.table.schema}.{self.catalog.table.table}"

    @property
    def scn(self) -> int:
        """Return the highest commit SCN of the rows; -1 if one is unknown, because it may be higher than all others."""
        scns = self.request.transactions
        return int(scns.max()) if len(scns) and scns.min() >= 0 else -1

    def statements(self, *, as_of_scn: bool) -> Iterator[Statement]:
        """Return the SELECTs that answer the complete request, of up to ``SLOTS[-1]`` keys each."""
        for begin in range(0, len(self.request), SLOTS[-1]):
            end = min(begin + SLOTS[-1], len(self.request))
            slots = slots_for(end - begin)
            binds = self._binds(begin, end, slots) | ({SCN: self.scn} if as_of_scn else {})
            table = self.catalog.table
            text = select_rows((table.schema, table.table), self.key, self.cells, slots, as_of_scn=as_of_scn)
            yield Statement(begin, slots, text, binds, self._bind_types(slots))

    def _binds(self, begin: int, end: int, slots: int) -> dict[str, Any]:
        """Values of the slots' binds; slots without a row have null keys, which match nothing."""
        binds: dict[str, Any] = {}
        for slot in range(1, slots + 1):
            place = begin + slot - 1
            used = place < end
            binds |= {key_bind(n, slot): values[place] if used else None for n, values in enumerate(self.keys, 1)}
            binds |= {need_bind(n, slot): mask[place] if used else 0 for n, mask in enumerate(self.needs, 1)}
        return binds

    def _bind_types(self, slots: int) -> dict[str, Any]:
        """A type for every bind, also for a null one: other types would need other cursors of the statement."""
        types: dict[str, Any] = {}
        for slot in range(1, slots + 1):
            types |= {key_bind(n, slot): kind for n, kind in enumerate(self.key_types, 1)}
            types |= {need_bind(n, slot): oracledb.DB_TYPE_NUMBER for n in range(1, len(self.needs) + 1)}
        return types
