"""The ledger of tombstones beside a table: deletes that later events of the same key must not undo.

An append-only table, ``<name>__headrace_tombstones`` (``merge.md`` section 3). Several entries of a key are merged when
they are read, by the rules of ranks.

Every table has a ledger, which is created before it. A ledger with the property ``EARLY`` was begun before its table,
for events that are read before the table's first batch; the table that is created next adopts it. Any other ledger
without a table belongs to a dropped table, and is ignored.

Tests: ``tests/contracts/lake_ledger_suite.py``.
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.merge.tombstones import LedgerEntries
from headrace.core.model.errors import TableMissing
from headrace.core.model.events import OWN_PREFIX, UNVERSIONED, RowVersion, succeed
from headrace.core.model.keys import FLOOR_KEY, ORIGINS_PREFIX
from headrace_connectors.lakehouse import reader
from headrace_connectors.lakehouse.failures import Declined, NotThere, naming_the_file
from headrace_connectors.lakehouse.schema import VERSION_COLUMNS, quoted
from headrace_connectors.lakehouse.table_format import Head, RowsSince, TableFormat, TablePath
from headrace_connectors.lakehouse.table_properties import source_properties, stored_sources
from headrace_connectors.lakehouse.table_session import TableSession
from headrace_connectors.lakehouse.tombstone_index import TombstoneIndex

SUFFIX = f"{OWN_PREFIX}tombstones"

EARLY = "headrace.before-its-table"
"""The property of a ledger whose table does not exist yet."""

_NEVER = 2**63 - 1

_SIZE_AT_ONCE = 2 * 1024 * 1024
"""The bytes of a ledger's files up to which it is read as one result: some 100,000 tombstones."""

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
        self._entries = StoredEntries(session.folder)
        self._head: Head | None = None  # the commit up to which the entries are known
        self._removed = False  # whether entries have been removed since the ledger was read
        self._oldest = 0  # no tombstone was recorded earlier; 0 while that is unknown

    def create(self, properties: Mapping[str, str] | None = None) -> StoredEntries:
        """Create an empty ledger; the ledger of an earlier table of the same name is invalid."""
        self._format.prepare_creation(self._session, self._path)
        self._session.run(*self._format.create_ledger(self._path, _SCHEMA, properties or {}))
        self._oldest = _NEVER
        entries = self.begin_empty()
        self._head = self._format.head(self._session, self._path)
        return entries

    def is_early(self) -> bool:
        """Return whether a ledger was begun before its table. Call it while the table does not exist."""
        return self._format.schema(self._session, self._path) is not None and EARLY in self.properties()

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
                self._format.set_properties(self._session, self._path, {}, early)
            self._attached = True

    def load(self) -> StoredEntries:
        """Return the tombstones of an existing table by canonical key. Raises TableMissing, Retriable in an outage."""
        try:
            self.attach()
            return self.read()
        except NotThere as error:
            if self._format.schema(self._session, self._path) is not None:
                raise
            if not self._recreate:
                raise TableMissing(
                    f"{self._table}: the ledger of the table's deletes does not exist any more: without it late events "
                    "restore deleted rows; restore the ledger, or create an empty one with table.missing=recreate"
                ) from error
            return self.create()

    def begin_empty(self) -> StoredEntries:
        """Return no entries: the ledger is empty, or does not exist."""
        self._entries.replace(TombstoneIndex(self._session.folder))
        self._head, self._removed = None, False
        return self._entries

    def read(self) -> StoredEntries:
        """Return all tombstones by canonical key. Reads only what was added, unless entries were removed."""
        head = self._format.head(self._session, self._path)  # before the entries, so that later ones are read again
        since = self._rows_since(head)
        if since is None or since.removed or self._removed or not self._add_new_rows(self._entries.index, since):
            index = TombstoneIndex(self._session.folder)
            self._oldest = self._add_rows(index, _NEVER)
            self._entries.replace(index)
            self._removed = False
        else:
            self._entries.accept_additions()
        self._head = head
        return self._entries

    def update(self) -> None:
        """Add what other writers have added since the last read to the ``additions`` of the entries."""
        head = self._format.head(self._session, self._path)
        since = self._rows_since(head)
        if since is None or not self._add_new_rows(self._entries.index_of_additions, since):
            index = TombstoneIndex(self._session.folder)
            self._oldest = self._add_rows(index, self._oldest)
            self._entries.index_of_additions = index
        self._removed |= since is None or since.removed
        self._head = head

    def has_changed(self) -> bool:
        """Return whether there are commits of other writers since the last load; maintenance counts as well."""
        return self._head != self._format.head(self._session, self._path)

    def _rows_since(self, head: Head) -> RowsSince | None:
        if self._head is None:
            return None
        if self._head == head:
            return RowsSince()
        return self._format.rows_since(self._session, self._path, self._head.id)

    def _add_new_rows(self, index: TombstoneIndex, since: RowsSince) -> bool:
        """Add the rows of ``since``. Return False if a compaction may have moved them before they were read."""
        if not since.added or self._head is None:
            return True
        self._oldest = self._add_rows(index, self._oldest, since.added)
        return self._format.rows_since(self._session, self._path, self._head.id) is not None

    def _add_rows(self, index: TombstoneIndex, oldest: int, condition: str = "") -> int:
        """Add the rows of the ledger to ``index``. Return the time of the oldest of them, or ``oldest``."""
        self._format.check(self._session, self._path)
        label = f"{self._path.namespace}.{self._path.name}"
        rows = f"(SELECT {_NAMES} FROM {self._table}{f' WHERE {condition}' if condition else ''})"

        def parts() -> Iterator[pa.Table]:
            if (size := self._format.size(self._session, self._path)) == 0:
                return
            with suppress(Declined):  # an entry that is added again changes nothing
                if not condition:
                    yield from self._format.scan(self._session, self._path, _SCHEMA)
                    return
            if size <= _SIZE_AT_ONCE:
                yield self._session.arrow(f"SELECT {_NAMES} FROM {rows}")
            else:
                yield from reader.scan(self._session, rows, _SCHEMA.names)

        def parts_with_oldest() -> Iterator[pa.Table]:
            nonlocal oldest
            for part in parts():
                oldest = min(oldest, _oldest(part))
                yield part

        with naming_the_file(label, lambda: self._format.damaged_file(self._session, self._path)):
            index.add(parts_with_oldest())
        return oldest

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
        rows = pa.table(arrays, _SCHEMA)
        head = self._append(rows)
        self._entries.index.add([rows])
        if self._head is not None and head.commits == self._head.commits + 1:
            self._head = head

    @cached_property
    def _append(self) -> Callable[[pa.Table], Head]:
        return self._format.ledger_appender(self._session, self._path)

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


class StoredEntries(LedgerEntries):
    """The entries that a handle has read or recorded (``index``), and those that others have added since.

    ``folder`` is for their versions; None is the folder of temporary files.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self.replace(TombstoneIndex(folder))

    def replace(self, index: TombstoneIndex) -> None:
        """Replace all entries."""
        self.index, self.index_of_additions = index, TombstoneIndex(self._folder)

    def accept_additions(self) -> None:
        """Count the additions as read."""
        self.index.add_all_of(self.index_of_additions)
        self.index_of_additions = TombstoneIndex(self._folder)

    def of(self, keys: pa.StringArray) -> Mapping[str, RowVersion]:
        """Search what was read and recorded."""
        return self.index.table_entries | self.index.find(keys)

    def additions(self, keys: pa.StringArray) -> Mapping[str, RowVersion]:
        """Search what was added."""
        return self.index_of_additions.table_entries | self.index_of_additions.find(keys)

    def __getitem__(self, key: str) -> RowVersion:
        keys = pa.array([key], pa.string())
        return _merged(self.of(keys), self.additions(keys))[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def items(self) -> ItemsView[str, RowVersion]:
        return self._all().items()

    def _all(self) -> dict[str, RowVersion]:
        return _merged(self.index.all(), self.index_of_additions.all())


def _merged(entries: Mapping[str, RowVersion], others: Mapping[str, RowVersion]) -> dict[str, RowVersion]:
    return {**entries, **{key: succeed(version, entries.get(key)) for key, version in others.items()}}


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
