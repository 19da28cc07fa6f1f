"""Engines that read Iceberg tables, and the version of the format that all readers of a lake can read.

Tests: ``tests/unit/core/doctor/test_lake.py``, ``tests/unit/test_docs.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

NEWEST_VERSION = 3
"""The version of Iceberg's format that tables have if all readers can read it. It has deletion vectors."""


@dataclass(frozen=True, slots=True)
class Reader:
    """An engine. All read tables of Iceberg's version 2.

    ``source`` is where it says whether it reads version 3. ``remark`` is what it needs for that, empty if nothing.
    """

    title: str
    reads_version_3: bool
    source: str
    remark: str = ""

    @property
    def needs_version_2(self) -> bool:
        """Return whether it cannot read version 3, or only with a setting of its own."""
        return not self.reads_version_3 or bool(self.remark)


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


def version_for(readers: Collection[str]) -> int:
    """Return the newest version of Iceberg's format that all readers can read without a setting of their own."""
    return 2 if any(READERS[name].needs_version_2 for name in readers) else NEWEST_VERSION
