"""The parts that only Iceberg needs: version 3 with deletion vectors, or version 2 (``spark.md`` section 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.tables.table_layout import PartitionField
from headrace.ports import MergeCounts, TableOptions
from headrace_connectors.lakehouse.iceberg_table import IcebergTable, Snapshot
from headrace_connectors.lakehouse.merge import text_literal
from headrace_connectors.lakehouse.schema import column_list, quoted, sql_type
from headrace_connectors.lakehouse.snapshot import FORMAT_VERSION, GROUP
from headrace_connectors.lakehouse.table_format import WRITE_ID, Committed, TablePath, key_property, property_list
from headrace_connectors.lakehouse.table_session import TableSession

_SNAPSHOT_PROPERTY = "spark.sql.iceberg.snapshot-property."
_MERGED = "spark.merge-into.num-target-rows-"
_MERGE_ON_READ = {f"write.{operation}.mode": "merge-on-read" for operation in ("merge", "update", "delete")}
_DEFAULTS = {
    **_MERGE_ON_READ,
    # A commit every few seconds: old metadata and snapshots would soon be larger than the data.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "history.expire.max-snapshot-age-ms": "3600000",
    "history.expire.min-snapshots-to-keep": "20",
}


class IcebergFormat:
    """A ``TableFormat``: the tables of ``catalog``."""

    def __init__(self, catalog: str, options: TableOptions) -> None:
        self._catalog = catalog
        self._layout = options.layout
        self._properties = {
            "format-version": str(options.format_version),
            **_DEFAULTS,
            **options.properties,
            "headrace.format-version": FORMAT_VERSION,
        }

    def sql_name(self, path: TablePath) -> str:
        """Return ``catalog.namespace.name``, quoted."""
        return f"{quoted(self._catalog)}.{_within_catalog(path)}"

    def create_namespace(self, namespace: str) -> Sequence[str]:
        """Create it in the catalog."""
        return [f"CREATE NAMESPACE IF NOT EXISTS {quoted(self._catalog)}.{quoted(namespace)}"]

    def create(self, path: TablePath, schema: pa.Schema, key_fields: Sequence[str]) -> Sequence[str]:
        """Create it with merge-on-read, the connector's properties and layout."""
        table, properties = self.sql_name(path), property_list({**self._properties, **key_property(key_fields)})
        create = f"CREATE TABLE {table} ({column_list(schema)}) USING iceberg"
        if self._layout.partition:
            create += f" PARTITIONED BY ({', '.join(map(_partition, self._layout.partition))})"
        statements = [f"{create} TBLPROPERTIES ({properties})"]
        if self._layout.sort:
            # Within each file of a task: sorting the complete table would shuffle every batch.
            order = ", ".join(f"{quoted(by.column)} {'DESC' if by.descending else 'ASC'}" for by in self._layout.sort)
            distribution = "DISTRIBUTED BY PARTITION " if self._layout.partition else ""
            statements.append(f"ALTER TABLE {table} WRITE {distribution}LOCALLY ORDERED BY {order}")
        return statements

    def create_ledger(self, path: TablePath, schema: pa.Schema) -> Sequence[str]:
        """Create it with partitions by day, so that expired entries are removed with complete files."""
        properties = property_list(self._properties)
        return [
            f"DROP TABLE IF EXISTS {self.sql_name(path)}",
            f"CREATE TABLE {self.sql_name(path)} ({column_list(schema)}) USING iceberg "
            f"PARTITIONED BY (days(recorded_at)) TBLPROPERTIES ({properties})",
        ]

    def append_to_ledger(self, session: TableSession, path: TablePath, rows: pa.Table) -> int:
        """Append the rows, which belong to one day because they are recorded at the same time."""
        day = pc.strftime(rows["recorded_at"][0], "%Y-%m-%d").as_py()
        ledger = IcebergTable(session, self.sql_name(path))
        ledger.append(rows, f"recorded_at_day={day}")
        return ledger.sequence()

    def commits(self, session: TableSession, path: TablePath) -> int:
        """Return the sequence number."""
        return IcebergTable(session, self.sql_name(path)).sequence()

    def widen(self, path: TablePath, column: pa.Field) -> Sequence[str]:
        """Use the format's own type promotion."""
        return [f"ALTER TABLE {self.sql_name(path)} ALTER COLUMN {quoted(column.name)} TYPE {sql_type(column.type)}"]

    def commit_settings(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Return settings that make each property one of the snapshot."""
        return {_SNAPSHOT_PROPERTY + name: value for name, value in properties.items()}

    def commit(self, session: TableSession, path: TablePath, statement: str) -> Committed:
        """Run a statement. Only the summary of its snapshot contains its counts."""
        session.run(statement)
        write_id = session.setting(_SNAPSHOT_PROPERTY + WRITE_ID)
        return self.committed(session, path, write_id) or Committed(MergeCounts(0, 0), made=False)

    def committed(self, session: TableSession, path: TablePath, write_id: str) -> Committed | None:
        """Read it from the table's snapshots; nearly always from the newest."""
        for snapshot in IcebergTable(session, self.sql_name(path)).snapshots():
            if snapshot.summary.get(WRITE_ID) == write_id:
                return _committed(snapshot)
        return None

    def carry(self, session: TableSession, path: TablePath, properties: Mapping[str, str]) -> bool:
        """Make an empty append: compactions and deletes of complete files do not store the session's properties."""
        table = IcebergTable(session, self.sql_name(path))
        newest = next(table.snapshots(), None)
        if properties and newest is not None and GROUP not in newest.summary:
            table.append_nothing(properties)
        return bool(properties)

    def version(self, session: TableSession, path: TablePath) -> str:
        """Return the snapshot's id."""
        return IcebergTable(session, self.sql_name(path)).version()

    def history(self, session: TableSession, path: TablePath) -> Iterator[Mapping[str, str]]:
        """Read them from the table's snapshots."""
        yield from (each.summary for each in IcebergTable(session, self.sql_name(path)).snapshots())

    def compact(self, path: TablePath) -> Sequence[str]:
        """Rewrite small files and files with deletes, then expire snapshots by the table's properties."""
        procedures, table = f"{quoted(self._catalog)}.system", text_literal(_within_catalog(path))
        options = "map('min-input-files', '2', 'delete-file-threshold', '1')"
        return [
            f"CALL {procedures}.rewrite_data_files(table => {table}, options => {options})",
            f"CALL {procedures}.expire_snapshots(table => {table})",
        ]

    def clean(self, path: TablePath) -> Sequence[str]:
        """Do nothing: snapshots expire after each compaction."""
        return []


def _partition(field: PartitionField) -> str:
    match field.transform:
        case "identity":
            return quoted(field.column)
        case "bucket" | "truncate":
            return f"{field.transform}({field.size}, {quoted(field.column)})"
    return f"{field.transform}({quoted(field.column)})"


def _within_catalog(path: TablePath) -> str:
    return f"{quoted(path.namespace)}.{quoted(path.name)}"


def _committed(snapshot: Snapshot) -> Committed:
    """The counts of a MERGE are rows; the summary of an append contains ``added-records``."""
    summary = snapshot.summary
    merged = {name: int(summary.get(_MERGED + name, 0)) for name in ("updated", "inserted", "deleted")}
    appended = 0 if any(name.startswith(_MERGED) for name in summary) else int(summary.get("added-records", 0))
    return Committed(
        MergeCounts(merged["updated"] + merged["inserted"] + appended, merged["deleted"]),
        first=snapshot.parent is None,
        files=int(summary.get("total-data-files", 0)) + int(summary.get("total-delete-files", 0)),
        version=str(snapshot.id),
    )
