"""The catalog of the source database as one task knows it: tables and their schemas, read again after an interval."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import Retriable
from headrace.core.model.events import TableId
from headrace.core.model.schema import Schema
from headrace.runtime.pipeline.source_reader import SourceReader

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

        Raises Retriable if the database cannot be queried and no earlier entry is known.
        """
        known = self._entries.get(table)
        if self._source is None or (known is not None and self._clock() < known.refresh_at):
            return None if known is None else known.catalog
        chunk = self._chunk
        try:
            catalog = self._source.catalog(table)
        except Retriable as error:
            if known is None:
                raise
            log.warning("%s.%s: the catalog entry was not refreshed: %s", table.schema, table.table, error)
            catalog, chunk = known.catalog, known.chunk
        if known is None and catalog is not None and catalog.sends_wrong_keys:
            log.warning(WRONG_KEYS, table.schema, table.table, catalog.identity_index)
        self._store(table, catalog, chunk)
        return catalog

    def schema(self, table: TableId) -> Schema | None:
        """Return the ``after`` schema that Debezium would send for a table, for JSON without schemas."""
        catalog = self.table(table)
        return None if catalog is None or self._source is None else self._source.schema(catalog)

    def schema_now(self, table: TableId) -> Schema | None:
        """As ``schema``, from an entry that was read after the last chunk began: one query for a table and chunk.

        Raises Retriable if the database cannot be queried, because an older entry must not decide about a record.
        """
        known, chunk = self._entries.get(table), self._chunk
        if self._source is not None and (known is None or known.chunk < chunk):
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
