"""The parts that only Iceberg needs: version 3 with deletion vectors, or version 2 (``spark.md`` section 2).

Tests: ``tests/contracts/test_iceberg_tables.py``, ``tests/contracts/test_iceberg_pipelines.py``.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from headrace.core.doctor.lake import FormatTrial
from headrace.core.doctor.versions import ICEBERG, Software
from headrace.core.model.errors import Fatal
from headrace.core.model.table_files import TableFiles
from headrace.core.tables.table_layout import PartitionField
from headrace.ports import MergeCounts, TableOptions
from headrace_connectors.lakehouse import ledger
from headrace_connectors.lakehouse.compaction_plan import TARGET_SIZE, WORN, Rewrite, plan
from headrace_connectors.lakehouse.direct.direct_table import DirectTable, Unavailable
from headrace_connectors.lakehouse.direct.direct_writer import IcebergDirectWriter
from headrace_connectors.lakehouse.direct.index_memory import IndexMemory
from headrace_connectors.lakehouse.direct.ledger_appends import LedgerAppends, append_by_iceberg
from headrace_connectors.lakehouse.direct.small_files import SmallFiles
from headrace_connectors.lakehouse.direct.stored_rows import live_rows
from headrace_connectors.lakehouse.failures import Conflict, Declined, NotThere
from headrace_connectors.lakehouse.iceberg_compaction import IcebergCompaction
from headrace_connectors.lakehouse.iceberg_table import IcebergName, IcebergTable, commit_result, files_of
from headrace_connectors.lakehouse.iceberg_trial import commit_two_tables
from headrace_connectors.lakehouse.merge import text_literal
from headrace_connectors.lakehouse.schema import column_list, quoted, sql_type
from headrace_connectors.lakehouse.table_format import (
    WRITE_ID,
    CommitResult,
    DirectWriter,
    ExclusiveCommit,
    Head,
    Look,
    MetadataFile,
    RowsSince,
    TablePath,
    property_list,
)
from headrace_connectors.lakehouse.table_properties import FORMAT, FORMAT_VERSION, GROUP
from headrace_connectors.lakehouse.table_session import TableSession, java_member

log = logging.getLogger(__name__)

_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
MAX_SNAPSHOTS = "headrace.history.max-snapshots"
"""The property of a table with the number of snapshots to keep; without it, only their age counts."""
_CLEANED = "headrace.orphans-removed-at"
_DAY = 24 * 3600 * 1_000_000
_CLEANED_EVERY = 7 * _DAY
_ORPHANS_OLDER_THAN = 3 * _DAY
"""No write takes as long: a younger file may belong to a commit that another worker is about to make."""
_MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("merge", "update", "delete")}
_DEFAULTS = {
    **_MERGE_ON_READ,
    # A commit every few seconds: old metadata and snapshots would soon be larger than the data. A snapshot takes 1.4 kB
    # of the metadata that each commit reads and writes.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": "3600000",
    "history.expire.min-snapshots-to-keep": "20",
    MAX_SNAPSHOTS: "200",
}
_WITH_ROW_IDS = 3
"""The first version of Iceberg's format in which snapshots give rows ids, as ``DirectTable`` does."""
_MOST_READ = 100
"""Snapshots whose new files are read one by one. With more, the table is read as a whole: its upkeep compacts it."""

_RECENT_MS = 300_000
"""Younger snapshots are kept, however many there are: for readers of changes that come every few minutes."""


class IcebergFormat:
    """A ``TableFormat``: the tables of a catalog. ``indexes`` is the memory for the keys of all tables."""

    def __init__(self, options: TableOptions, indexes: IndexMemory) -> None:
        self._indexes = indexes
        self._catalog = options.catalog
        self._layout = options.layout
        self._adopt = options.adopt
        self._version = options.format_version
        self._properties = {
            "format-version": str(options.format_version),
            **_DEFAULTS,
            **options.properties,
            FORMAT: FORMAT_VERSION,
        }

    def sql_name(self, path: TablePath) -> str:
        return str(self._name(path))

    def _name(self, path: TablePath) -> IcebergName:
        return IcebergName(self._catalog, path.namespace, path.name)

    def _load(self, session: TableSession, path: TablePath) -> IcebergTable:
        return IcebergTable(session, self._name(path))

    def create_namespace(self, namespace: str) -> Sequence[str]:
        return [f"CREATE NAMESPACE IF NOT EXISTS {quoted(self._catalog)}.{quoted(namespace)}"]

    def has_namespace(self, session: TableSession, namespace: str) -> bool:
        """Return whether the catalog lists it; True if it lists none, as one without a folder does."""
        try:
            namespaces = session.rows(f"SHOW NAMESPACES IN {quoted(self._catalog)}")
        except Fatal:
            return True
        return bool({row.namespace for row in namespaces} & {namespace, quoted(namespace)})

    def remove(self, session: TableSession, path: TablePath, *, namespace: bool) -> None:
        try:
            session.run(f"DROP TABLE IF EXISTS {self.sql_name(path)} PURGE")
        except Conflict:  # Nessie sets gc.enabled=false, which forbids a purge: it removes the files itself, later
            session.run(f"DROP TABLE IF EXISTS {self.sql_name(path)}")
        if namespace:
            session.run(f"DROP NAMESPACE IF EXISTS {quoted(self._catalog)}.{quoted(path.namespace)}")

    def removal(self, path: TablePath) -> str:
        return f"DROP TABLE {self.sql_name(path)} PURGE;"

    def format_version(self, session: TableSession, path: TablePath) -> int | None:
        return self._load(session, path).format_version()

    def versions(self, session: TableSession, namespace: str) -> Mapping[str, int]:
        versions = {}
        for row in session.rows(f"SHOW TABLES IN {quoted(self._catalog)}.{quoted(namespace)}"):
            if row.tableName.endswith(ledger.SUFFIX):
                continue
            try:
                table = self._load(session, TablePath(namespace, row.tableName))
                if FORMAT in table.properties():
                    versions[row.tableName] = table.format_version()
            except NotThere:  # dropped meanwhile, or of another format
                continue
        return versions

    def metadata_file(self, session: TableSession, path: TablePath) -> MetadataFile | None:
        return self._load(session, path).metadata_file()

    def examine(self, session: TableSession, path: TablePath, create_other: Callable[[], TablePath]) -> FormatTrial:
        """Try a transaction of two tables."""
        with session.calling():
            release = java_member(session.java[0], "org.apache.iceberg.IcebergBuild.version")()
        transactions = commit_two_tables(session, self._name(path), lambda: self._name(create_other()))
        return FormatTrial([Software(ICEBERG, str(release))], transactions)

    def prepare_creation(self, session: TableSession, path: TablePath) -> None:
        """Do nothing: a catalog knows which tables exist."""

    def create(self, path: TablePath, schema: pa.Schema, properties: Mapping[str, str]) -> Sequence[str]:
        """Create it with merge-on-read, the connector's properties and layout."""
        table = self.sql_name(path)
        create = f"CREATE TABLE {table} ({column_list(schema)}) USING iceberg"
        if self._layout.partition:
            create += f" PARTITIONED BY ({', '.join(map(_partition, self._layout.partition))})"
        statements = [f"{create} TBLPROPERTIES ({property_list({**self._properties, **properties})})"]
        if self._layout.sort:
            # Within each file of a task: sorting the complete table would shuffle every batch.
            order = ", ".join(f"{quoted(by.column)} {'DESC' if by.descending else 'ASC'}" for by in self._layout.sort)
            distribution = "DISTRIBUTED BY PARTITION " if self._layout.partition else ""
            statements.append(f"ALTER TABLE {table} WRITE {distribution}LOCALLY ORDERED BY {order}")
        return statements

    def create_ledger(self, path: TablePath, schema: pa.Schema, properties: Mapping[str, str]) -> Sequence[str]:
        """Create it with partitions by day, so that expired entries are removed with complete files."""
        return [
            f"DROP TABLE IF EXISTS {self.sql_name(path)}",
            f"CREATE TABLE {self.sql_name(path)} ({column_list(schema)}) USING iceberg "
            f"PARTITIONED BY (days(recorded_at)) TBLPROPERTIES ({property_list({**self._properties, **properties})})",
        ]

    def look(self, session: TableSession, path: TablePath) -> Look:
        table = self._load(session, path)
        return Look(table.head().id, table.properties(), table)

    def schema(self, session: TableSession, path: TablePath) -> pa.Schema | None:
        try:
            return self._load(session, path).schema()
        except NotThere:
            return None

    def properties(self, session: TableSession, path: TablePath) -> Mapping[str, str]:
        return self._load(session, path).properties()

    def set_properties(
        self, session: TableSession, path: TablePath, properties: Mapping[str, str], removed: Collection[str] = ()
    ) -> None:
        self._load(session, path).set_properties(properties, removed)

    def ledger_appender(self, session: TableSession, path: TablePath) -> Callable[[pa.Table], Head]:
        with suppress(Unavailable):
            if self._version >= _WITH_ROW_IDS:
                return LedgerAppends(session, self._name(path)).append
        return lambda rows: append_by_iceberg(self._load(session, path), rows)

    def scan(self, session: TableSession, path: TablePath, schema: pa.Schema) -> Iterator[pa.Table]:
        try:
            table = DirectTable(session, self._name(path))
        except Unavailable as error:
            raise Declined(str(error)) from error
        table.is_current()
        state = table.load()
        if state.refused is not None:
            raise Declined(state.refused)
        stored = {column["name"]: column for column in state.schema["fields"]}
        columns = {column.name: (stored[column.name], column.type) for column in schema}
        for file in state.files:
            deleted = table.read_vector(file.vector)
            with table.open(file) as parquet:
                yield from live_rows(parquet, deleted, columns)

    def head(self, session: TableSession, path: TablePath) -> Head:
        return IcebergTable.load_head(session, self._name(path))

    def size(self, session: TableSession, path: TablePath) -> int:
        newest = next(self._load(session, path).snapshots(), None)
        return 0 if newest is None else int(newest.summary.get("total-files-size", sys.maxsize))

    def files(self, session: TableSession, path: TablePath) -> TableFiles | None:
        newest = next(self._load(session, path).snapshots(), None)
        return None if newest is None else files_of(newest.summary)

    def rows_since(self, session: TableSession, path: TablePath, commit: str) -> RowsSince | None:
        """Compare the snapshots since that commit. A compaction may contain the rows of the appends before it."""
        table = self._load(session, path)
        later = table.snapshots_since(int(commit), _MOST_READ) if commit else None
        if later is None:
            return None
        files: list[str] = []
        removed = replaced = False
        for snapshot in later:
            match snapshot.operation:
                case "append" if not (snapshot.adds and replaced):
                    files += table.added_files(snapshot.id) if snapshot.adds else ()
                case "replace":
                    replaced = True
                case "delete" | "overwrite" if not snapshot.adds:
                    removed = True
                case _:
                    return None
        names = ", ".join(map(text_literal, files))
        return RowsSince(f"_file IN ({names})" if files else "", removed)

    def widen(self, path: TablePath, column: pa.Field) -> Sequence[str]:
        return [f"ALTER TABLE {self.sql_name(path)} ALTER COLUMN {quoted(column.name)} TYPE {sql_type(column.type)}"]

    def _commit_settings(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Return settings that make each property one of the snapshot."""
        return {_SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}

    def commit(
        self, session: TableSession, path: TablePath, statement: str, properties: Mapping[str, str]
    ) -> CommitResult:
        """Run a statement. Only the summary of its snapshot contains its counts."""
        with session.with_settings(self._commit_settings(properties)):
            session.run(statement)
        return self.find_commit(session, path, properties[WRITE_ID]) or CommitResult(MergeCounts(0, 0), made=False)

    def direct_writer(
        self, session: TableSession, path: TablePath, schema: pa.Schema, key_fields: tuple[str, ...], *, soft: bool
    ) -> DirectWriter | None:
        if not self._indexes.limit:
            return None
        return IcebergDirectWriter(session, self._name(path), schema, key_fields, self._indexes, soft=soft)

    def find_commit(self, session: TableSession, path: TablePath, write_id: str) -> CommitResult | None:
        snapshot = self._load(session, path).snapshot_with(WRITE_ID, write_id)
        return None if snapshot is None else commit_result(snapshot)

    def carry(self, session: TableSession, path: TablePath, properties: Mapping[str, str]) -> bool:
        """Make an empty append: compactions and deletes of complete files do not store the session's properties."""
        table = self._load(session, path)
        newest = next(table.snapshots(), None)
        lost = bool(properties) and newest is not None and GROUP not in newest.summary
        if lost:
            table.append_nothing(properties)
        return lost

    def snapshot(self, session: TableSession, path: TablePath) -> str | None:
        return self.head(session, path).id or None

    def history(self, session: TableSession, path: TablePath) -> Iterator[Mapping[str, str]]:
        yield from (snapshot.summary for snapshot in self._load(session, path).snapshots())

    def compact(self, session: TableSession, path: TablePath, budget: float, commit_alone: ExclusiveCommit) -> int:
        """Rewrite files beside the writer; sorted tables and those of version 2 by Iceberg's procedure.

        Small files need no Spark job where commits need none.
        """
        written = 0
        if self._indexes.limit:
            written, complete = SmallFiles(session, self._name(path)).merge(budget, commit_alone)
            if complete:
                return written
        compaction = IcebergCompaction(session, self._name(path))
        rewrites = plan(compaction.files(), budget - written)
        if compaction.is_possible:
            for rewrite in rewrites:
                result = compaction.rewrite(rewrite.files)
                with commit_alone() as properties:
                    compaction.replace(result, properties)
        elif rewrites:
            self._compact_by_procedure(session, path, rewrites, commit_alone)
        return written + sum(rewrite.cost for rewrite in rewrites)

    def _compact_by_procedure(
        self, session: TableSession, path: TablePath, rewrites: Sequence[Rewrite], commit_alone: ExclusiveCommit
    ) -> None:
        """Run it beside the writer. If a merge deletes rows of its files, run it again while the writer waits."""
        small = max((file.size for rewrite in rewrites for file in rewrite.files if not file.is_worn), default=0)
        options = {
            "min-input-files": 2,
            "delete-ratio-threshold": WORN,
            "target-file-size-bytes": TARGET_SIZE,
            "min-file-size-bytes": min(small + 1, TARGET_SIZE - 1),
        }
        arguments = ", ".join(f"{text_literal(name)}, {text_literal(str(value))}" for name, value in options.items())
        statement = (
            f"CALL {quoted(self._catalog)}.system.rewrite_data_files("
            f"table => {text_literal(_within_catalog(path))}, options => map({arguments}))"
        )
        try:
            session.run(statement)
        except Conflict:
            with commit_alone():
                session.run(statement)
        with commit_alone() as properties:
            self.carry(session, path, properties)

    def limits(self, session: TableSession, path: TablePath) -> Sequence[str]:
        """Compare the version of the format, and whether the catalog shows the snapshots before the newest."""
        table = self._load(session, path)
        notes = []
        if (version := table.format_version()) != self._version:
            notes.append(
                f"the table has version {version} of Iceberg's format, not {self._version} as configured "
                "(table.format.version, lake.readers): the catalog chose it, or the table is older than the option"
            )
        if table.hides_snapshots():
            notes.append(
                "the catalog shows the newest snapshot only: upkeep removes no files that nothing seems to refer to; "
                "let the catalog do that"
            )
        return notes

    def check(self, session: TableSession, path: TablePath) -> None:
        """Do nothing: no file of Iceberg's metadata is valid without its content."""

    def damaged_file(self, session: TableSession, path: TablePath) -> str | None:
        """Compare the files with the sizes in the manifests, and read their ends and deletion vectors."""
        return self._load(session, path).damaged_file()

    def expire(self, session: TableSession, path: TablePath) -> str:
        """Use the format's own class: the procedure starts jobs. A catalog that keeps the files itself forbids it."""
        table = self._load(session, path)
        if not table.may_delete_files():
            return ""
        most = table.properties().get(MAX_SNAPSHOTS, "0")
        if not most.isdecimal():
            log.warning(
                "%s: the table's property %s is %r and not a number, so %s snapshots are kept",
                *(".".join(path), MAX_SNAPSHOTS, most, _DEFAULTS[MAX_SNAPSHOTS]),
            )
            most = _DEFAULTS[MAX_SNAPSHOTS]
        return table.expire(_RECENT_MS, int(most))

    def delete(self, session: TableSession, path: TablePath, files: str) -> None:
        self._load(session, path).delete(files)

    def clean(self, session: TableSession, path: TablePath, now: int) -> None:
        """Once a week, remove the files that ended workers have left behind; others expire with their snapshots.

        A property of the table has the time of the last removal, so that a restart does not repeat it. A new table has
        none, and waits for a week. The folder of an adopted table may hold other files as well, and is left alone.
        """
        if self._adopt:
            return
        table = self._load(session, path)
        # Files of snapshots that the catalog hides would look like those that nothing refers to.
        if not table.may_delete_files() or table.hides_snapshots():
            return
        last = table.properties().get(_CLEANED)
        if last is not None and now - int(last) < _CLEANED_EVERY:
            return
        if last is not None:
            session.run(
                f"CALL {quoted(self._catalog)}.system.remove_orphan_files("
                f"table => {text_literal(_within_catalog(path))}, prefix_listing => true, "
                f"older_than => timestamp_micros({now - _ORPHANS_OLDER_THAN}L))"
            )
        table.set_properties({_CLEANED: str(now)})


def _partition(field: PartitionField) -> str:
    match field.transform:
        case "identity":
            return quoted(field.column)
        case "bucket" | "truncate":
            return f"{field.transform}({field.size}, {quoted(field.column)})"
    return f"{field.transform}({quoted(field.column)})"


def _within_catalog(path: TablePath) -> str:
    return f"{quoted(path.namespace)}.{quoted(path.name)}"
