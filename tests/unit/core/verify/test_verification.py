"""A verification compares the rows of source and lake, and judges those that differ."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headrace.core.model.errors import Fatal
from headrace.core.model.schema import Field, Schema
from headrace.core.reselect.rows import UNREADABLE
from headrace.core.verify.verification import (
    VERSION,
    Comparison,
    Rows,
    Sighting,
    Verdict,
    Where,
    comparison,
    judge,
    judge_at_the_end,
    lake_rows,
    sightings,
    source_rows,
)

SCHEMA = Schema(
    "struct",
    fields=(Field("id", Schema("int16")), Field("name", Schema("string", True)), Field("new", Schema("int32", True))),
)
STORED = pa.schema([("id", pa.int64()), ("name", pa.string()), ("gone", pa.string())])
WANTED = comparison(SCHEMA, STORED, ["id"])


def lake(*rows: tuple[int, str | None], wanted: Comparison = WANTED, position: str | None = "p") -> Rows:
    table = pa.table({"id": pa.array([key for key, _ in rows], pa.int64()), "name": [name for _, name in rows]})
    versions: list[Any] = [position, "t", 0, 1, 2]
    for name, value in zip(VERSION, versions, strict=True):
        table = table.append_column(name, pa.array([value] * len(rows)))
    return lake_rows(wanted, table)


def source(*rows: tuple[int, Any, Any]) -> Rows:
    return source_rows(WANTED, [list(column) for column in zip(*rows, strict=True)] or [[], [], []])


def seen(*sides: Rows) -> list[Sighting]:
    return list(sightings(WANTED, *sides).values())


def test_a_comparison_names_the_columns_that_it_omits() -> None:
    """A comparison counts columns that the lake lacks as null there, and names columns that the source lacks."""
    assert WANTED.missing == {"new"}
    assert WANTED.lake_names == ("id", "name")
    assert WANTED.kept == ("gone",)
    assert WANTED.types == (pa.int64(), pa.string(), pa.int32())


@pytest.mark.parametrize("key", [[], ["id", "nothing"]])
def test_a_table_without_a_key_is_refused(key: list[str]) -> None:
    """A table without a key is refused, because its rows cannot be distinguished."""
    with pytest.raises(Fatal, match=r"primary\.key\.fields"):
        comparison(SCHEMA, STORED, key)


def test_equal_rows_give_no_sighting() -> None:
    """Equal rows give no sighting, in any order and with integers of different widths."""
    assert seen(source((1, "a", None), (2, None, None)), lake((2, None), (1, "a"))) == []


def test_a_row_that_differs_names_its_columns() -> None:
    """A row that differs names its columns, also a column that the lake does not have."""
    [found] = seen(source((1, "a", 5)), lake((1, "b")))
    assert (found.where, found.columns, found.position) == (Where.BOTH, ("name", "new"), b"p")


def test_a_sighting_reports_the_side_of_a_row() -> None:
    """A sighting reports that a row is only in the source, only in the lake, or twice in the lake."""
    found = seen(source((1, "a", None), (3, "c", None)), lake((2, "b"), (3, "c"), (3, "c")))
    assert [each.where for each in found] == [Where.SOURCE, Where.LAKE, Where.TWICE]


def test_the_stored_version_is_part_of_the_lakes_state() -> None:
    """A row that was written again with equal cells has another state in the lake."""
    [before] = seen(source((1, "a", None)), lake((1, "b"), position="p"))
    [after] = seen(source((1, "a", None)), lake((1, "b"), position="q"))
    assert before.lake != after.lake
    assert before.source == after.source


def test_an_unreadable_source_value_equals_null() -> None:
    """A source value that cannot be read for its type equals a null in the lake, where it was never written."""
    assert seen(source((1, UNREADABLE, None)), lake((1, None))) == []


def test_types_that_do_not_fit_are_named() -> None:
    """A source column whose type cannot be converted to the lake's type is an error that names the column."""
    wanted = comparison(SCHEMA, pa.schema([("id", pa.int64()), ("name", pa.int64())]), ["id"])
    with pytest.raises(Fatal, match="column 'name': type string of the source cannot be converted to int64"):
        source_rows(wanted, [[1], ["a"], [None]])


OLD = Sighting(Where.BOTH, 1, 2, ("name",), b"5")
CASES = [
    (OLD, OLD, True, 1, Verdict.DIFFERENT),
    (OLD, OLD, False, 1, Verdict.OPEN),
    (None, OLD, True, 1, Verdict.OPEN),
    (Sighting(Where.BOTH, 1, 3), OLD, True, 1, Verdict.OPEN),
    (Sighting(Where.BOTH, 9, 2), OLD, True, 1, Verdict.DIFFERENT),
    (Sighting(Where.SOURCE, 1, None), Sighting(Where.SOURCE, 1, None), True, 1, Verdict.DIFFERENT),
    (Sighting(Where.SOURCE, 1, None), Sighting(Where.SOURCE, 1, None), True, None, Verdict.OPEN),
]


@pytest.mark.parametrize(("before", "now", "passed", "again", "verdict"), CASES)
def test_a_difference_requires_a_proof(
    before: Sighting | None, now: Sighting, passed: bool, again: int | None, verdict: Verdict
) -> None:
    """A row is DIFFERENT only if the lake passed the source's read and did not change its row; otherwise it is OPEN."""
    assert judge(before, now, passed, again) is verdict


@pytest.mark.parametrize(
    ("before", "end", "verdict"),
    [
        (OLD, b"4", Verdict.EXPLAINED),
        (OLD, b"5", Verdict.UNPROVEN),
        (None, b"5", Verdict.UNSETTLED),
        (OLD, b"", Verdict.UNPROVEN),
    ],
)
def test_a_row_that_is_open_at_the_end_gets_a_reason(before: Sighting | None, end: bytes, verdict: Verdict) -> None:
    """An open row is EXPLAINED by a later change, UNPROVEN if both sides stayed the same, and otherwise UNSETTLED."""
    assert judge_at_the_end(before, OLD, end) is verdict
