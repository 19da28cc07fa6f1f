"""What a trial of the lake and its readers report."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.core.doctor.findings import Severity
from headrace.core.doctor.lake import FormatTrial, LakeTrial, Transactions, findings
from headrace.core.doctor.readers import READERS
from headrace.core.doctor.versions import ICEBERG, JAVA, Software

GOOD = LakeTrial("`lake`.`headrace`.`headrace_doctor_1`", format_version=3)


def test_a_good_trial_is_silent() -> None:
    assert list(findings(GOOD, 3, ["spark", "trino"])) == []
    assert list(findings(None, None, READERS)) == []


def test_a_table_that_could_not_be_removed() -> None:
    """The statement is there to copy. The step that failed is reported too."""
    trial = LakeTrial(GOOD.table, "delete a row", "access denied", 3, f"DROP TABLE {GOOD.table} PURGE;")
    refused, left = findings(trial, 3, [])
    assert (refused.severity, refused.evidence) == (Severity.ERROR, "cannot delete a row: access denied")
    assert (left.rule, left.remedy) == ("lake-table-left", f"DROP TABLE {GOOD.table} PURGE;")


def test_a_catalog_that_chooses_another_version() -> None:
    """The version that tables really have decides for readers."""
    [finding] = findings(LakeTrial(GOOD.table, format_version=2), 3, ["athena"])
    assert (finding.rule, finding.severity) == ("lake-format-version", Severity.WARNING)
    assert "table.format.version=2" in finding.remedy


@pytest.mark.parametrize("reader", READERS)
def test_readers(reader: str) -> None:
    """All read version 2; what cannot read version 3 is an error, what needs a setting a warning."""
    assert list(findings(None, 2, [reader])) == []
    severities = [finding.severity for finding in findings(GOOD, 3, [reader])]
    of_reader = READERS[reader]
    assert severities == (
        [Severity.ERROR] if not of_reader.reads_version_3 else [Severity.WARNING] if of_reader.remark else []
    )


def test_a_reader_that_is_installed_and_reads_wrongly() -> None:
    """One that reads the rows is silent."""
    trial = LakeTrial(GOOD.table, format_version=3, readers={"pyiceberg": "", "duckdb": "it returns deleted rows"})
    [finding] = findings(trial, 3, [])
    assert (finding.rule, finding.severity, finding.subject) == ("lake-reader-failed", Severity.ERROR, "reader duckdb")
    assert finding.evidence.startswith("it returns deleted rows, of a table of version 3")


@pytest.mark.parametrize(
    ("transactions", "word"),
    [
        (Transactions.UNKNOWN, ""),
        (Transactions.ATOMIC, ""),
        (Transactions.SPLIT, "refused"),
        (Transactions.UNCHECKED, "accepted"),
    ],
)
def test_transactions_of_two_tables(transactions: Transactions, word: str) -> None:
    """Headrace does not use them, so a catalog that splits them is an information."""
    found = list(findings(replace(GOOD, examined=FormatTrial(transactions=transactions)), 3, []))
    assert [finding.severity for finding in found] == [Severity.INFORMATION] * bool(word)
    assert all(f"transactions/commit {word} a transaction" in finding.evidence for finding in found)


@pytest.mark.parametrize(("creates_once", "rules"), [(None, []), (True, []), (False, ["lake-files-replaced"])])
def test_files_that_are_created_twice(creates_once: bool | None, rules: list[str]) -> None:
    trial = replace(GOOD, format_version=None, examined=FormatTrial(creates_once=creates_once))
    assert [finding.rule for finding in findings(trial, None, [])] == rules


def test_another_release_of_the_engine() -> None:
    """It is found in the trial, because the operator may have set other jars."""
    trial = replace(GOOD, software=[Software(JAVA, "17.0.9"), Software(ICEBERG, "1.11.0")])
    [finding] = findings(trial, 3, [])
    assert (finding.rule, finding.subject) == ("version-untested", "Iceberg")


def test_tables_that_keep_version_3() -> None:
    """New tables have version 2, because a reader needs it. Not all of many tables are named."""
    trial = replace(GOOD, format_version=2, tables={"a": 2, **{f"t{number}": 3 for number in range(7)}})
    [finding] = findings(trial, 2, ["spark", "athena"])
    assert (finding.rule, finding.severity) == ("lake-reader-format", Severity.ERROR)
    assert "version 3 have t0, t1, t2, t3, t4 and 2 more (" in finding.evidence
    [finding] = findings(replace(trial, tables={"t": 3}), 2, ["duckdb"])
    assert (finding.severity, finding.remedy.partition(";")[0]) == (Severity.WARNING, READERS["duckdb"].remark)
    assert list(findings(replace(trial, tables={"a": 2}), 2, ["athena", "duckdb"])) == []
