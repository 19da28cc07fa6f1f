"""What the doctor reports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How much harm a finding does: rows that are wrong or missing, or a pipeline that stops, are errors.

    An information does no harm to the tables of Headrace.
    """

    INFORMATION = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """A state that does harm, or that an operator should know.

    ``rule`` identifies the kind of finding, ``subject`` is what has it: a server, a slot, a table. ``consequence`` is
    what will happen, ``evidence`` what was read, and ``remedy`` a statement or setting to copy, or what to do.
    """

    rule: str
    severity: Severity
    subject: str
    consequence: str
    evidence: str
    remedy: str


def by_harm(findings: Iterable[Finding]) -> list[Finding]:
    """Return errors first, and findings of one kind next to each other."""
    return sorted(findings, key=lambda finding: (-finding.severity, finding.rule, finding.subject))
