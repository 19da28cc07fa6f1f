"""The digest of a table that any engine can recompute."""

from __future__ import annotations

from decimal import Decimal
from hashlib import md5
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.lake_types import TYPE_NAMES
from headrace.core.verify.table_digest import TableDigest, row_texts

STRUCT = pa.struct([("b", pa.int32()), ("a", pa.string())])


def digest(*pieces: pa.Table) -> str:
    found = TableDigest()
    for piece in pieces:
        found.add(piece)
    return found.text


@pytest.mark.parametrize(
    ("kind", "cell", "text"),
    [
        (pa.bool_(), True, "true"),
        (pa.bool_(), False, "false"),
        (pa.int32(), -7, "-7"),
        (pa.int64(), 2**62, "4611686018427387904"),
        (pa.float32(), 0.1, "0.10000000149011612"),
        (pa.float64(), 1e17, "1e+17"),
        (pa.float64(), -0.0, "-0"),
        (pa.float64(), float("nan"), "nan"),
        (pa.float64(), float("-inf"), "-inf"),
        (pa.decimal128(10, 2), Decimal("-1.50"), "-1.50"),
        (pa.decimal128(20, 12), Decimal("0.000000000001"), "0.000000000001"),
        (pa.decimal128(20, 12), Decimal(0), "0.000000000000"),
        (pa.decimal128(38, 0), Decimal(10**37), "1" + "0" * 37),
        (pa.string(), "ä:-", "ä:-"),
        (pa.string(), "", ""),
        (pa.binary(), b"\x00\xff", "00ff"),
        (pa.date32(), -1, "-1"),
        (pa.timestamp("us"), 253_402_300_800_000_000, "253402300800000000"),
        (pa.timestamp("us", "UTC"), -1, "-1"),
        (pa.list_(pa.string()), ["a", None, ""], "1:a-0:"),
        (pa.list_(pa.list_(pa.date32())), [[1]], "3:1:1"),
        (STRUCT, {"b": 5, "a": "x"}, "1:51:x"),
        (pa.map_(pa.string(), pa.float64()), [("b", 0.5), ("a", None)], "1:a-1:b3:0.5"),
    ],
)
def test_the_text_of_a_cell(kind: pa.DataType, cell: Any, text: str) -> None:
    """The texts are those of the documentation; a text is preceded by its number of bytes."""
    column = pa.array([None, cell], kind)
    assert row_texts([column]) == [b"-", b"%d:%s" % (len(text.encode()), text.encode())]
    assert row_texts([column.slice(1)]) == row_texts([column])[1:]


def test_every_type_of_a_lake_table_has_texts() -> None:
    """Also without a value."""
    for kind in TYPE_NAMES:
        assert row_texts([pa.nulls(2, kind)]) == [b"-", b"-"]
        assert row_texts([pa.array([], kind)]) == []


def test_the_digest_is_a_sum_over_rows() -> None:
    """The columns are in the order of their names, whatever their order in the table is."""
    rows = pa.table({"b": ["x", None], "a": [1, 2]})
    expected = (
        sum(int.from_bytes(md5(text, usedforsecurity=False).digest()[:8], "big") for text in (b"1:11:x", b"1:2-"))
        % 2**64
    )
    assert digest(rows) == digest(rows.select(["a", "b"])) == f"{expected:016x}"
    assert digest() == digest(rows.slice(0, 0)) == "0" * 16


ROWS = st.lists(st.tuples(st.one_of(st.none(), st.text("01:-", max_size=3)), st.text("01:-", max_size=3)), max_size=6)


def _table(rows: list[tuple[str | None, str]]) -> pa.Table:
    return pa.table({name: pa.array([row[index] for row in rows], pa.string()) for index, name in enumerate("ab")})


@given(ROWS, ROWS, st.integers(0, 6))
def test_equal_tables_have_equal_digests(rows: list[Any], others: list[Any], cut: int) -> None:
    """Neither order nor pieces count, and any other cell, row or repetition of a row does."""
    table = _table(rows)
    assert digest(table) == digest(table.slice(cut), table.slice(0, cut))
    key = repr
    assert (digest(table) == digest(_table(others))) is (sorted(rows, key=key) == sorted(others, key=key))
