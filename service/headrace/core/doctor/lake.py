"""What goes wrong with the lake: a catalog that refuses tables, and readers of another format version.

Tests: ``tests/unit/core/doctor/test_lake.py``, ``tests/contracts/test_lake_trials.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from headrace.core.doctor.findings import Finding, Severity


class Rule(StrEnum):
    """The kinds of findings; ``docs/operations.md`` lists them."""

    LAKE_TABLE_REFUSED = "lake-table-refused"
    LAKE_READER = "lake-reader-format"
    LAKE_FORMAT_VERSION = "lake-format-version"
    LAKE_TABLE_LEFT = "lake-table-left"


@dataclass(frozen=True, slots=True)
class LakeTrial:
    """What happened to a table that was created, written to and dropped again. ``table`` is its quoted name.

    ``failed_step`` and ``cause`` are empty if all of it succeeded. ``format_version`` is that of Iceberg's format, None
    in another format or before there was a table. ``removal`` is the statement, or the folder, that removes the table
    if the trial could not.
    """

    table: str
    failed_step: str = ""
    cause: str = ""
    format_version: int | None = None
    removal: str = ""


@dataclass(frozen=True, slots=True)
class Reader:
    """An engine that reads Iceberg tables. All of them read version 2.

    ``reads_version_3`` is whether it reads version 3 with deletion vectors, under the condition in ``remark`` if there
    is one. ``source`` is where that was read, or the test that shows it.
    """

    title: str
    reads_version_3: bool
    source: str
    remark: str = ""


_TESTED = "tests/contracts/test_iceberg_readers.py"
READERS: Mapping[str, Reader] = {
    "spark": Reader("Spark", True, _TESTED),
    "pyiceberg": Reader("PyIceberg", True, _TESTED),
    "polars": Reader("Polars", True, _TESTED),
    "duckdb": Reader("DuckDB", True, _TESTED, "SET enable_external_file_cache = false"),
    "daft": Reader("Daft", False, _TESTED),
    "trino": Reader("Trino", True, "https://github.com/trinodb/trino/pull/27788"),
    "snowflake": Reader(
        "Snowflake", True, "https://docs.snowflake.com/en/release-notes/2026/other/2026-05-07-iceberg-v3-ga"
    ),
    "databricks": Reader("Databricks", True, "https://docs.databricks.com/iceberg/iceberg-v3"),
    "starrocks": Reader("StarRocks", False, "https://github.com/StarRocks/starrocks/issues/75620"),
    "athena": Reader("Athena", False, "https://docs.aws.amazon.com/athena/latest/ug/querying-iceberg.html"),
}
"""The values of ``lake.readers``; ``docs/operations.md`` has the same table with releases."""


def findings(trial: LakeTrial | None, version: int | None, readers: Collection[str]) -> Iterator[Finding]:
    """Yield the findings. ``version`` is ``table.format.version``, None of tables that are not Iceberg's.

    ``trial`` is None if no table was tried.
    """
    if trial is not None:
        yield from _of_trial(trial, version)
        version = trial.format_version or version
    for name in readers:
        reader = READERS[name]
        if version == 3 and not reader.reads_version_3:
            yield Finding(
                Rule.LAKE_READER,
                Severity.ERROR,
                f"reader {name}",
                f"{reader.title} cannot read the tables: it has no deletion vectors of Iceberg's version 3",
                f"lake.readers has {name}, and tables have version 3 ({reader.source})",
                "table.format.version=2  # in this connector, before its tables are created",
            )
        elif version == 3 and reader.remark:
            yield Finding(
                Rule.LAKE_READER,
                Severity.WARNING,
                f"reader {name}",
                f"{reader.title} may return deleted rows of tables of Iceberg's version 3",
                f"lake.readers has {name}, and tables have version 3 ({reader.source})",
                f"{reader.remark};  -- in each session; or table.format.version=2 in this connector",
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
