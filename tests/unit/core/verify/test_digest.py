"""Cells have equal digests if and only if they are equal."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.verify.digest import cell_digests, row_digests

NUMBERS = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int64(), NUMBERS),
    "small": (pa.int32(), st.one_of(st.none(), st.integers(-3, 3))),
    "text": (pa.string(), st.one_of(st.none(), st.text(max_size=4))),
    "octets": (pa.binary(), st.one_of(st.none(), st.binary(max_size=4))),
    "boolean": (pa.bool_(), st.one_of(st.none(), st.booleans())),
    "decimal": (pa.decimal128(38, 2), st.one_of(st.none(), st.decimals(-(10**30), 10**30, places=2))),
    "list": (
        pa.list_(pa.string()),
        st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text(max_size=2)), max_size=3)),
    ),
    "struct": (
        pa.struct([("a", pa.int8()), ("b", pa.string())]),
        st.one_of(st.none(), st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.text(max_size=1)})),
    ),
}


@pytest.mark.parametrize("name", COLUMNS)
@given(data=st.data())
def test_digests_are_equal_just_where_cells_are(name: str, data: st.DataObject) -> None:
    """Two cells of one type, null included, have equal digests exactly if they are equal, also in a sliced array."""
    kind, cells = COLUMNS[name]
    values = data.draw(st.lists(cells, min_size=2, max_size=8))
    digests = cell_digests(pa.array([values[0], *values], kind)[1:]).tolist()
    for value, digest in zip(values, digests, strict=True):
        for other, others in zip(values, digests, strict=True):
            assert (value == other) == (digest == others)


def test_row_digests_distinguish_columns() -> None:
    """Rows with the same cells in other columns have different digests, also with nulls."""
    rows = row_digests([pa.array([1, 2, None, 1]), pa.array([2, 1, 1, None])])
    assert len(set(rows.tolist())) == 4


def test_numbers_with_equal_hashes_in_python_differ() -> None:
    """Numbers with equal hashes in Python (-1 and -2, 0 and 2**61 - 1) have different digests."""
    assert len(set(cell_digests(pa.array([-1, -2, 0, 2**61 - 1])).tolist())) == 4


def test_not_a_number_equals_itself() -> None:
    """NaN of either sign has one digest; zero and minus zero have different digests."""
    digests = cell_digests(pa.array([float("nan"), -float("nan"), 0.0, -0.0])).tolist()
    assert digests[0] == digests[1]
    assert digests[2] != digests[3]


def test_times_that_python_cannot_hold() -> None:
    """Timestamps beyond Python's datetime, such as infinity, have digests, alone and in a list."""
    counts = pa.array([9223372036825200000, None], pa.int64())
    for kind in (pa.timestamp("us"), pa.timestamp("us", tz="UTC")):
        assert len(set(cell_digests(counts.view(kind)).tolist())) == 2
    nested = pa.array([[9223372036825200000], [0]], pa.list_(pa.int64())).cast(pa.list_(pa.timestamp("us")))
    assert len(set(cell_digests(nested).tolist())) == 2


def test_maps_have_no_order() -> None:
    """Maps with the same entries in another order, as hstore returns them, have equal digests."""
    maps = pa.array(
        [[("b", 1), ("a", 2)], [("a", 2), ("b", 1)], [("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int32())
    )
    first, second, other = cell_digests(maps).tolist()
    assert first == second != other


def test_decimals_of_all_digits() -> None:
    """Decimals that differ only in the upper 64 bits have different digests."""
    low, high = Decimal(2**64), Decimal(2**65)
    assert len(set(cell_digests(pa.array([low, high, -low], pa.decimal128(38, 0))).tolist())) == 3
