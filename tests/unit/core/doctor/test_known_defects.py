"""Known defects are found in the releases and with the options that they concern, and nowhere else."""

from __future__ import annotations

import pytest

from headrace.core.doctor.known_defects import DEFECTS, known_defects
from headrace.core.doctor.source_connector import SourceConnector, release

CLASSES = {
    "postgresql": "io.debezium.connector.postgresql.PostgresConnector",
    "mysql": "io.debezium.connector.mysql.MySqlConnector",
    "oracle": "io.debezium.connector.oracle.OracleConnector",
    "cockroachdb": "io.debezium.connector.cockroachdb.CockroachDBConnector",
}


def names(system: str, version: str | None, **options: str) -> list[str]:
    config = {"connector.class": CLASSES[system]} | {key.replace("__", "."): text for key, text in options.items()}
    return [defect.name for defect, _ in known_defects(SourceConnector("source", config, version))]


def test_releases_in_their_order() -> None:
    texts = ["2.7.4.Final", "3.2.4.Final", "3.3.0.Beta1", "3.7.0.Alpha2", "3.7.0.Beta1", "3.7.0.CR1", "3.7.0.Final"]
    releases = [found for text in reversed(texts) if (found := release(text))]
    assert [found.text for found in sorted(releases)] == texts
    for other in (None, "", "3.7.0-SNAPSHOT", "3.7", "2.3.0.Final-redhat-00001"):
        assert release(other) is None


@pytest.mark.parametrize(
    ("system", "defect", "last", "fixed", "options"),
    [
        ("postgresql", "dbz#76", "3.7.0.Alpha1", "3.7.0.Alpha2", {"provide__transaction__metadata": "true"}),
        ("postgresql", "dbz#2330", "3.6.1.Final", "3.7.0.Final", {"snapshot__max__threads": "4"}),
        ("mysql", "dbz#2260", "3.6.1.Final", "3.7.0.Final", {"b__type": "io.debezium.x.TinyIntOneToBooleanConverter"}),
        ("postgresql", "dbz#2075", "3.5.2.Final", "3.7.0.Final", {"time__precision__mode": "nanoseconds"}),
        ("oracle", "dbz#1756", "3.5.2.Final", "3.6.0.Final", {"database__connection__adapter": "olr"}),
        ("oracle", "DBZ-9521", "3.3.0.Final", "3.3.1.Final", {"lob__enabled": "true"}),
        ("oracle", "DBZ-9521", "3.2.3.Final", "3.2.4.Final", {"lob__enabled": "TRUE"}),
        ("mysql", "DBZ-9337", "3.2.1.Final", "3.2.2.Final", {"signal__data__collection": "shop.signals"}),
        ("oracle", "DBZ-8874", "3.1.0.Final", "3.1.1.Final", {"log__mining__buffer__type": "ehcache"}),
        ("postgresql", "dbz#1554", "3.6.1.Final", "3.7.0.Alpha1", {}),
        ("cockroachdb", "dbz#2322", "3.6.1.Final", "3.7.0.Alpha1", {}),
    ],
)
def test_a_defect_ends_with_its_fix(system: str, defect: str, last: str, fixed: str, options: dict[str, str]) -> None:
    """And concerns no connector without its options, or of an unknown release."""
    assert defect in names(system, last, **options)
    assert defect not in names(system, fixed, **options)
    assert defect not in names(system, None, **options)
    if options:
        assert defect not in names(system, last)


def test_each_defect_has_a_source_and_readable_releases() -> None:
    for defect in DEFECTS:
        assert defect.source.startswith(("https://", "docs/"))
        assert defect.consequence
        assert defect.remedy
        releases = [release(text) for text in defect.fixed]
        assert None not in releases
        assert releases == sorted(found for found in releases if found)


def test_a_defect_that_no_release_fixes() -> None:
    """Also of an unknown release, because the option exists only where the defect is."""
    for version in ("3.7.0.Final", None):
        assert names("postgresql", version, r__reselect__cache__enabled="true") == ["reselect-cache"]
    assert names("postgresql", "3.7.0.Final", r__reselect__cache__enabled="false") == []
