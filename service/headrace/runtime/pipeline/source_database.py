"""The source database of a task: its row source, its catalog, and several databases as one row source.

Rows are read in parts that fit into memory, with retries, and with metrics. Tables of the catalog and their schemas are
read again after an interval. The threads of several tables call these objects at the same time.

A connector may read the topics of several source connectors, whose databases can contain tables of the same names. The
fields ``source.name`` and ``source.db`` of the events identify the database (``reselect.databases``).
"""

from __future__ import annotations

import logging
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
from headrace.core.model.errors import Fatal, Retriable, TimedOut
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.cache.rows import CacheUse
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import MOST, ReadRows, RowAnswer, RowRequest, SelectSize
from headrace.ports import Connections, ReplicationSlot, RowSource, SlotSource

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
        self._source.check()

    def slots(self) -> Sequence[ReplicationSlot]:
        """Return the replication slots, none of a database without them. Raises the errors of the source, at once."""
        return self._source.slots() if isinstance(self._source, SlotSource) else ()

    def catalog(self, table: TableId) -> CatalogTable | None:
        return self._retrying()(self._source.catalog, table)

    def schema(self, catalog: CatalogTable) -> Schema:
        return self._source.schema(catalog)

    def read(self, catalog: CatalogTable, request: RowRequest, *, divisible: bool = False) -> ReadRows:
        """Return the complete answer. Raises the errors of the source; Retriable only after ``errors.retry.timeout``.

        Raises TooLarge for a request of a ``divisible`` batch whose answer needs much more than ``_most`` bytes.
        """
        bounds = SelectSize(self._options.batch_max_keys, self._options.batch_max_bytes)
        size = self._sizes.setdefault(request.table, bounds)
        parts: list[ReadRows] = []
        done = bytes_held = 0
        while done < len(request):
            part, answer = self._retrying()(self._fetch_next, catalog, request, done, size)
            part_bytes = size.learn(int(answer.found.sum()), answer.values)
            self._metrics.count(request.table, "bytes_read", (), part_bytes)
            if part_bytes > self._most and len(part) > 1:
                continue  # ``size`` has learned how large the rows are: read fewer of them
            if done and bytes_held + part_bytes > self._most and divisible:
                raise TooLarge(-(-2 * len(request) // done))  # the parts may differ in size
            parts.append(ReadRows.of(part, answer))
            done, bytes_held = done + len(part), bytes_held + part_bytes
        size.answered()
        return ReadRows.joined(parts)

    def close(self) -> None:
        self._closed.set()
        self._source.close()

    def _fetch_next(
        self, catalog: CatalogTable, request: RowRequest, done: int, size: SelectSize
    ) -> tuple[RowRequest, RowAnswer]:
        """Read the next rows of a request. After a time-out the next attempt reads fewer rows."""
        part = request.slice(done, done + size.rows())
        begin, result, waited = self._clock(), "permanent", 0.0
        try:
            answer = self._source.fetch(catalog, part)
            result, waited = "ok" if answer.found.all() else "not_found", answer.waited
        except TimedOut:
            result = "timeout"
            size.timed_out(len(part))
            raise
        except Retriable:
            result = "transient"
            raise
        finally:
            self._metrics.query(part.table, Query(result, len(part), self._clock() - begin, waited))
            self._metrics.connections(self._source.connections())
        for code, count in answer.flashback_fallbacks.items():
            self._metrics.count(part.table, "flashback_fallbacks", (code,), count)
        return part, answer

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


log = logging.getLogger(__name__)

WRONG_KEYS = (
    "%s.%s: the table has a primary key and REPLICA IDENTITY USING INDEX %s: deletes and key changes contain wrong "
    "keys, so that deleted rows remain in the lake; set its REPLICA IDENTITY to DEFAULT or FULL"
)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A catalog entry and the time of its next refresh (monotonic seconds).

    ``chunk`` counts the chunks that had begun before the read: their records are not newer than the entry.
    """

    catalog: CatalogTable | None
    refresh_at: float
    chunk: int


class SourceCatalog:
    """The ``core.model.catalog.Catalog`` of one task; ``source`` is None without a database.

    An entry is valid for ``refresh_ms`` (``reselect.catalog.refresh.ms``), or until the source alters its table.
    ``clock`` returns monotonic seconds. Threads of decoders and tables call it; no lock is held during a query.
    """

    def __init__(self, source: SourceReader | None, refresh_ms: int, clock: Callable[[], float]) -> None:
        self._source = source
        self._refresh_ms = refresh_ms
        self._clock = clock
        self._entries: dict[TableId, _Entry] = {}
        self._lock = threading.Lock()
        self._chunk = 0

    def table(self, table: TableId) -> CatalogTable | None:
        """Return the entry of a table, or None without a database or without such a table.

        Raises Retriable if the database cannot be queried and there is no earlier entry.
        """
        entry = self._entries.get(table)
        if self._source is None or (entry is not None and self._clock() < entry.refresh_at):
            return None if entry is None else entry.catalog
        chunk = self._chunk
        try:
            catalog = self._source.catalog(table)
        except Retriable as error:
            if entry is None:
                raise
            log.warning("%s.%s: the catalog entry was not refreshed: %s", table.schema, table.table, error)
            catalog, chunk = entry.catalog, entry.chunk
        if entry is None and catalog is not None and catalog.sends_wrong_keys:
            log.warning(WRONG_KEYS, table.schema, table.table, catalog.identity_index)
        self._store(table, catalog, chunk)
        return catalog

    def schema(self, table: TableId) -> Schema | None:
        catalog = self.table(table)
        return None if catalog is None or self._source is None else self._source.schema(catalog)

    def schema_now(self, table: TableId) -> Schema | None:
        """As ``schema``, from an entry that was read after the last chunk began: one query for a table and chunk.

        Raises Retriable if the database cannot be queried, because an older entry must not decide about a record.
        """
        entry, chunk = self._entries.get(table), self._chunk
        if self._source is not None and (entry is None or entry.chunk < chunk):
            self._store(table, self._source.catalog(table), chunk)
        return self.schema(table)

    def begin_chunk(self) -> None:
        """Register the arrival of a chunk: entries that were read before may be older than its records."""
        with self._lock:
            self._chunk += 1

    def discard(self, table: TableId) -> None:
        """Discard the entry of a table: the source has altered the table, or a read by the entry has failed."""
        self._entries.pop(table, None)

    def _store(self, table: TableId, catalog: CatalogTable | None, chunk: int) -> None:
        self._entries[table] = _Entry(catalog, self._clock() + self._refresh_ms / 1000, chunk)


class DatabaseRouter:
    """A ``ports.RowSource`` over several. The first database that may contain a table's events answers for it."""

    def __init__(self, sources: Sequence[tuple[DatabaseOptions, RowSource]]) -> None:
        self._sources = tuple(sources)

    def source_of(self, table: TableId) -> RowSource | None:
        """Return the row source of a table, or None if it belongs to none of the databases."""
        return next((source for database, source in self._sources if database.holds(table)), None)

    def check(self) -> None:
        for _, source in self._sources:
            source.check()

    def slots(self) -> Sequence[ReplicationSlot]:
        return [slot for _, source in self._sources if isinstance(source, SlotSource) for slot in source.slots()]

    def catalog(self, table: TableId) -> CatalogTable | None:
        """Return the table's entry in the catalog of its database; None if no database has the table."""
        source = self.source_of(table)
        return None if source is None else source.catalog(table)

    def schema(self, catalog: CatalogTable) -> Schema:
        return self._source_or_fatal(catalog).schema(catalog)

    def fetch(self, catalog: CatalogTable, request: RowRequest) -> RowAnswer:
        return self._source_or_fatal(catalog).fetch(catalog, request)

    def connections(self) -> Connections:
        return sum((source.connections() for _, source in self._sources), Connections())

    def close(self) -> None:
        for _, source in self._sources:
            source.close()

    def _source_or_fatal(self, catalog: CatalogTable) -> RowSource:
        source = self.source_of(catalog.table)
        if source is None:
            name = f"{catalog.table.schema}.{catalog.table.table}"
            raise Fatal(f"{name}: none of reselect.databases contains the table; add its database")
        return source
