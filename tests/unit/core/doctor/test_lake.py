"""What a trial of the lake and its readers report."""

from __future__ import annotations

import pytest

from headrace.core.doctor.findings import Severity
from headrace.core.doctor.lake import READERS, LakeTrial, findings

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
