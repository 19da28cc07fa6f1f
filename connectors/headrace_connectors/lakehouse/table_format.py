"""The interface of table formats: the statements that differ between formats, and the detection of commits.

``writer.py``, ``merge.py``, ``staging.py`` and ``ledger.py`` are the same for every format; ``iceberg.py`` and
``delta.py`` hold the rest.

Tests: ``tests/contracts/test_iceberg_tables.py``, ``tests/contracts/test_delta_tables.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from headrace.core.doctor.lake import FormatTrial
from headrace.core.model.actions import Actions
from headrace.core.model.events import RowVersion
from headrace.core.model.table_files import TableFiles
from headrace.ports import MergeCounts
from headrace_connectors.lakehouse.merge import text_literal
from headrace_connectors.lakehouse.table_session import TableSession

WRITE_ID = "headrace.write-id"
"""The property that identifies a commit."""

KEY_FIELDS = "headrace.key-fields"
"""The table property that names the columns of the row key."""


class TablePath(NamedTuple):
    """The path of a table in the configuration."""

    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CommitResult:
    """The result of a commit.

    ``counts`` are the rows that it changed; appended rows are upserted. ``first`` is whether the table was empty
    before. ``files`` are the table's files afterwards, ``written`` the bytes of new files and ``head`` the new
    ``Head.id``, None if the format would have to read them. ``made`` is False if no commit has the
    statement's properties. ``declined`` is why nothing was written, and has to be by a MERGE.
    """

    counts: MergeCounts
    first: bool = False
    files: TableFiles | None = None
    written: int | None = None
    head: str | None = None
    made: bool = True
    declined: str = ""


class Head(NamedTuple):
    """The newest commit of a table: the number of commits up to it, and its id.

    No other commit has that id, neither in another table nor in a copy of this one.
    """

    commits: int
    id: str


class Look(NamedTuple):
    """What is stored of a table at one moment: ``Head.id`` and ``TableFormat.properties``.

    ``loaded`` is the format's own object, from which a direct writer may commit, None if it has none. A commit from it
    fails if another one was made since, but would not notice that a folder was restored from a copy.
    """

    head: str
    properties: Mapping[str, str]
    loaded: Any = None


@dataclass(frozen=True, slots=True)
class MetadataFile:
    """The location of a file, and Iceberg's properties of the storage that has it, with credentials."""

    location: str
    properties: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class RowsSince:
    """What commits did to a ledger.

    ``added`` is a condition in SQL for the rows that they added, "" if they added none. ``removed`` is whether they
    removed rows.
    """

    added: str = ""
    removed: bool = False


ExclusiveCommit = Callable[[], AbstractContextManager[Mapping[str, str]]]
"""In its block no other thread commits to the table; the block's commit repeats the properties that it provides."""


TakeLoaded = Callable[[], Any]
"""Returns ``Look.loaded`` of the batch that is written, at its first call, and None later or if it is too old."""


class DirectWriter(Protocol):
    """Writes small batches without a Spark job."""

    def write(
        self, actions: Actions, schema: pa.Schema, properties: Mapping[str, str], loaded: TakeLoaded | None = None
    ) -> CommitResult:
        """Apply the actions as a MERGE does, in one commit with ``properties``.

        ``schema`` has the table's data columns in lake types. A declined batch is a result, not an exception: the
        caller repeats the call with tenacity, which keeps an exception in a cycle, and its traceback keeps the batch.
        Raises Conflict if another writer has committed in between.
        """

    def versions(self, actions: Actions, schema: pa.Schema) -> Mapping[str, RowVersion]:
        """Return the versions of the rows under the actions' keys, by key. Raises Declined."""


class TableFormat(Protocol):
    """The tables of one format in one warehouse, with the options of one connector."""

    def sql_name(self, path: TablePath) -> str:
        """Return the table's quoted name in statements."""

    def create_namespace(self, namespace: str) -> Sequence[str]:
        """Return statements that create the namespace if it does not exist."""

    def has_namespace(self, session: TableSession, namespace: str) -> bool:
        """Return whether the namespace exists, True if that is not known."""

    def remove(self, session: TableSession, path: TablePath, *, namespace: bool) -> None:
        """Drop a table with its files, if it exists, and then its ``namespace``, if that is wanted and it is empty."""

    def removal(self, path: TablePath) -> str:
        """Return what an operator has to do to remove a table."""

    def format_version(self, session: TableSession, path: TablePath) -> int | None:
        """Return the version of Iceberg's format; None in another format. Raises NotThere."""

    def versions(self, session: TableSession, namespace: str) -> Mapping[str, int]:
        """Return the versions of Iceberg's format of all tables of Headrace in a namespace, without their ledgers."""

    def metadata_file(self, session: TableSession, path: TablePath) -> MetadataFile | None:
        """Return the file with Iceberg's newest metadata of a table; None in another format. Raises NotThere."""

    def examine(self, session: TableSession, path: TablePath, create_other: Callable[[], TablePath]) -> FormatTrial:
        """Try what only this format requires of catalog and storage, for ``headrace doctor``.

        ``path`` is a table with a commit, which the caller removes; ``create_other`` makes another one.
        """

    def prepare_creation(self, session: TableSession, path: TablePath) -> None:
        """Remove what a dropped table may have left at a path, if it contains no file."""

    def create(self, path: TablePath, schema: pa.Schema, properties: Mapping[str, str]) -> Sequence[str]:
        """Return statements that create an empty table with ``properties``; they fail if the table exists.

        ``schema`` contains all of its columns in lake types.
        """

    def create_ledger(self, path: TablePath, schema: pa.Schema, properties: Mapping[str, str]) -> Sequence[str]:
        """Return statements that create an empty ledger with ``properties`` and remove another of this name."""

    def look(self, session: TableSession, path: TablePath) -> Look:
        """Return version and properties of a table. Raises NotThere. It costs as much as one of them."""

    def schema(self, session: TableSession, path: TablePath) -> pa.Schema | None:
        """Return all columns of a table in lake types, or None if it does not exist. It is cheap."""

    def properties(self, session: TableSession, path: TablePath) -> Mapping[str, str]:
        """Return the properties of a table, as they are stored now. Raises NotThere. It is cheap.

        Not by SHOW TBLPROPERTIES, in which Spark replaces values that look like secrets (``spark.redaction.regex``).
        """

    def set_properties(
        self, session: TableSession, path: TablePath, properties: Mapping[str, str], removed: Collection[str] = ()
    ) -> None:
        """Add properties to a table, and remove those called ``removed``, if it has them. Raises NotThere."""

    def ledger_appender(self, session: TableSession, path: TablePath) -> Callable[[pa.Table], Head]:
        """Return a function that adds rows, recorded at one time, to the ledger in a durable commit, and returns it."""

    def scan(self, session: TableSession, path: TablePath, schema: pa.Schema) -> Iterator[pa.Table]:
        """Read the rows of the newest commit without Spark, in parts, in the columns and types of ``schema``.

        Raises Declined, also after some parts.
        """

    def head(self, session: TableSession, path: TablePath) -> Head:
        """Return the newest commit of a table. It is cheap."""

    def size(self, session: TableSession, path: TablePath) -> int:
        """Return the bytes of a table's data files, 0 only if it has none. It is cheap."""

    def files(self, session: TableSession, path: TablePath) -> TableFiles | None:
        """Return the files of the newest commit; None if the format would have to list them. It is cheap."""

    def rows_since(self, session: TableSession, path: TablePath, commit: str) -> RowsSince | None:
        """Return what the commits of a ledger did since the one with the id ``commit``; None if that is unknown."""

    def widen(self, path: TablePath, column: pa.Field) -> Sequence[str]:
        """Return statements after which a column has the wider type of ``column``."""

    def commit(
        self, session: TableSession, path: TablePath, statement: str, properties: Mapping[str, str]
    ) -> CommitResult:
        """Run a statement that changes rows in one commit with ``properties``, ``WRITE_ID`` among them."""

    def direct_writer(
        self, session: TableSession, path: TablePath, schema: pa.Schema, key_fields: tuple[str, ...], *, soft: bool
    ) -> DirectWriter | None:
        """Return a writer of small batches to a table with these columns, or None if the format has none.

        ``soft`` is whether deleted rows stay and are marked.
        """

    def find_commit(self, session: TableSession, path: TablePath, write_id: str) -> CommitResult | None:
        """Return the result of the commit with ``write_id``; None if there is no such commit."""

    def carry(self, session: TableSession, path: TablePath, properties: Mapping[str, str]) -> bool:
        """Make a commit with ``properties`` if the newest has none; return whether it was made."""

    def snapshot(self, session: TableSession, path: TablePath) -> str | None:
        """Return the newest commit as a value for Spark's ``VERSION AS OF``; None if there is no commit."""

    def history(self, session: TableSession, path: TablePath) -> Iterator[Mapping[str, str]]:
        """Return the properties of the stored commits that were not undone, newest first."""

    def compact(self, session: TableSession, path: TablePath, budget: float, commit_alone: ExclusiveCommit) -> int:
        """Rewrite files that are worth it (``compaction_plan.py``) with at most ``budget`` bytes. Return the bytes.

        Raises Conflict if another writer changed the table. What was rewritten before stays.
        """

    def limits(self, session: TableSession, path: TablePath) -> Sequence[str]:
        """Return notes on what the catalog does otherwise than configured. The table has two commits or more."""

    def expire(self, session: TableSession, path: TablePath) -> str:
        """Expire snapshots by the table's properties.

        Return the files, one a line, that only these refer to. Queries may still read them: delete them later.
        """

    def delete(self, session: TableSession, path: TablePath, files: str) -> None:
        """Delete files that ``expire`` has returned."""

    def check(self, session: TableSession, path: TablePath) -> None:
        """Raise DamagedFile for a damage of the metadata that the format's own classes would not report."""

    def damaged_file(self, session: TableSession, path: TablePath) -> str | None:
        """Return a file of the newest commit with a damage that errors do not name; None if there seems to be none."""

    def clean(self, session: TableSession, path: TablePath, now: int) -> None:
        """Remove files that nothing refers to, if it is time; called once a day. ``now`` is in microseconds.

        It lists all of the table's files.
        """


def property_list(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in properties.items())


def key_property(key_fields: Sequence[str]) -> Mapping[str, str]:
    return {KEY_FIELDS: json.dumps(list(key_fields))}
