"""What goes wrong with the lake: a catalog that refuses tables, and readers of another format version.

Tests: ``tests/unit/core/doctor/test_lake.py``, ``tests/contracts/test_lake_trials.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.core.doctor import versions
from headrace.core.doctor.findings import Finding, Severity
from headrace.core.doctor.readers import NEWEST_VERSION, READERS
from headrace.core.doctor.versions import Software


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    LAKE_TABLE_REFUSED = "lake-table-refused"
    LAKE_READER = "lake-reader-format"
    LAKE_FORMAT_VERSION = "lake-format-version"
    LAKE_TABLE_LEFT = "lake-table-left"
    LAKE_READER_FAILED = "lake-reader-failed"
    LAKE_TRANSACTIONS = "lake-transactions-split"
    LAKE_FILES_REPLACED = "lake-files-replaced"


class Transactions(StrEnum):
    """What a catalog did with a transaction of two tables, of which the second had changed meanwhile."""

    UNKNOWN = "unknown"
    """It has no such transactions."""
    ATOMIC = "atomic"
    """It refused the transaction, and changed neither table."""
    SPLIT = "split"
    """It refused the transaction, and changed the first table all the same."""
    UNCHECKED = "unchecked"
    """It accepted the transaction."""


_LISTED = 5
"""Tables that a finding names."""


@dataclass(frozen=True, slots=True)
class FormatTrial:
    """What the format of the table requires of catalog and storage.

    ``creates_once`` is whether the storage refuses to create a file a second time, None if commits do not depend on it.
    """

    software: Sequence[Software] = ()
    transactions: Transactions = Transactions.UNKNOWN
    creates_once: bool | None = None


@dataclass(frozen=True, slots=True)
class LakeTrial:
    """What happened to a table that was created, written to and dropped again. ``table`` is its quoted name.

    ``failed_step`` and ``cause`` are empty if all of it succeeded. ``format_version`` is that of Iceberg's format, None
    in another format or before there was a table. ``removal`` is the statement, or the folder, that removes the table
    if the trial could not. ``readers`` are those that have read it, with what they did wrong, empty if nothing.
    ``tables`` are the versions of the tables that the namespace has already, if a reader needs version 2.
    """

    table: str
    failed_step: str = ""
    cause: str = ""
    format_version: int | None = None
    removal: str = ""
    software: Sequence[Software] = ()
    examined: FormatTrial = FormatTrial()
    readers: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, int] = field(default_factory=dict)


def findings(trial: LakeTrial | None, version: int | None, readers: Collection[str]) -> Iterator[Finding]:
    """Yield the findings. ``version`` is ``table.format.version``, None of tables that are not Iceberg's.

    ``trial`` is None if no table was tried.
    """
    existing: Sequence[str] = ()
    if trial is not None:
        yield from _of_trial(trial, version)
        version = trial.format_version or version
        existing = sorted(table for table, of_table in trial.tables.items() if of_table == NEWEST_VERSION)
    for name in readers:
        reader = READERS[name]
        if existing and version != NEWEST_VERSION and reader.needs_version_2:
            yield _of_existing(name, existing)
        if version == 3 and not reader.reads_version_3:
            yield Finding(
                Rule.LAKE_READER,
                Severity.ERROR,
                f"reader {name}",
                f"{reader.title} cannot read the tables: it has no deletion vectors of Iceberg's version 3",
                f"lake.readers has {name}, and tables have version 3 ({reader.source})",
                "table.format.version=2  # in this connector, or not set; before its tables are created",
            )
        elif version == 3 and reader.remark:
            yield Finding(
                Rule.LAKE_READER,
                Severity.WARNING,
                f"reader {name}",
                f"{reader.title} may return deleted rows of tables of Iceberg's version 3",
                f"lake.readers has {name}, and tables have version 3 ({reader.source})",
                f"{reader.remark};  -- in each session; or table.format.version=2 in this connector, or not set",
            )


def _of_existing(name: str, tables: Sequence[str]) -> Finding:
    """Return the finding of a reader for tables that keep version 3, although new ones have version 2."""
    reader = READERS[name]
    listed = ", ".join(tables[:_LISTED]) + (f" and {len(tables) - _LISTED} more" if len(tables) > _LISTED else "")
    fill = "drop them, and fill them again: new tables have version 2"
    return Finding(
        Rule.LAKE_READER,
        Severity.WARNING if reader.reads_version_3 else Severity.ERROR,
        f"reader {name}, existing tables",
        f"{reader.title} {'may return deleted rows of' if reader.reads_version_3 else 'cannot read'} tables that are "
        "older than the option: they keep version 3 of Iceberg's format",
        f"lake.readers has {name}, and version 3 have {listed} ({reader.source})",
        f"{reader.remark};  -- in each session; or {fill}" if reader.remark else fill,
    )


def _of_trial(trial: LakeTrial, version: int | None) -> Iterator[Finding]:
    if trial.failed_step:
        yield Finding(
            Rule.LAKE_TABLE_REFUSED,
            Severity.ERROR,
            f"table {trial.table}",
            "every table of the connector fails in the same way",
            f"cannot {trial.failed_step}: {trial.cause}",
            "correct warehouse and spark.sql.catalog.* of the worker, or the rights of its user there",
        )
    if version is not None and trial.format_version not in (None, version):
        yield Finding(
            Rule.LAKE_FORMAT_VERSION,
            Severity.WARNING,
            f"table {trial.table}",
            "the catalog chooses another version of Iceberg's format: deletes cost more in version 2",
            f"the catalog made version {trial.format_version}, table.format.version is {version}",
            f"allow version {version} in the catalog, or table.format.version={trial.format_version}",
        )
    if trial.removal:
        yield Finding(
            Rule.LAKE_TABLE_LEFT,
            Severity.WARNING,
            f"table {trial.table}",
            "a table without use stays in the lake",
            "it was created to try the catalog, and could not be removed",
            trial.removal,
        )
    yield from versions.findings(trial.software)
    for name, fault in trial.readers.items():
        if fault:
            yield Finding(
                Rule.LAKE_READER_FAILED,
                Severity.ERROR,
                f"reader {name}",
                f"{READERS[name].title}, as it is installed on this machine, does not read the tables",
                f"{fault}, of a table of version {trial.format_version} with two rows, of which one was deleted",
                f"another release of {READERS[name].title}; or table.format.version=2 in this connector",
            )
    if trial.examined.transactions in (Transactions.SPLIT, Transactions.UNCHECKED):
        refused = trial.examined.transactions is Transactions.SPLIT
        yield Finding(
            Rule.LAKE_TRANSACTIONS,
            Severity.INFORMATION,
            "catalog",
            "an engine that commits several tables in one transaction may leave some of them changed. Headrace commits "
            "each table by itself: readers see the tables of one transaction of the database one after the other",
            "POST /v1/{prefix}/transactions/commit "
            + ("refused" if refused else "accepted")
            + " a transaction whose second table had changed meanwhile, and changed the first table",
            "no setting: do not depend on transactions of several tables in this catalog",
        )
    if trial.examined.creates_once is False:
        yield Finding(
            Rule.LAKE_FILES_REPLACED,
            Severity.ERROR,
            f"table {trial.table}",
            "a worker that has lost its partitions, or another engine, replaces commits of the log: rows are lost",
            "the object store created one object twice, in spite of If-None-Match: *",
            "table.format=iceberg with a catalog; or a store with conditional writes (S3 has them)",
        )
