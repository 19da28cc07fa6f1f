"""Reselect of one task: plan a batch's open cells, query the database for the rest, and complete the actions.

The pure parts are ``core/reselect/plan.py`` and ``completion.py``. The threads of the tables call ``resolve`` at the
same time, each for the batch of its table.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.connect.table_activity import ReselectUse
from headrace.core.model.actions import Actions
from headrace.core.model.catalog import CatalogTable
from headrace.core.model.errors import ConfigError, Fatal, HeadraceError, Retriable
from headrace.core.model.events import Changes, TableId
from headrace.core.model.schema import Field
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.cache.rows import Origin, RowStore
from headrace.core.reselect.completion import Completed, check_no_placeholder, complete
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.plan import ReselectPlan, decided_by_fold, plan
from headrace.core.reselect.rows import ReadRows
from headrace.core.reselect.rules import table_rules
from headrace.core.reselect.unresolved import (
    NO_DATABASE,
    Cause,
    Causes,
    Resolved,
    UnresolvedRows,
    no_table,
    unanswered,
    untraceable,
)
from headrace.ports import ReplicationSlot, RowSource
from headrace.runtime.pipeline.column_cache_service import ColumnCacheService
from headrace.runtime.pipeline.reselect_totals import ReselectTotals
from headrace.runtime.pipeline.source_database import NoMetrics, ReselectMetrics, SourceCatalog, SourceReader

log = logging.getLogger(__name__)

MAY_CACHE: Callable[[str], bool] = lambda topic: True  # noqa: E731 - a default with a name
OnContradiction = Callable[[str, TableId, str], None]
"""Receives topic, source table and kind of a contradiction in the changes of a table. Called in several threads."""


class Reselect:
    """Fills the cells that the source omitted, from ``cache`` and database, before a batch is written.

    ``source`` is None without a database. ``may_cache`` is False for topics without some of the source's events
    (compacted, or filtered before Headrace). ``clock`` returns monotonic seconds. ``rows`` stores the cache's entries.
    ``on_contradiction`` is called with each contradiction that is counted.
    """

    def __init__(
        self,
        options: ReselectOptions,
        source: RowSource | None = None,
        *,
        metrics: ReselectMetrics | None = None,
        may_cache: Callable[[str], bool] = MAY_CACHE,
        clock: Callable[[], float] = time.monotonic,  # proven: S30
        rows: RowStore | None = None,
        on_contradiction: OnContradiction = lambda topic, table, kind: None,
    ) -> None:
        self._options = options
        self._metrics = ReselectTotals(metrics or NoMetrics())
        self._source = None if source is None else SourceReader(source, options, self._metrics, clock)
        self._may_cache = may_cache
        self._on_contradiction = on_contradiction
        self._placeholder = Placeholder(options.unavailable_value_placeholder)
        self.catalog = SourceCatalog(self._source, options.catalog_refresh_ms, clock)
        self.cache = ColumnCacheService(options, self._placeholder, rows, clock)
        self._excluded: set[str] = set()
        if options.null_values and source is not None and not options.columns_include_list:
            log.warning(
                "reselect.null.values=true without reselect.columns.include.list reads a row again for every null of "
                "every column; set reselect.null.values=false or list the columns"
            )

    def check(self) -> None:
        """Raise ConfigError or Retriable with the cause if the configured database cannot be used."""
        if self._source is not None:
            self._source.check()

    def slots(self) -> Sequence[ReplicationSlot] | None:
        """Return the replication slots of the databases, None without a database. Raises the errors of the source."""
        return None if self._source is None else self._source.slots()

    def close(self) -> None:
        """End waiting retries, and close the database connections and the cache. Idempotent."""
        self.cache.close()
        self.close_source()

    def close_source(self) -> None:
        """End waiting retries, and close the database connections: queries in flight fail. Idempotent."""
        if self._source is not None:
            self._source.close()

    def exclude_topic(self, topic: str) -> None:
        """Neither read nor cache rows of a topic from now on: its records do not identify their events and rows."""
        if topic not in self._excluded:
            self._excluded.add(topic)
            self.cache.exclude_topic(topic)

    def generated_columns(self, table: TableId) -> Sequence[Field] | None:
        """Return the generated columns of a source table, as snapshot reads have them; None without a catalog entry.

        Raises Retriable if the database cannot be queried and the catalog has no earlier entry.
        """
        catalog = self.catalog.table(table)
        if catalog is None:
            return None
        names = {column.name for column in catalog.columns if column.generated}
        schema = self.catalog.schema(table) if names else None
        return [] if schema is None else [member for member in schema.fields if member.name in names]

    def use_of(self, tables: Collection[TableId]) -> ReselectUse | None:
        """Return what was done for these source tables in this run, None if there was nothing to do."""
        return self._metrics.use_of(tables)

    def count_folded(self, changes: Changes, actions: Actions) -> None:
        """Count the cells that other events of the batch have decided."""
        for column, cells in decided_by_fold(changes, actions).items():
            self._metrics.count(changes.table, "resolved", ("fold", column), cells)

    def count_contradictions(self, actions: Actions, kind: str, rows: int) -> None:
        """Count rows of a batch whose changes contradict each other or the stored rows, and report them."""
        if rows:
            self._metrics.count(actions.table, "contradictions", (kind,), rows)
            self._on_contradiction(actions.version.topic, actions.table, kind)

    def resolve(
        self, actions: Actions, stored: npt.NDArray[np.bool_] | None = None, *, divisible: bool = False
    ) -> Resolved:
        """Decide the open cells of a table's batch: VALUE, NULL, UNCHANGED (keep the stored cell) or CARRIED.

        ``stored`` marks the actions that have a stored row; an UNCHANGED cell of another action is still open. Without
        it, each action that is not a new incarnation may have one. A batch may be resolved several times, until
        ``cache.commit`` or ``cache.discard`` ends it.

        Raises what ``core/reselect/completion.py: complete`` and the database raise, UnresolvedRows if
        ``reselect.error.handling.mode`` is dlq, and TooLarge if a ``divisible`` batch needs too much memory.
        """
        catalog = self.catalog.table(actions.table)
        topic = actions.version.topic
        no_source: Cause | None = None  # why the rows cannot be read from a database
        if self._source is None:
            no_source = NO_DATABASE
        elif topic in self._excluded:
            no_source = untraceable(topic)
        elif catalog is None:
            no_source = no_table(actions.table)
        caches = self._options.caches and topic not in self._excluded and self._may_cache(topic)  # proven: S10
        rules = table_rules(
            actions.table,
            actions.columns,
            actions.key_fields,
            self._options,
            catalog,
            has_source=no_source is None,
            may_cache=caches and self.cache.admits(actions.table),
        )
        with self.cache.lock:
            planned = plan(actions, rules, self.cache.batch(actions.table, rules), stored)
        answer, failure = self._query(planned, catalog, divisible)
        if caches and answer is not None:
            self.cache.observe_reads(actions.table, actions.key.take(pa.array(planned.rows)))
        with self.cache.lock:
            completed = complete(planned, answer, failure)
        self._report(planned)
        self._refuse_placeholders(completed)
        if self._options.error_handling_mode == "dlq" and (rows := unanswered(planned, completed)):
            cause = "the database does not have them" if failure is None else f"the read of them failed: {failure}"
            raise UnresolvedRows(f"{cause}; a later change of the row that contains them completes it", rows)
        causes = Causes(self._options, planned, answer, failure, no_source)
        return Resolved(completed.actions, causes.of)

    def _query(
        self, planned: ReselectPlan, catalog: CatalogTable | None, divisible: bool
    ) -> tuple[ReadRows | None, HeadraceError | None]:
        """Return the answer to the plan's request, or the failure that ``reselect.error.handling.mode`` tolerates."""
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
            table = catalog.table
            log.warning("%s.%s: reselect of %d row(s) failed: %s", table.schema, table.table, len(planned.rows), error)
            self.catalog.discard(table)
            return None, error
        missing = int((~answer.found).sum())
        if missing:
            self._metrics.count(catalog.table, "rows_not_found", (), missing)
        if missing and self._options.error_handling_mode == "fail":
            raise Fatal(
                f"{catalog.table.schema}.{catalog.table.table}: {missing} row(s) cannot be read again: they are not in "
                "the source any more; set reselect.error.handling.mode=warn to continue with the known values"
            )
        return answer, None

    # -- metrics ------------------------------------------------------------------------------------------------------

    def _report(self, planned: ReselectPlan) -> None:
        table = planned.actions.table
        counts = dict(planned.counts)
        if self.cache.enabled:
            use, outcomes = self.cache.take_counts()
            self._metrics.cache(use)
            counts.update(outcomes)
        else:  # then no request bypasses it
            counts.pop(("requests", "bypassed"), None)
        for (counter, *labels), count in counts.items():
            if counter == "contradictions":
                self.count_contradictions(planned.actions, labels[0], count)
            elif count:
                self._metrics.count(table, counter, labels, count)
        # An event behind its row: delivered again after a restart, or its source has restarted its positions.
        regressions = counts.get(("writes", Origin.EVENT, "position"), 0)
        self.count_contradictions(planned.actions, "position_regression", regressions)

    def _refuse_placeholders(self, completed: Completed) -> None:
        table = completed.actions.table
        try:
            equal = check_no_placeholder(completed, self._placeholder)
        except Fatal:
            self._metrics.count(table, "guard", (), 1)
            raise
        if equal:
            self._metrics.count(table, "source_equals_placeholder", (), equal)
