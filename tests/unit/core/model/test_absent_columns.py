"""Defaults of new columns are converted to values of lake columns, and stored as entries of the ledger."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.model.absent_columns import ColumnDefault, recorded_defaults
from headrace.core.model.events import RowVersion
from headrace.core.model.keys import canonical_keys

SEVEN, HALF, TEXT = (
    ColumnDefault("c", value_type, text) for value_type, text in (("number", "7"), ("number", "0.5"), ("text", "7"))
)


@pytest.mark.parametrize(
    ("default", "column_type", "value"),
    [
        (SEVEN, pa.int16(), 7),
        (SEVEN, pa.float64(), 7.0),
        (SEVEN, pa.decimal128(9, 2), Decimal("7.00")),
        (SEVEN, pa.string(), "7"),
        (ColumnDefault("c", "number", "1"), pa.bool_(), True),
        (HALF, pa.decimal128(9, 2), Decimal("0.50")),
        (TEXT, pa.string(), "7"),
    ],
)
def test_a_default_as_a_value(default: ColumnDefault, column_type: pa.DataType, value: Any) -> None:
    """A default becomes a value of the type that the lake has for the column."""
    found = default.value(column_type)
    assert found is not None
    assert (found.as_py(), found.type) == (value, column_type)


@pytest.mark.parametrize(
    ("default", "column_type"),
    [
        (SEVEN, pa.bool_()),
        (SEVEN, pa.timestamp("us")),
        (SEVEN, pa.date32()),
        (SEVEN, pa.binary()),
        (HALF, pa.int32()),
        (HALF, pa.decimal128(9, 0)),
        (ColumnDefault("c", "number", "70000"), pa.int16()),
        (TEXT, pa.int32()),
        (TEXT, pa.binary()),
    ],
)
def test_a_type_that_does_not_hold_the_default(default: ColumnDefault, column_type: pa.DataType) -> None:
    """A default that the column's type cannot hold exactly, or that would be a time, gives None."""
    assert default.value(column_type) is None


def test_the_ledger_contains_the_newest_default_of_a_column() -> None:
    """The ledger returns the newest default per column; no entry of a default equals the key of a row."""
    one, two = (RowVersion(position, "schema", 0, 0, 0) for position in (b"1", b"2"))
    other = ColumnDefault('odd "name"', "text", "+é")
    ledger = {"": one, "=1": one, SEVEN.ledger_key: two, TEXT.ledger_key: one, other.ledger_key: one}
    assert recorded_defaults(ledger) == {SEVEN: two, other: one}
    single, several = canonical_keys([pa.array(["+"])]), canonical_keys([pa.array(["+"]), pa.array(["+"])])
    assert not any(key.startswith("+") for key in (single[0].as_py(), several[0].as_py()))
