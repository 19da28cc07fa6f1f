"""The reselect post-processor at work: rules, cache and database behind the pure plan of ``core/reselect/plan.py``.

One per task; each table's thread calls ``resolve`` for its own batches, so everything shared stands behind a lock,
which is never held while the database is asked. A table's batch ends with ``committed`` or ``failed``: only then do
other batches see what it put into the cache.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, HeadraceError, Retriable
from headrace.core.model.events import Actions, Changes, TableId
from headrace.core.model.schema import Schema
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.cache.batch import CacheBatch
from headrace.core.reselect.cache.column_cache import ReselectColumnCache
from headrace.core.reselect.cache.rows import MemoryRowStore, Origin, Partition, RowStore
from headrace.core.reselect.causes import NO_DATABASE, Cause, Causes, Resolved, no_table, untraceable
from headrace.core.reselect.completion import Completed, check_no_placeholder, complete
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.plan import ReselectPlan, decided_by_fold, plan
from headrace.core.reselect.rows import ReadRows
from headrace.core.reselect.rules import TableRules, table_rules
from headrace.core.reselect.unresolved import UnresolvedRows, unanswered
from headrace.ports import RowSource
from headrace.runtime.pipeline.source_reader import NoMetrics, ReselectMetrics, SourceReader

log = logging.getLogger(__name__)

MAY_CACHE: Callable[[str], bool] = lambda topic: True  # noqa: E731 - a default that says what it is

WRONG_KEYS = (
    "%s.%s has a primary key and REPLICA IDENTITY USING INDEX %s: deletes and key changes come with wrong keys, and "
    "rows that were deleted stay in the lake; set its REPLICA IDENTITY to DEFAULT or FULL"
)


@dataclass(frozen=True, slots=True)
class _Known:
    """A catalog entry and when it must be looked at again (monotonic seconds).

    ``chunk`` counts the chunks that had begun before it was read: their records are not newer than the entry.
    """

    catalog: CatalogTable | None
    until: float
    chunk: int


class ReselectColumnsPostProcessor:
    """Fills the cells that the source left out, from cache and database, before a batch is written.

    ``source`` is None when no database is configured. ``may_cache`` is False for topics that hide events (compacted, or
    filtered before Headrace). ``clock`` gives monotonic seconds. ``rows`` is where the cache keeps its rows, in memory
    if none is given; it is closed with the post-processor.
    """

    def __init__(
        self,
        options: ReselectOptions,
        source: RowSource | None = None,
        *,
        metrics: ReselectMetrics | None = None,
        may_cache: Callable[[str], bool] = MAY_CACHE,
        clock: Callable[[], float] = time.monotonic,
        rows: RowStore | None = None,
    ) -> None:
        self._options = options
        self._metrics = metrics or NoMetrics()
        self._source = None if source is None else SourceReader(source, options, self._metrics, clock)
        self._may_cache = may_cache
        self._clock = clock
        self._placeholder = Placeholder(options.unavailable_value_placeholder)
        self._cache = self._open_cache(rows) if options.cache_enabled else None
        self._lock = threading.Lock()
        self._batches: dict[TableId, CacheBatch] = {}
        self._catalogs: dict[TableId, _Known] = {}
        self._chunk = 0
        self._left: set[str] = set()
        if options.null_values and source is not None and not options.columns_include_list:
            log.warning(
                "reselect.null.values=true without reselect.columns.include.list reads a row again for every null of "
                "every column; set reselect.null.values=false or list the columns"
            )

    # -- the batch of a table -----------------------------------------------------------------------------------------

    def resolve(self, actions: Actions, *, divisible: bool = False) -> Actions:
        """Decide every open cell of a table's batch; see ``core/reselect.complete`` for what it raises, and
        UnresolvedRows where ``reselect.error.handling.mode`` is dlq. TooLarge only where a batch is ``divisible``.

        May be called again for the same batch (a retry, or rows that turned out to have nothing to keep).
        """
        return self._resolve(actions, None, divisible).actions

    def resolve_stored(self, actions: Actions, stored: npt.NDArray[np.bool_], *, divisible: bool = False) -> Resolved:
        """As ``resolve``, where ``stored`` marks the actions that have a stored row, whose cells can be kept."""
        return self._resolve(actions, stored, divisible)

    def _resolve(self, actions: Actions, stored: npt.NDArray[np.bool_] | None, divisible: bool) -> Resolved:
        catalog = self.table(actions.table)
        rules = self._rules(actions, catalog)
        with self._lock:
            planned = plan(actions, rules, self._batch(actions.table, rules), stored)
        answer, failure = self._ask(planned, catalog, divisible)
        with self._lock:
            completed = complete(planned, answer, failure)
        self._report(planned)
        self._guard(completed)
        if self._options.error_handling_mode == "dlq":
            self._refuse_unanswered(planned, completed, failure)
        causes = Causes(self._options, planned, answer, failure, self._no_source(actions, catalog))
        return Resolved(completed.actions, causes.of)

    def _refuse_unanswered(self, planned: ReselectPlan, completed: Completed, failure: HeadraceError | None) -> None:
        rows = unanswered(planned, completed)
        if rows:
            why = "the database did not have them" if failure is None else f"the database did not give them: {failure}"
            raise UnresolvedRows(f"{why}; a later change of the row that tells them completes it", rows)

    def folded(self, changes: Changes, actions: Actions) -> None:
        """Count what a batch's events have decided among themselves."""
        for column, number in decided_by_fold(changes, actions).items():
            self._metrics.count(changes.table, "resolved", ("fold", column), number)

    def contradicted(self, table: TableId, kind: str, rows: int) -> None:
        """Count a sign of events that never came."""
        if rows:
            self._metrics.count(table, "contradictions", (kind,), rows)

    def committed(self, table: TableId) -> None:
        """The table's batch is durable: let others see its cache entries."""
        with self._lock:
            batch = self._batches.pop(table, None)
            if batch is not None:
                batch.publish()

    def failed(self, table: TableId) -> None:
        """The table's batch was not written: forget what it put into the cache."""
        with self._lock:
            batch = self._batches.pop(table, None)
            if batch is not None:
                batch.discard()

    def truncated(self, table: TableId) -> None:
        """A truncate of the table was written, or rows of it were replaced by other means."""
        with self._lock:
            if self._cache is not None:
                self._cache.drop_table(table, "truncate")

    def lost(self, topic: str, partition: int, offset: int) -> None:
        """An event was not applied: nothing that was cached of its partition before it counts any more."""
        with self._lock:
            if self._cache is not None:
                self._cache.lose(Partition(topic, partition), offset)

    def snapshot_began(self, table: TableId | None) -> None:
        """A snapshot of a table (None: of all tables) begins: what was cached of it may have changed unseen."""
        with self._lock:
            if self._cache is not None and table is not None:
                self._cache.drop_table(table, "snapshot")
            elif self._cache is not None:
                self._cache.clear("snapshot")

    def altered(self, table: TableId) -> None:
        """The source says that a table's schema has changed: what was cached or is known of it is void."""
        with self._lock:
            self._catalogs.pop(table, None)
            if self._cache is not None:
                self._cache.drop_table(table, "schema")

    def leave(self, topic: str) -> None:
        """Neither read nor cache anything of a topic from now on: its records do not tell their events well enough."""
        with self._lock:
            if topic not in self._left and self._cache is not None:
                self._cache.drop_topic(topic, "untold")
            self._left.add(topic)

    def flush(self, topic: str | None = None) -> None:
        """Forget what was cached, of one topic or of all: the operator's way after a change that no event shows."""
        with self._lock:
            if self._cache is not None and topic is not None:
                self._cache.drop_topic(topic, "operator")
            elif self._cache is not None:
                self._cache.clear("operator")

    # -- assignment ---------------------------------------------------------------------------------------------------

    def assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Partitions were given to this task, or their offsets were set: what was cached of them is void."""
        with self._lock:
            if self._cache is not None:
                self._cache.assign([Partition(*partition) for partition in partitions])

    def revoked(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Partitions belong to somebody else now."""
        with self._lock:
            if self._cache is not None:
                self._cache.revoke([Partition(*partition) for partition in partitions])

    def resumed(self, topic: str, partition: int, position: int) -> None:
        """The first event of an assignment is the one at ``position``; call it before that event is resolved."""
        with self._lock:
            if self._cache is not None:
                self._cache.resume(Partition(topic, partition), position)

    def settled(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """All events before these offsets of their partitions are durable, and committed as such."""
        with self._lock:
            if self._cache is not None:
                self._cache.settled({Partition(*partition): offset for partition, offset in offsets.items()})

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause when the configured database cannot be used."""
        if self._source is not None:
            self._source.check()

    def close(self) -> None:
        """End waiting retries, let go of the database and of the cache's rows. Idempotent."""
        with self._lock:
            if self._cache is not None:
                self._cache.close()
        self.close_source()

    def close_source(self) -> None:
        """End waiting retries, and let go of the database: what still asks it fails. Idempotent."""
        if self._source is not None:
            self._source.close()

    # -- the catalog --------------------------------------------------------------------------------------------------

    def table(self, table: TableId) -> CatalogTable | None:
        """What the database says about a table, looked at again every ``reselect.catalog.refresh.ms``.

        None without a database or without such a table. Raises Retriable when it cannot be asked and was not before.
        """
        known = self._catalogs.get(table)
        if self._source is None or (known is not None and self._clock() < known.until):
            return None if known is None else known.catalog
        chunk = self._chunk
        try:
            catalog = self._source.catalog(table)
        except Retriable:
            if known is None:
                raise
            log.warning("the catalog entry of %s.%s could not be refreshed", table.schema, table.table)
            catalog, chunk = known.catalog, known.chunk
        if known is None and catalog is not None and catalog.sends_wrong_keys:
            log.warning(WRONG_KEYS, table.schema, table.table, catalog.identity_index)
        self._remember(table, catalog, chunk)
        return catalog

    def _remember(self, table: TableId, catalog: CatalogTable | None, chunk: int) -> None:
        until = self._clock() + self._options.catalog_refresh_ms / 1000
        self._catalogs[table] = _Known(catalog, until, chunk)

    def schema(self, table: TableId) -> Schema | None:
        """The ``after`` schema that Debezium would send for a table, for JSON without schemas."""
        catalog = self.table(table)
        return None if catalog is None or self._source is None else self._source.schema(catalog)

    def chunk_began(self) -> None:
        """A chunk has arrived: an entry that was read before may be older than its records."""
        with self._lock:
            self._chunk += 1

    def schema_now(self, table: TableId) -> Schema | None:
        """As ``schema``, by an entry that was read after the last chunk began: a chunk costs one query for a table.

        Raises Retriable when the database cannot be asked: an older entry must not decide about a record.
        """
        known, chunk = self._catalogs.get(table), self._chunk
        if self._source is not None and (known is None or known.chunk < chunk):
            self._remember(table, self._source.catalog(table), chunk)
        return self.schema(table)

    def _open_cache(self, rows: RowStore | None) -> ReselectColumnCache:
        limits, clock = self._options.cache_limits, self._clock
        return ReselectColumnCache(
            MemoryRowStore(limits) if rows is None else rows,
            limits,
            lambda: int(clock() * 1000),
            self._placeholder.is_form,
            self._options.cache_settings,
            lambda: int(time.time() * 1000),
        )

    def _rules(self, actions: Actions, catalog: CatalogTable | None) -> TableRules:
        topic = actions.version.topic
        return table_rules(
            actions.table,
            actions.columns,
            actions.key_fields,
            self._options,
            catalog,
            has_source=self._no_source(actions, catalog) is None,
            may_cache=self._options.caches and topic not in self._left and self._may_cache(topic),
        )

    def _no_source(self, actions: Actions, catalog: CatalogTable | None) -> Cause | None:
        """Why the rows of a batch cannot be read from a database; None if they can."""
        if self._source is None:
            return NO_DATABASE
        if actions.version.topic in self._left:
            return untraceable(actions.version.topic)
        return no_table(actions.table) if catalog is None else None

    def _batch(self, table: TableId, rules: TableRules) -> CacheBatch | None:
        """The overlay of the table's batch. A table that has cached rows needs one even if no column is cached now."""
        if self._cache is None or not (rules.caches or table in self._batches or self._cache.holds(table)):
            return None
        batch = self._batches.get(table)
        if batch is None:
            batch = self._batches[table] = self._cache.begin(table, rules.shape, rules.fingerprints)
        else:
            batch.fingerprints = {**batch.fingerprints, **rules.fingerprints}
        return batch

    # -- the database -------------------------------------------------------------------------------------------------

    def _ask(
        self, planned: ReselectPlan, catalog: CatalogTable | None, divisible: bool
    ) -> tuple[ReadRows | None, HeadraceError | None]:
        """The answer to the plan's request, or why there is none, as ``reselect.error.handling.mode`` allows."""
        if planned.request is None or self._source is None or catalog is None:
            return None, None
        try:
            answer = self._source.read(catalog, planned.request, divisible=divisible)
        except ConfigError:
            raise
        except (Retriable, Fatal) as error:
            if self._options.error_handling_mode == "fail":
                raise
            if self._options.error_handling_mode == "dlq" and isinstance(error, Retriable):
                raise  # the database, not the record: nothing is dead-lettered because a server is down
            log.warning("reselect of %d row(s) of %s failed: %s", len(planned.rows), catalog.table.table, error)
            self._catalogs.pop(catalog.table, None)
            return None, error
        self._check_found(planned, answer)
        return answer, None

    def _check_found(self, planned: ReselectPlan, answer: ReadRows) -> None:
        missing = int((~answer.found).sum())
        if not missing:
            return
        table = planned.actions.table
        self._metrics.count(table, "rows_not_found", (), missing)
        if self._options.error_handling_mode == "fail":
            raise Fatal(
                f"{missing} row(s) of {table.schema}.{table.table} are not in the source any more; they cannot be read "
                "again. Set reselect.error.handling.mode=warn to go on with what is known"
            )

    # -- what happened ------------------------------------------------------------------------------------------------

    def _report(self, planned: ReselectPlan) -> None:
        table = planned.actions.table
        counts = dict(planned.counts)
        if self._cache is None:  # then nothing passes it by
            counts.pop(("requests", "bypassed"), None)
        else:
            with self._lock:
                self._metrics.cache(self._cache.use())
                counts.update(self._cache.counts)
                self._cache.counts.clear()
        for (kind, *labels), number in counts.items():
            if number:
                self._metrics.count(table, kind, labels, number)
        # An event behind its row: sent again after a restart, or of a source whose positions have started again.
        falling = counts.get(("writes", Origin.EVENT, "position"), 0)
        if falling:
            self._metrics.count(table, "contradictions", ("position_regression",), falling)

    def _guard(self, completed: Completed) -> None:
        table = completed.actions.table
        try:
            equal = check_no_placeholder(completed, self._placeholder)
        except Fatal:
            self._metrics.count(table, "guard", (), 1)
            raise
        if equal:
            self._metrics.count(table, "source_equals_placeholder", (), equal)
