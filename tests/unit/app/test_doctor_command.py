"""What ``headrace doctor`` prints, and its exit status."""

from __future__ import annotations

import pytest

from headrace.core.doctor.findings import Finding, Severity
from headrace.runtime.doctor import Diagnosis
from headrace_app.doctor import exit_status, lines


def diagnosis(*severities: Severity, not_checked: int = 0) -> Diagnosis:
    found = [Finding("rule", severity, "subject", "consequence", "evidence", "remedy") for severity in severities]
    return Diagnosis(found, ["part: reason"] * not_checked)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (diagnosis(), 0),
        (diagnosis(Severity.INFORMATION), 0),
        (diagnosis(Severity.WARNING, Severity.INFORMATION), 1),
        (diagnosis(Severity.ERROR, Severity.WARNING), 2),
        (diagnosis(Severity.ERROR, not_checked=1), 2),
        (diagnosis(Severity.WARNING, not_checked=1), 3),
        (diagnosis(Severity.INFORMATION, not_checked=1), 3),
    ],
)
def test_the_exit_status(found: Diagnosis, status: int) -> None:
    assert exit_status(found) == status


def test_the_text() -> None:
    assert list(lines(diagnosis())) == ["nothing found"]
    *_, last = lines(diagnosis(Severity.ERROR, Severity.WARNING))
    assert last == "errors: 1, warnings: 1"
    printed = list(lines(diagnosis(Severity.INFORMATION, not_checked=1)))
    assert printed == [
        "INFORMATION: subject [rule]",
        "  consequence",
        "  seen: evidence",
        "  do:   remedy",
        "",
        "not checked: part: reason",
        "errors: 0, warnings: 0, information: 1",
    ]
