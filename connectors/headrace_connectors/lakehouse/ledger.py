"""The ledger of tombstones beside a table: deletes that later events of the same key must not undo.

An append-only table, ``<name>__headrace_tombstones`` (``merge.md`` section 3). Several entries of a key are merged when
they are read, by the rules of ranks.

Every table has a ledger, which is created before it. A ledger with the property ``EARLY`` was begun before its table,
for events that are read before the table's first batch; the table that is created next adopts it. Any other ledger
without a table belongs to a dropped table, and is ignored.

Tests: ``tests/contracts/lake_ledger_suite.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import TableMissing
from headrace.core.model.events import OWN_PREFIX, UNVERSIONED, RowVersion, succeed
from headrace.core.model.keys import FLOOR_KEY, ORIGINS_PREFIX
from headrace_connectors.lakehouse.failures import NotThere, naming_the_file
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS, quoted
from headrace_connectors.lakehouse.table_format import TableFormat, TablePath, unset_properties
from headrace_connectors.lakehouse.table_properties import source_properties, stored_sources
from headrace_connectors.lakehouse.table_session import TableSession

SUFFIX = f"{OWN_PREFIX}tombstones"

EARLY = "headrace.before-its-table"
"""The property of a ledger whose table does not exist yet."""

_NEVER = 2**63 - 1

_SCHEMA = pa.schema([("key", pa.string()), *VERSION_COLUMNS, ("recorded_at", pa.timestamp("us", tz="UTC"))])
_NAMES = ", ".join(map(quoted, _SCHEMA.names))


def ledger_path(path: TablePath) -> TablePath:
    return TablePath(path.namespace, path.name + SUFFIX)


class TombstoneLedger:
    """``path`` is that of the ledger (``ledger_path``). ``recreate`` replaces a missing ledger by an empty one."""

    def __init__(
        self, session: TableSession, table_format: TableFormat, path: TablePath, *, recreate: bool = False
    ) -> None:
        self._session = session
        self._format = table_format
        self._path = path
        self._recreate = recreate
        self._table = table_format.sql_name(path)
        self._attached = False
        self._seen: int | None = None  # the format's number of commits when all entries of the ledger were known
        self._oldest = 0  # no tombstone was recorded earlier; 0 while that is unknown

    def create(self, properties: Mapping[str, str] | None = None) -> None:
        """Create an empty ledger; the ledger of an earlier table of the same name is invalid."""
        self._format.prepare_creation(self._session, self._path)
        self._session.run(*self._format.create_ledger(self._path, _SCHEMA, properties or {}))
        self._oldest = _NEVER
        self._seen = self._commits()

    def is_early(self) -> bool:
        """Return whether a ledger was begun before its table. Call it while the table does not exist."""
        return self._session.schema(self._table) is not None and EARLY in self.properties()

    def properties(self) -> Mapping[str, str]:
        return self._format.properties(self._session, self._path)

    def begin_early(self, properties: Mapping[str, str]) -> None:
        """Create a ledger with ``properties`` for a table that does not exist yet, if there is none."""
        if not self.is_early():
            self.create({EARLY: "true", **properties})

    def attach(self) -> None:
        """Attach the ledger to the table, which exists now, also if a worker failed before this.

        The table has its own properties of sources.
        """
        if not self._attached:
            stored = self.properties()
            if EARLY in stored:
                early = [EARLY, *source_properties(stored_sources(stored))]
                self._session.run(unset_properties(self._table, early))
            self._attached = True

    def load(self) -> dict[str, RowVersion]:
        """Return the tombstones of an existing table by canonical key. Raises TableMissing, Retriable in an outage."""
        try:
            self.attach()
            return self.read()
        except NotThere as error:
            if self._session.schema(self._table) is not None:
                raise
            if not self._recreate:
                raise TableMissing(
                    f"{self._table}: the ledger of the table's deletes does not exist any more: without it late events "
                    "restore deleted rows; restore the ledger, or create an empty one with table.missing=recreate"
                ) from error
            self.create()
            return {}

    def read(self) -> dict[str, RowVersion]:
        """Return all tombstones by canonical key."""
        seen = self._commits()  # before the entries are read, so that later entries are read again
        self._format.check(self._session, self._path)
        label = f"{self._path.namespace}.{self._path.name}"
        with naming_the_file(label, lambda: self._format.damaged_file(self._session, self._path)):
            rows = self._session.arrow(f"SELECT {_NAMES} FROM {self._table}")
        ledger: dict[str, RowVersion] = {}
        for key, version in zip(rows["key"].to_pylist(), row_versions(rows), strict=True):
            ledger[key] = succeed(version, ledger.get(key))
        self._oldest, self._seen = _oldest(rows), seen
        return ledger

    def has_changed(self) -> bool:
        """Return whether there are commits of other writers since the last load; maintenance counts as well."""
        return self._seen != self._commits()

    def _commits(self) -> int:
        return self._format.commits(self._session, self._path)

    def append(self, tombstones: Mapping[str, RowVersion], now: int) -> None:
        """Add tombstones in a durable commit; ``now`` in microseconds."""
        versions = list(tombstones.values())
        columns: list[Sequence[object]] = [
            list(tombstones),
            [version.position.decode() or None for version in versions],
            [version.topic for version in versions],
            [version.partition for version in versions],
            [version.offset for version in versions],
            [version.source_time for version in versions],
            [now] * len(versions),
        ]
        arrays = [
            pa.array(values, pa.int64()).view(column.type)
            if pa.types.is_timestamp(column.type)
            else pa.array(values, column.type)
            for values, column in zip(columns, _SCHEMA, strict=True)
        ]
        self._oldest = min(self._oldest, now)
        commits = self._format.append_to_ledger(self._session, self._path, pa.table(arrays, _SCHEMA))
        if self._seen is not None and commits == self._seen + 1:
            self._seen = commits

    def expire(self, session: TableSession, before: int) -> None:
        """Remove the entries before a time in microseconds, except the floor of a truncate and origins of columns.

        ``session`` is that of the thread which calls this. Starts no Spark job if ``load`` has shown that no entry is
        that old.
        """
        if self._oldest >= before:
            return
        session.run(
            f"DELETE FROM {self._table} WHERE recorded_at < timestamp_micros({before}L) AND key <> '{FLOOR_KEY}' "
            f"AND NOT startswith(key, '{ORIGINS_PREFIX}')"
        )
        self._oldest = before


def _oldest(rows: pa.Table) -> int:
    """The time in microseconds of the first row, without those that never expire."""
    lasting = pc.or_(pc.equal(rows["key"], FLOOR_KEY), pc.starts_with(rows["key"], ORIGINS_PREFIX))
    recorded = rows["recorded_at"].filter(pc.invert(lasting))
    earliest = pc.min(recorded).cast(pa.int64()).as_py()
    return _NEVER if earliest is None else earliest


def row_versions(rows: pa.Table) -> list[RowVersion]:
    """The versions of a result's rows; rows of other writers are UNVERSIONED."""
    times = rows[VERSION_COLUMNS.names[-1]].combine_chunks().view(pa.int64()).to_pylist()
    columns = [rows[name].to_pylist() for name in VERSION_COLUMNS.names[:-1]]
    return [
        UNVERSIONED if topic is None else RowVersion((position or "").encode(), topic, partition, offset, time)
        for position, topic, partition, offset, time in zip(*columns, times, strict=True)
    ]
