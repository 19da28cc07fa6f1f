"""Reads the rows of a request from a row source: in parts that fit into memory, with retries, and with metrics.

The threads of several tables call it at the same time. Sources are safe for that, and the state here is per table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tenacity import (
    Retrying,
    retry_if_exception_type,
    sleep_using_event,
    stop_after_delay,
    stop_any,
    stop_never,
    stop_when_event_set,
    wait_exponential_jitter,
)

from headrace.core.batch.event_pairs import TooLarge
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Retriable, TimedOut
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.cache.rows import CacheUse
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rows import ReadRows, RowAnswer, RowRequest
from headrace.core.reselect.select_size import MOST, SelectSize
from headrace.ports import Connections, RowSource

_SELECTS = 4
"""The limit for one batch, in multiples of the limit for one SELECT."""


@dataclass(frozen=True, slots=True)
class Query:
    """One SELECT: its result (ok, not_found, timeout, transient or permanent), number of keys, and times in seconds.

    ``waited`` is the part of ``seconds`` in which transactions of the events were not visible yet.
    """

    result: str
    keys: int
    seconds: float
    waited: float = 0.0


class ReselectMetrics(Protocol):
    """The metrics of reselect (``reselect.md`` section 9). Called from several threads."""

    def count(self, table: TableId, counter: str, labels: Sequence[str], count: int) -> None:
        """Add to a counter of ``runtime/metrics/metrics.py``; ``labels`` are its labels, in its order."""

    def query(self, table: TableId, query: Query) -> None:
        """Register a SELECT that has ended."""

    def cache(self, use: CacheUse) -> None:
        """Report the current use of the task's cache."""

    def connections(self, now: Connections) -> None:
        """Report the task's current connections to source databases."""


class NoMetrics:
    """Counts nothing."""

    def count(self, table: TableId, counter: str, labels: Sequence[str], count: int) -> None:
        """Do nothing."""

    def query(self, table: TableId, query: Query) -> None:
        """Do nothing."""

    def cache(self, use: CacheUse) -> None:
        """Do nothing."""

    def connections(self, now: Connections) -> None:
        """Do nothing."""


class SourceReader:
    """A row source with retries within ``errors.retry.timeout``. ``clock`` gives monotonic seconds."""

    def __init__(
        self, source: RowSource, options: ReselectOptions, metrics: ReselectMetrics, clock: Callable[[], float]
    ) -> None:
        self._source = source
        self._options = options
        self._metrics = metrics
        self._clock = clock
        self._sizes: dict[TableId, SelectSize] = {}
        self._closed = threading.Event()
        self._most = min(_SELECTS * options.batch_max_bytes, MOST)

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause if the database cannot be used."""
        self._source.check()

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Read the table's entry in the database's catalog."""
        return self._retrying()(self._source.catalog, table)

    def schema(self, catalog: CatalogTable) -> Schema:
        """Return the ``after`` schema that Debezium sends for the table."""
        return self._source.schema(catalog)

    def read(self, catalog: CatalogTable, request: RowRequest, *, divisible: bool = False) -> ReadRows:
        """Return the complete answer. Raises the errors of the source; Retriable only after ``errors.retry.timeout``.

        Raises TooLarge for a request of a ``divisible`` batch whose answer needs much more than ``_most`` bytes.
        """
        bounds = SelectSize(self._options.batch_max_keys, self._options.batch_max_bytes)
        size = self._sizes.setdefault(request.table, bounds)
        parts: list[ReadRows] = []
        done = size_held = 0
        while done < len(request):
            part, answer = self._retrying()(self._ask_next, catalog, request, done, size)
            brought = size.learn(int(answer.found.sum()), answer.values)
            self._metrics.count(request.table, "bytes_read", (), brought)
            if brought > self._most and len(part) > 1:
                continue  # their size is known now: read fewer of these rows
            if done and size_held + brought > self._most and divisible:
                raise TooLarge(-(-2 * len(request) // done))  # the parts may differ in size
            parts.append(ReadRows.of(part, answer))
            done, size_held = done + len(part), size_held + brought
        size.answered()
        return ReadRows.joined(parts)

    def close(self) -> None:
        """End waiting retries and close the database connections. Idempotent."""
        self._closed.set()
        self._source.close()

    def _ask_next(
        self, catalog: CatalogTable, request: RowRequest, done: int, size: SelectSize
    ) -> tuple[RowRequest, RowAnswer]:
        """Read the next rows of a request. After a time-out the next attempt reads fewer rows."""
        part = request.slice(done, done + size.rows())
        try:
            return part, self._ask(catalog, part)
        except TimedOut:
            size.timed_out(len(part))
            raise

    def _ask(self, catalog: CatalogTable, part: RowRequest) -> RowAnswer:
        begin, result, waited = self._clock(), "permanent", 0.0
        try:
            answer = self._source.fetch(catalog, part)
            result, waited = "ok" if answer.found.all() else "not_found", answer.waited
        except TimedOut:
            result = "timeout"
            raise
        except Retriable:
            result = "transient"
            raise
        finally:
            self._metrics.query(part.table, Query(result, len(part), self._clock() - begin, waited))
            self._metrics.connections(self._source.connections())
        for code, count in answer.flashback_fallbacks.items():
            self._metrics.count(part.table, "flashback_fallbacks", (code,), count)
        return answer

    def _retrying(self) -> Retrying:
        timeout = self._options.errors_retry_timeout_ms
        stop = stop_never if timeout < 0 else stop_after_delay(timeout / 1000)
        return Retrying(
            retry=retry_if_exception_type(Retriable),
            stop=stop_any(stop, stop_when_event_set(self._closed)),
            wait=wait_exponential_jitter(multiplier=0.3, max=self._options.errors_retry_delay_max_ms / 1000),
            sleep=sleep_using_event(self._closed),
            reraise=True,
        )
