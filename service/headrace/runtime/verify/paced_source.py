"""Limits what a verification takes from the source database, and ends it when its task stops.

Tests: ``tests/unit/runtime/verify/test_paced_source.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import RowAnswer, RowRequest
from headrace.ports import Connections, LogPosition, PartwiseSource, TablePart, TableSource

_MINUTE = 60.0


class Stopped(BaseException):
    """The task of a verification stops. No ``except Exception`` on the way may handle it."""


class Pace:
    """The speed of one task's verifications: the caller sleeps until it may continue.

    ``rows_per_second`` counts rows, ``source_ms_per_minute`` the time of statements in the source database.
    """

    def __init__(self, rows_per_second: int, source_ms_per_minute: int, now: Callable[[], float]) -> None:
        self._rows_per_second = rows_per_second
        self._share = source_ms_per_minute / 1000 / _MINUTE
        self._now = now
        self._free_at = 0.0
        self._stopping = threading.Event()

    def stop(self) -> None:
        """Let every other call raise Stopped, and those that sleep."""
        self._stopping.set()

    def sleep(self, seconds: float) -> None:
        """Sleep. Raises Stopped."""
        if self._stopping.wait(max(seconds, 0.0)):
            raise Stopped

    def rows(self, count: int) -> None:
        """Wait as long as ``count`` rows take at the allowed speed. Raises Stopped."""
        self._wait(self._now(), count / self._rows_per_second)

    @contextmanager
    def statement(self) -> Iterator[list[int]]:
        """Measure a statement, and wait afterwards until both limits are kept. Raises Stopped.

        The block adds the number of rows that were read to the list.
        """
        began = self._now()
        rows: list[int] = []
        yield rows
        took = self._now() - began
        self._wait(began, max(took / self._share, sum(rows) / self._rows_per_second))

    def _wait(self, began: float, seconds: float) -> None:
        self._free_at = max(self._free_at, began) + seconds
        self.sleep(self._free_at - self._now())


class PacedSource:
    """A ``TableSource`` that reads at a pace: complete tables in parts, if the source can."""

    def __init__(self, source: TableSource, pace: Pace) -> None:
        self._source = source
        self._pace = pace

    def check(self) -> None:
        self._source.check()

    def catalog(self, table: TableId) -> CatalogTable | None:
        return self._source.catalog(table)

    def schema(self, catalog: CatalogTable) -> Schema:
        return self._source.schema(catalog)

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        with self._pace.statement():
            return self._source.fetch(catalog, request)

    def scan(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[Sequence[Sequence[Any]]]:
        """Yield every row. A row that is updated meanwhile may come twice, or not at all, if the source has parts."""
        parts = self._parts(catalog, columns)
        while True:
            with self._pace.statement() as rows:
                part = next(parts, None)
                rows.append(0 if part is None else part.rows)
            if part is None:
                return
            yield part.values()

    def _parts(self, catalog: CatalogTable, columns: Sequence[Field]) -> Iterator[TablePart]:
        if isinstance(self._source, PartwiseSource):
            return self._source.scan_in_parts(catalog, columns)
        scan = self._source.scan(catalog, columns)
        return (TablePart(len(values[0]) if values else 0, partial(list, values)) for values in scan)

    def log_position(self) -> LogPosition:
        return self._source.log_position()

    def connections(self) -> Connections:
        return self._source.connections()

    def close(self) -> None:
        self._source.close()
