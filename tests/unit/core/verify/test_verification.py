"""Rows of both sides beside each other, and what to think of those that differ."""

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


def test_a_comparison_says_what_it_leaves_out() -> None:
    """Columns only at the source count as null in the lake, columns only in the lake are named."""
    assert WANTED.missing == {"new"}
    assert WANTED.lake_names == ("id", "name")
    assert WANTED.kept == ("gone",)
    assert WANTED.types == (pa.int64(), pa.string(), pa.int32())


@pytest.mark.parametrize("key", [[], ["id", "nothing"]])
def test_a_table_without_a_key_is_refused(key: list[str]) -> None:
    """Its rows cannot be told apart."""
    with pytest.raises(Fatal, match=r"primary\.key\.fields"):
        comparison(SCHEMA, STORED, key)


def test_equal_rows_are_not_seen() -> None:
    """In any order, whatever the width of their types."""
    assert seen(source((1, "a", None), (2, None, None)), lake((2, None), (1, "a"))) == []


def test_a_row_that_differs_names_its_columns() -> None:
    """Also one that the lake has no column for."""
    [found] = seen(source((1, "a", 5)), lake((1, "b")))
    assert (found.where, found.columns, found.position) == (Where.BOTH, ("name", "new"), b"p")


def test_rows_of_one_side_say_which() -> None:
    """Missing in the lake, missing at the source, twice in the lake."""
    found = seen(source((1, "a", None), (3, "c", None)), lake((2, "b"), (3, "c"), (3, "c")))
    assert [each.where for each in found] == [Where.SOURCE, Where.LAKE, Where.TWICE]


def test_the_stored_version_is_part_of_the_lakes_state() -> None:
    """A row that was written again is another state, although its cells are the same."""
    [before] = seen(source((1, "a", None)), lake((1, "b"), position="p"))
    [after] = seen(source((1, "a", None)), lake((1, "b"), position="q"))
    assert before.lake != after.lake
    assert before.source == after.source


def test_what_no_event_could_carry_is_null() -> None:
    """As it is in the lake: a value that does not fit its type was never written."""
    assert seen(source((1, UNREADABLE, None)), lake((1, None))) == []


def test_types_that_do_not_fit_are_named() -> None:
    """A text in the source, a number in the lake."""
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
def test_only_a_proof_makes_a_difference(
    before: Sighting | None, now: Sighting, passed: bool, again: int | None, verdict: Verdict
) -> None:
    """The lake has passed the source's read, and what it has was there before that read."""
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
def test_what_is_open_at_the_end_says_why(before: Sighting | None, end: bytes, verdict: Verdict) -> None:
    """Changed since, never passed, or never the same twice."""
    assert judge_at_the_end(before, OLD, end) is verdict
