"""Delta Lake: tables by path below the warehouse, with deletion vectors. The parts that only this format needs.

Tables have no entry in a catalog: readers need only the path ``<warehouse>/<namespace>/<name>``, and the format's own
log makes commits safe. The properties of a commit are JSON in ``userMetadata``, which ``DESCRIBE HISTORY`` shows.

Column mapping allows any column name. Type widening is enabled with the first column that needs it, because fewer
readers support it than the other features.

Tests: ``tests/contracts/test_delta_tables.py``, ``tests/contracts/test_delta_pipelines.py``.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from headrace.core.doctor.lake import FormatTrial
from headrace.core.doctor.versions import DELTA, Software
from headrace.core.model.errors import DamagedFile
from headrace.core.model.table_files import TableFiles
from headrace.ports import MergeCounts, TableOptions
from headrace_connectors.lakehouse.compaction_plan import WORN, DataFile, plan
from headrace_connectors.lakehouse.failures import NO_TABLE, Conflict, Damage, Declined, NotThere
from headrace_connectors.lakehouse.merge import text_literal
from headrace_connectors.lakehouse.schema import column_list, quoted, sql_type
from headrace_connectors.lakehouse.spark_settings import LOG_STORE
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
from headrace_connectors.lakehouse.table_properties import FORMAT, FORMAT_VERSION
from headrace_connectors.lakehouse.table_session import TableSession, java_member

_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"
_OPTIMIZE = "spark.databricks.delta.optimize."
_COMMITS_LOOKED_AT = 50
_CONDITIONAL = "fs.option.create.conditional.overwrite"
"""Hadoop's option of a file that is created only if there is none (HADOOP-19256)."""
_CREATED_TWICE = "headrace_doctor"
_DEFAULTS = {
    "delta.enableDeletionVectors": "true",
    "delta.columnMapping.mode": "name",
    "delta.feature.timestampNtz": "supported",  # a column of that type may be added later
    # A commit every few seconds: old log entries and files would soon be larger than the data.
    "delta.logRetentionDuration": "interval 1 days",
    "delta.deletedFileRetentionDuration": "interval 1 days",
    "delta.checkpointInterval": "50",
}


class DeltaFormat:
    """A ``TableFormat``: the tables below ``warehouse``, an absolute path or a URL."""

    def __init__(self, warehouse: str, options: TableOptions) -> None:
        self._warehouse = warehouse.rstrip("/")
        self._layout = options.layout
        self._properties = {**_DEFAULTS, **options.properties, FORMAT: FORMAT_VERSION}

    def sql_name(self, path: TablePath) -> str:
        """Return the table's path, quoted."""
        return f"delta.{quoted(self._location(path))}"

    def _location(self, path: TablePath) -> str:
        return f"{self._warehouse}/{path.namespace}/{path.name}"

    def create_namespace(self, namespace: str) -> Sequence[str]:
        """Return no statements: a namespace is a folder."""
        return []

    def has_namespace(self, session: TableSession, namespace: str) -> bool:
        """Return whether the folder exists."""
        with self._files(session, f"{self._warehouse}/{namespace}") as (files, folder):
            return bool(files.exists(folder))

    def remove(self, session: TableSession, path: TablePath, *, namespace: bool) -> None:
        """Delete the folder of the table, and that of the namespace if it is empty then."""
        with self._files(session, self._location(path)) as (files, table):
            files.delete(table, True)
            parent = table.getParent()
            if namespace and files.exists(parent) and not files.listStatus(parent):
                files.delete(parent, False)

    def removal(self, path: TablePath) -> str:
        return f"delete the folder {self._location(path)}"

    def format_version(self, session: TableSession, path: TablePath) -> int | None:
        return None

    def versions(self, session: TableSession, namespace: str) -> Mapping[str, int]:
        return {}

    def metadata_file(self, session: TableSession, path: TablePath) -> MetadataFile | None:
        return None

    def examine(self, session: TableSession, path: TablePath, create_other: Callable[[], TablePath]) -> FormatTrial:
        """Create a file twice, if entries of the log are protected by that (``ConditionalS3LogStore.java``)."""
        jvm, spark = session.java
        scheme = urlsplit(self._warehouse).scheme
        with session.calling():
            release = jvm.io.delta.package.VERSION()
            store = spark.conf().get(f"spark.delta.logStore.{scheme}.impl", "") if scheme else ""
        creates_once = self._creates_once(session, path) if store == LOG_STORE else None
        return FormatTrial([Software(DELTA, str(release))], creates_once=creates_once)

    def _creates_once(self, session: TableSession, path: TablePath) -> bool:
        """Return whether the storage refuses to create a file that another writer has created meanwhile."""
        try:
            with self._files(session, f"{self._location(path)}/{_CREATED_TWICE}") as (files, file):
                writers = [files.createFile(file).must(_CONDITIONAL, True).build() for _ in range(2)]
                for writer in writers:  # each is an upload when it is closed
                    writer.close()
        except Conflict:
            return True
        return False

    @contextmanager
    def _files(self, session: TableSession, location: str) -> Iterator[tuple[Any, Any]]:
        """Yield the file system of a location, and the location in its terms."""
        jvm, spark = session.activate()
        with session.calling():
            path = java_member(jvm, "org.apache.hadoop.fs.Path")(location)
            yield path.getFileSystem(spark.sessionState().newHadoopConf()), path

    def prepare_creation(self, session: TableSession, path: TablePath) -> None:
        """Remove a folder for a log in which there is none.

        A VACUUM creates it if the table is dropped meanwhile, and then no table can be created there.
        """
        jvm, _ = session.java
        with self._files(session, self._location(path)) as (files, table):
            if files.exists(table) and not files.listFiles(table, True).hasNext():
                for folder in ("_delta_log/_staged_commits", "_delta_log", "."):
                    # Not with its content, which another writer may just create.
                    files.delete(java_member(jvm, "org.apache.hadoop.fs.Path")(table, folder), False)

    def create(self, path: TablePath, schema: pa.Schema, properties: Mapping[str, str]) -> Sequence[str]:
        """Create it with deletion vectors and the connector's properties; sorted columns become clustering columns."""
        create = f"CREATE TABLE {self.sql_name(path)} ({column_list(schema)}) USING delta"
        if self._layout.partition:
            create += f" PARTITIONED BY ({', '.join(quoted(by.column) for by in self._layout.partition)})"
        if self._layout.sort:
            create += f" CLUSTER BY ({', '.join(quoted(by.column) for by in self._layout.sort)})"
        return [f"{create} TBLPROPERTIES ({property_list({**self._properties, **properties})})"]

    def create_ledger(self, path: TablePath, schema: pa.Schema, properties: Mapping[str, str]) -> Sequence[str]:
        """Create it in the order of time: by the files' statistics, expired entries are removed with complete files.

        CREATE OR REPLACE of a table by path keeps the rows if its definition is the same, and fails if its properties
        are not.
        """
        return [
            f"CREATE OR REPLACE TABLE {self.sql_name(path)} ({column_list(schema)}) USING delta "
            f"TBLPROPERTIES ({property_list(self._properties)})",
            f"DELETE FROM {self.sql_name(path)}",
            *([self._set_properties(path, properties)] if properties else []),
        ]

    def ledger_appender(self, session: TableSession, path: TablePath) -> Callable[[pa.Table], Head]:
        def insert(rows: pa.Table) -> Head:
            with session.staged_view(rows) as view:
                names = ", ".join(map(quoted, rows.column_names))
                session.run(f"INSERT INTO {self.sql_name(path)} ({names}) SELECT {names} FROM {view}")
            return self.head(session, path)

        return insert

    def scan(self, session: TableSession, path: TablePath, schema: pa.Schema) -> Iterator[pa.Table]:
        raise Declined("only Spark reads Delta tables here")

    def head(self, session: TableSession, path: TablePath) -> Head:
        """Return that of the newest entry of the log. Delta's own class reads it without a job."""
        snapshot = self._snapshot(session, path)
        with session.calling():
            return _head(snapshot)

    def size(self, session: TableSession, path: TablePath) -> int:
        snapshot = self._snapshot(session, path)
        with session.calling():
            return int(snapshot.sizeInBytes())

    def rows_since(self, session: TableSession, path: TablePath, commit: str) -> RowsSince | None:
        """Read the entries of the log behind that commit. OPTIMIZE may have moved the rows of INSERTs before it."""
        log, snapshot = self._log(session, path)
        with session.calling():
            head, settings = _head(snapshot), log.newDeltaHadoopConf()
            table, version, written = commit.split(":")
            segment = snapshot.logSegment().deltas()
            statuses = [segment.apply(number) for number in range(segment.size())]
            entries = {str(status.getPath().getName()): status for status in statuses}
            known = entries.get(f"{int(version):020}.json")
            if known is None or known.getModificationTime() != int(written) or table != head.id.partition(":")[0]:
                return None
            files: list[str] = []
            removed = moved = False
            for number in range(head.commits, int(version), -1):
                if (entry := entries.get(f"{number:020}.json")) is None:
                    return None  # a checkpoint has replaced it
                change = _change(_content(entry.getPath(), settings))
                if change is None or (change.files and moved):
                    return None
                files += change.files
                removed |= change.removes
                moved |= change.moves
        names = ", ".join(map(text_literal, files))
        return RowsSince(f"_metadata.file_name IN ({names})" if files else "", removed)

    def look(self, session: TableSession, path: TablePath) -> Look:
        snapshot = self._snapshot(session, path)
        with session.calling():
            return Look(_head(snapshot).id, _table_properties(snapshot))

    def schema(self, session: TableSession, path: TablePath) -> pa.Schema | None:
        return session.schema(self.sql_name(path))

    def properties(self, session: TableSession, path: TablePath) -> Mapping[str, str]:
        """Read them from the log."""
        snapshot = self._snapshot(session, path)
        with session.calling():
            return _table_properties(snapshot)

    def set_properties(
        self, session: TableSession, path: TablePath, properties: Mapping[str, str], removed: Collection[str] = ()
    ) -> None:
        """Run a statement for each."""
        if properties:
            session.run(self._set_properties(path, properties))
        if removed:
            names = ", ".join(map(text_literal, removed))
            session.run(f"ALTER TABLE {self.sql_name(path)} UNSET TBLPROPERTIES IF EXISTS ({names})")

    def _set_properties(self, path: TablePath, properties: Mapping[str, str]) -> str:
        return f"ALTER TABLE {self.sql_name(path)} SET TBLPROPERTIES ({property_list(properties)})"

    def _snapshot(self, session: TableSession, path: TablePath) -> Any:
        """Return the newest snapshot of the log. Raises NotThere."""
        _, snapshot = self._log(session, path)
        with session.calling():
            if snapshot.version() < 0:
                raise NotThere(f"{self.sql_name(path)}: {NO_TABLE}")
        return snapshot

    def _log(self, session: TableSession, path: TablePath) -> tuple[Any, Any]:
        """Return Delta's ``DeltaLog`` of a table and its newest ``Snapshot``, read anew."""
        jvm, spark = session.activate()
        with session.calling():
            nothing = java_member(jvm, "scala.Option.empty")()
            log = java_member(jvm, "org.apache.spark.sql.delta.DeltaLog.forTable")(spark, self._location(path))
            return log, log.update(False, nothing, nothing)

    def widen(self, path: TablePath, column: pa.Field) -> Sequence[str]:
        """Enable type widening first."""
        alter = f"ALTER TABLE {self.sql_name(path)}"
        return [
            f"{alter} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')",
            f"{alter} ALTER COLUMN {quoted(column.name)} TYPE {sql_type(column.type)}",
        ]

    def _commit_settings(self, properties: Mapping[str, str]) -> Mapping[str, str]:
        """Put all of them into one text without ``${…}``, which Spark would replace as a variable."""
        return {_USER_METADATA: json.dumps(dict(properties)).replace("$", "\\u0024")}

    def commit(
        self, session: TableSession, path: TablePath, statement: str, properties: Mapping[str, str]
    ) -> CommitResult:
        """Run a statement. A MERGE or DELETE returns its counts; the table's history contains those of an INSERT.

        A statement that changes no row makes no commit, so that its properties are not stored.
        """
        with session.with_settings(self._commit_settings(properties)):
            returned = session.rows(statement)
        if returned:
            row = returned[0].asDict()  # of a MERGE or DELETE
            counts = (
                MergeCounts(row["num_updated_rows"] + row["num_inserted_rows"], row["num_deleted_rows"])
                if "num_updated_rows" in row
                else MergeCounts(0, row["num_affected_rows"])
            )
            return CommitResult(counts, made=counts.upserted + counts.deleted > 0)
        return self.find_commit(session, path, properties[WRITE_ID]) or CommitResult(MergeCounts(0, 0), made=False)

    def files(self, session: TableSession, path: TablePath) -> TableFiles | None:
        """Return None: Delta counts the files of its log with a Spark job."""
        return None

    def direct_writer(
        self, session: TableSession, path: TablePath, schema: pa.Schema, key_fields: tuple[str, ...], *, soft: bool
    ) -> DirectWriter | None:
        """Return None: Delta's transactions need a Spark job."""
        return None

    def find_commit(self, session: TableSession, path: TablePath, write_id: str) -> CommitResult | None:
        """Read it from the newest entries of the table's history."""
        for row in session.rows(f"DESCRIBE HISTORY {self.sql_name(path)} LIMIT {_COMMITS_LOOKED_AT}"):
            if write_id not in (row.userMetadata or ""):
                continue
            metrics = row.operationMetrics
            if row.operation == "MERGE":
                upserted = int(metrics["numTargetRowsUpdated"]) + int(metrics["numTargetRowsInserted"])
                counts = MergeCounts(upserted, int(metrics["numTargetRowsDeleted"]))
            elif row.operation == "DELETE":
                counts = MergeCounts(0, int(metrics.get("numDeletedRows", 0)))
            else:
                counts = MergeCounts(int(metrics.get("numOutputRows", 0)), 0)
            return CommitResult(counts, first=row.version == 1)  # version 0 created the table
        return None

    def carry(self, session: TableSession, path: TablePath, properties: Mapping[str, str]) -> bool:
        """Do nothing: the settings of a statement contain the properties of its commit."""
        return False

    def snapshot(self, session: TableSession, path: TablePath) -> str | None:
        return str(self.head(session, path).commits)

    def history(self, session: TableSession, path: TablePath) -> Iterator[Mapping[str, str]]:
        """Read them from the newest entries of the table's history, without those that a RESTORE has undone."""
        newest: int | None = None
        for row in session.rows(f"DESCRIBE HISTORY {self.sql_name(path)} LIMIT {_COMMITS_LOOKED_AT}"):
            if newest is not None and row.version > newest:
                continue
            yield _properties(row.userMetadata)
            if row.operation == "RESTORE":
                restored = (row.operationParameters or {}).get("version")
                if restored is None:
                    return  # to a point in time: the restored version is unknown
                newest = int(restored)

    def compact(self, session: TableSession, path: TablePath, budget: float, commit_alone: ExclusiveCommit) -> int:
        """Run OPTIMIZE while the writer waits: beside it, each merge that deletes rows of these files would fail it."""
        files, snapshot = [], self._snapshot(session, path)
        with session.calling():
            for file in snapshot.allFiles().collectAsList():
                location, partition, size = file.path(), str(file.partitionValues()), int(file.size())
                # Without statistics the rows of a file are unknown, and it is never worn.
                physical = file.numPhysicalRecords()
                rows, deleted = (int(physical.get()), int(file.numDeletedRecords())) if physical.isDefined() else (1, 0)
                files.append(DataFile(location, partition, size, rows, deleted))

        rewrites = plan(files, budget)
        if not rewrites:
            return 0
        small = max((file.size for rewrite in rewrites for file in rewrite.files if not file.is_worn), default=0)
        settings = {_OPTIMIZE + "minFileSize": str(small + 1), _OPTIMIZE + "maxDeletedRowsRatio": str(WORN)}
        with commit_alone() as properties, session.with_settings({**self._commit_settings(properties), **settings}):
            session.run(f"OPTIMIZE {self.sql_name(path)}")
        return sum(rewrite.cost for rewrite in rewrites)

    def limits(self, session: TableSession, path: TablePath) -> Sequence[str]:
        """Return none: there is no catalog."""
        return ()

    def check(self, session: TableSession, path: TablePath) -> None:
        """Look for an entry of the log without content. Delta would read it as a commit that changed nothing.

        A machine that lost its power may leave such a file. Entries before the newest checkpoint do not matter.
        """
        _, snapshot = self._log(session, path)
        with session.calling():
            entries = snapshot.logSegment().deltas()
            files = [entries.apply(number) for number in range(entries.size())]
            empty = next((str(file.getPath().toString()) for file in files if file.getLen() == 0), None)
        if empty is not None:
            raise DamagedFile(Damage(empty, "is empty").message(f"{path.namespace}.{path.name}", "no commit"), empty)

    def damaged_file(self, session: TableSession, path: TablePath) -> str | None:
        """Parse the entries of the log, and compare the deletion vectors with their sizes and checksums."""
        log, snapshot = self._log(session, path)
        with session.calling():
            root, settings = log.dataPath(), log.newDeltaHadoopConf()
            entries = snapshot.logSegment().deltas()
            for location in (entries.apply(number).getPath() for number in range(entries.size())):
                if not _is_json(_content(location, settings)):
                    return str(location.toString())
            for file in snapshot.allFiles().collectAsList():
                vector = file.deletionVector()
                if vector is not None and vector.isOnDisk():
                    location, offset = vector.absolutePath(root), int(vector.offset().get())
                    if not _is_vector(_content(location, settings, offset), int(vector.sizeInBytes())):
                        return str(location.toString())
        return None

    def expire(self, session: TableSession, path: TablePath) -> str:
        """Do nothing: Delta removes old entries of its log itself."""
        return ""

    def delete(self, session: TableSession, path: TablePath, files: str) -> None:
        """Do nothing: ``expire`` leaves no files."""

    def clean(self, session: TableSession, path: TablePath, now: int) -> None:
        """Delete files that no version within the table's retention refers to."""
        session.run(f"VACUUM {self.sql_name(path)}")


class _Change(NamedTuple):
    """What an entry of the log did: the names of files that it added, whether it removed rows, or moved them."""

    files: Sequence[str] = ()
    removes: bool = False
    moves: bool = False


def _change(entry: bytes) -> _Change | None:
    """Return what an entry of the log did to the rows; None for an unknown operation."""
    actions = [json.loads(line) for line in entry.splitlines() if line.strip()]
    operation = next((action["commitInfo"].get("operation") for action in actions if "commitInfo" in action), None)
    added = [action["add"]["path"] for action in actions if "add" in action]
    removed = {action["remove"]["path"] for action in actions if "remove" in action}
    if operation == "WRITE" and not removed:
        return _Change([unquote(path).rpartition("/")[2] for path in added])
    if operation == "DELETE" and removed.issuperset(added):  # a file with another deletion vector keeps its name
        return _Change(removes=True)
    if operation == "OPTIMIZE":
        return _Change(moves=True)
    return None if added or removed else _Change()


def _table_properties(snapshot: Any) -> Mapping[str, str]:
    """The properties in the log, whose entries are JSON."""
    properties: dict[str, str] = json.loads(snapshot.metadata().json())["metaData"]["configuration"]
    return properties


def _head(snapshot: Any) -> Head:
    """The newest entry of the log. In a copy of the table, another entry with this number has another time."""
    version, written = int(snapshot.version()), int(snapshot.logSegment().lastCommitFileModificationTimestamp())
    return Head(version, f"{snapshot.metadata().id()}:{version}:{written}")


def _content(location: Any, settings: Any, offset: int = 0) -> bytes:
    """The content of a small file from ``offset``, b"" behind its end. ``location`` is a Path of Hadoop."""
    files = location.getFileSystem(settings)
    if files.getFileStatus(location).getLen() <= offset:
        return b""
    with closing(files.open(location)) as stream:
        stream.seek(offset)
        return bytes(stream.readAllBytes())


def _is_json(entry: bytes) -> bool:
    """Whether ``entry`` consists of lines of JSON, and is not empty."""
    try:
        return bool([json.loads(line) for line in entry.splitlines()])
    except ValueError:
        return False


def _is_vector(stored: bytes, size: int) -> bool:
    """Whether ``stored`` begins with size, bitmap and checksum (Delta's protocol, Deletion Vector File Storage)."""
    vector, checksum = stored[4 : 4 + size], stored[4 + size : 8 + size]
    return int.from_bytes(stored[:4], "big") == size and int.from_bytes(checksum, "big") == zlib.crc32(vector)


def _properties(text: str | None) -> Mapping[str, str]:
    """The properties of a commit; another writer's metadata may be any text."""
    try:
        properties = json.loads(text or "{}")
    except ValueError:
        return {}
    return properties if isinstance(properties, dict) else {}
