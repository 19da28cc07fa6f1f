"""Tests of the report of ``verify``: names of differences, values only on request, and the exit status."""

from __future__ import annotations

import io
from collections.abc import Mapping

import pyarrow as pa
import pytest

from headrace.core.verify.verification import Verdict, Where
from headrace.runtime.verify.table_verifier import Difference
from headrace.runtime.verify.verify_report import Report


def difference(
    verdict: Verdict = Verdict.DIFFERENT,
    where: Where = Where.BOTH,
    columns: tuple[str, ...] = ("name",),
    values: Mapping[str, tuple[str, str]] | None = None,
) -> Difference:
    key = pa.table({"id": [7], "part": [b"\x01"]})
    return Difference(verdict, where, key, columns, values or {"name": ("'secret'", "null")})


def printed(*found: Difference, show: bool = False, repaired: bool = False) -> tuple[list[str], int]:
    """Return the lines for one table, and the exit status."""
    out = io.StringIO()
    report = Report(out, io.StringIO(), show_values=show)
    report.begin("public.item")
    for each in report.printed(iter(found)):
        if repaired:
            report.repaired(each)
    report.end(1200, ("old",))
    return out.getvalue().splitlines(), report.finish()


def test_a_difference_is_named_by_key_and_column() -> None:
    """The report contains keys and columns of a difference, but no values."""
    lines, status = printed(difference(columns=("name", "qty")))
    assert lines == [
        "public.item id=7, part=01: name, qty differ",
        "public.item: 1,200 rows, 1 differ (not compared, because the source lacks them: old)",
    ]
    assert status == 1


def test_values_are_printed_on_request() -> None:
    """The report prints the values of source and lake below the row."""
    assert printed(difference(), show=True)[0][1] == "    name: source 'secret', lake null"


@pytest.mark.parametrize(
    ("where", "words"),
    [(Where.SOURCE, "only in the source"), (Where.LAKE, "only in the lake"), (Where.TWICE, "stored twice in the lake")],
)
def test_a_row_of_one_side_is_reported_with_the_side(where: Where, words: str) -> None:
    """The report contains whether the row is only in the source, only in the lake, or twice in the lake."""
    assert words in printed(difference(where=where))[0][0]


def test_an_unproven_difference_is_reported_as_such() -> None:
    """The report marks a difference that is not proven, and counts it as a difference."""
    lines, status = printed(difference(Verdict.UNPROVEN))
    assert "did not pass" in lines[0]
    assert status == 1


def test_rows_that_a_later_change_explains_are_counted_only() -> None:
    """The report counts rows that a later change explains, but not as differences."""
    lines, status = printed(difference(Verdict.EXPLAINED))
    assert lines[0].startswith("public.item: 1,200 rows, equal (1 explained")
    assert status == 0


def test_repaired_rows_are_equal_again() -> None:
    """The exit status is 0 if all differences were repaired."""
    lines, status = printed(difference(), repaired=True)
    assert lines[1] == "public.item id=7, part=01: repaired"
    assert "equal (1 repaired" in lines[2]
    assert status == 0


def test_a_table_that_cannot_be_compared_is_an_error() -> None:
    """The exit status is 2 if a table cannot be compared, and if a connector has no tables."""
    report = Report(io.StringIO(), io.StringIO())
    assert report.finish() == 2
    report.begin("public.item")
    report.failed("no key")
    assert report.finish() == 2
