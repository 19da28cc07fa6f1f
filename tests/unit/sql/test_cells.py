"""The rows of an answer by the ordinals of their request, and the texts of a column as they become its cells."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.model.errors import Fatal
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.rows import ReadRows, RowAnswer, RowRequest
from headrace_connectors.sql.cells import FoundRows
from headrace_connectors.sql.postgres import texts_of_column

TABLE = TableId("shop", "shop", "public", "items")
TEXT = Schema("string", optional=True)


@pytest.mark.parametrize("indexes", [[0, 1, 2], [2, 0, 1], [3, 1], []])
def test_rows_are_stored_by_their_ordinals(indexes: list[int]) -> None:
    """In any order, and with rows that are missing, ``put_all`` stores what ``put`` stores."""
    columns = [[b"a%d" % index for index in indexes], [None if index == 1 else b"b" for index in indexes]]
    together, one_by_one = FoundRows(TABLE, 4, 2), FoundRows(TABLE, 4, 2)
    together.put_all(np.array(indexes, np.int64), columns)
    for number, index in enumerate(indexes):
        one_by_one.put(index, [column[number] for column in columns])
    assert together.found.tolist() == one_by_one.found.tolist()
    assert together.values == one_by_one.values


def test_all_rows_are_stored() -> None:
    rows = FoundRows(TABLE, 2, 1)
    rows.put_all(np.array([0, 1]), [[b"a", b"b"]])
    assert (rows.found.tolist(), rows.values) == ([True, True], [[b"a", b"b"]])


@pytest.mark.parametrize("indexes", [[0, 1, 1], [2, 0]])
def test_a_second_row_of_a_key_is_refused(indexes: list[int]) -> None:
    """In the same answer, or in an earlier one."""
    rows = FoundRows(TABLE, 3, 0)
    rows.put(2, [])
    with pytest.raises(Fatal, match=r"public\.items: several rows have the same key"):
        rows.put_all(np.array(indexes), [])


def test_texts_are_columns_of_arrow() -> None:
    """Only the cells that are needed and found are taken of it."""
    texts = texts_of_column(TEXT, str, [b"a", None, "ä".encode(), b"d"])
    assert isinstance(texts, pa.StringArray)
    answer = RowAnswer(np.array([True, True, True, False]), (texts,))
    assert answer.of_found(0) == ["a", None, "ä"]
    column = Column("note", TEXT, pa.array([], pa.string()))
    needs = np.array([[True], [False], [True], [True]])
    request = RowRequest(TABLE, (), (column,), needs, np.full(4, -1))
    [cells] = ReadRows.of(request, answer).columns
    assert (cells.places.tolist(), cells.values.to_pylist(), cells.unreadable) == ([0, 2], ["a", "ä"], 0)


def test_a_text_in_a_column_of_another_type_cannot_be_read() -> None:
    """The column was altered since: Arrow would make a number of its text."""
    column = Column("note", Schema("int32"), pa.array([], pa.int32()))
    texts = texts_of_column(column.schema, str, [b"12"])
    request = RowRequest(TABLE, (), (column,), np.array([[True]]), np.full(1, -1))
    [cells] = ReadRows.of(request, RowAnswer(np.array([True]), (texts,))).columns
    assert (len(cells.values), cells.unreadable) == (0, 1)
