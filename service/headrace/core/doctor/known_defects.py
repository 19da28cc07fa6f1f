"""Defects of Debezium's releases that lose or change rows, as data.

Each entry was read in Debezium's list of changes (``CHANGELOG.md`` of 3.7.0.Alpha2) and in the code that fixes it; one
was observed by this project. An entry names every branch whose list of changes has the fix.

Tests: ``tests/unit/core/doctor/test_known_defects.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from headrace.core.doctor.source_connector import SourceConnector, release


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of the connectors for ``systems``, all if it is empty.

    ``fixed`` are the first releases with the fix, one of each branch that got it, the newest last; none if no release
    has it. It concerns a connector with an option whose name and value match one of ``options`` (regular expressions),
    or every connector if that is empty. ``source`` is where to read about it.
    """

    name: str
    source: str
    fixed: tuple[str, ...]
    consequence: str
    remedy: str
    systems: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)

    def concerns(self, connector: SourceConnector) -> str | None:
        """Return what of the connector is concerned: an option with its value, or the release. None if nothing is."""
        if (self.systems and connector.system not in self.systems) or self._is_fixed(connector):
            return None
        if not self.options:
            return f"version {connector.version}"
        options = sorted((key, text.strip()) for key, text in connector.config.items())
        for key, text in options:
            if any(re.fullmatch(name, key) and re.fullmatch(value, text) for name, value in self.options.items()):
                return f"{key}={text}" + (f", version {connector.version}" if connector.version else "")
        return None

    def _is_fixed(self, connector: SourceConnector) -> bool:
        """Whether the release has the fix. A release that is not known counts as one that has it."""
        if not self.fixed:
            return False
        running = release(connector.version)
        if running is None:
            return True
        fixes = [fix for text in self.fixed if (fix := release(text)) is not None]
        return running >= fixes[-1] or any(fix.branch == running.branch and running >= fix for fix in fixes)


_POSTGRESQL = frozenset({"postgresql"})
_ORACLE = frozenset({"oracle"})
_ISSUE = "https://github.com/debezium/dbz/issues/"
_JIRA = "https://issues.redhat.com/browse/"
_TRUE = "(?i:true)"

DEFECTS = (
    Defect(
        "dbz#76",
        f"{_ISSUE}76 (also dbz#51; DBZ-9149, DBZ-8312)",
        ("3.7.0.Alpha2",),
        "with PostgreSQL 17 or later, a restart of the connector may skip changes of a transaction that was open",
        "upgrade Debezium to 3.7, or remove provide.transaction.metadata",
        _POSTGRESQL,
        {r"provide\.transaction\.metadata": _TRUE},
    ),
    Defect(
        "dbz#1554",
        f"{_ISSUE}1554",
        ("3.7.0.Alpha1",),
        "a restart of the connector may skip rows of a COPY or of a batched insert, which share one log position",
        "upgrade Debezium to 3.7; until then run headrace verify --repair after a restart of the connector",
        _POSTGRESQL,
    ),
    Defect(
        "dbz#2330",
        f"{_ISSUE}2330",
        ("3.7.0.Alpha2",),
        "a snapshot reads its tables at different times, so rows that change meanwhile may be wrong",
        "upgrade Debezium to 3.7, or set snapshot.max.threads=1",
        _POSTGRESQL,
        {r"snapshot\.max\.threads": r"[2-9]|[1-9]\d+"},
    ),
    Defect(
        "dbz#2322",
        f"{_ISSUE}2322",
        ("3.7.0.Alpha1",),
        "deletes may be dropped if the connector cannot read the table's schema at that moment",
        "upgrade Debezium to 3.7",
        frozenset({"cockroachdb"}),
    ),
    Defect(
        "dbz#2260",
        f"{_ISSUE}2260",
        ("3.7.0.Alpha2",),
        "negative values of TINYINT(1) arrive as false",
        "upgrade Debezium to 3.7, or remove the converter",
        frozenset({"mysql", "mariadb"}),
        {r".+\.type": r".*\.TinyIntOneToBooleanConverter"},
    ),
    Defect(
        "dbz#2075",
        f"{_ISSUE}2075",
        ("3.6.0.CR1",),
        "timestamps outside of the years 1678 to 2261 arrive as other timestamps (9999-12-31 as one of 1816)",
        "upgrade Debezium to 3.6, or set time.precision.mode=microseconds",
        frozenset(),
        {r"time\.precision\.mode": "(?i:nanoseconds)"},
    ),
    Defect(
        "dbz#1756",
        f"{_ISSUE}1756",
        ("3.6.0.Beta2",),
        "after a restart the connector may skip all changes of OpenLogReplicator",
        "upgrade Debezium to 3.6",
        _ORACLE,
        {r"database\.connection\.adapter": "(?i:olr)"},
    ),
    Defect(
        "DBZ-9521",
        f"{_JIRA}DBZ-9521",
        ("3.2.4.Final", "3.3.1.Final", "3.4.0.Alpha1"),
        "changes of transactions that concern tables with and without LOBs may be dropped",
        "upgrade Debezium to 3.4, or at least to 3.3.1 or 3.2.4",
        _ORACLE,
        {r"lob\.enabled": _TRUE},
    ),
    Defect(
        "DBZ-9337",
        f"{_JIRA}DBZ-9337",
        ("3.2.2.Final", "3.3.0.Beta1"),
        "changes are lost if the connector restarts after an ad hoc blocking snapshot that failed",
        "upgrade Debezium to 3.3, or send incremental snapshots only",
        frozenset({"postgresql", "mysql", "mariadb", "oracle", "sqlserver"}),
        {r"signal\.(data\.collection|kafka\.bootstrap\.servers|file)": ".+"},
    ),
    Defect(
        "DBZ-8874",
        f"{_JIRA}DBZ-8874",
        ("3.1.1.Final", "3.2.0.Alpha1"),
        "changes of large transactions are dropped when the buffer reaches its configured size",
        "upgrade Debezium to 3.2, or at least to 3.1.1",
        _ORACLE,
        {r"log\.mining\.buffer\.type": "(?i:ehcache)"},
    ),
    Defect(
        "reselect-cache",
        "docs/design/reselect.md, section 5.6",
        (),
        "the cache of Debezium's reselect returns old values, and those of other rows; Headrace stores them",
        "set reselect.cache.enabled=false there: Headrace reads omitted values itself",
        _POSTGRESQL,
        {r"(.+\.)?reselect\.cache\.enabled": _TRUE},
    ),
)


def known_defects(connector: SourceConnector) -> Iterator[tuple[Defect, str]]:
    """Yield the defects that concern a connector, each with what is concerned."""
    for defect in DEFECTS:
        evidence = defect.concerns(connector)
        if evidence is not None:
            yield defect, evidence
