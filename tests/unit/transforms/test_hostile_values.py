"""Values that are made to do harm are bad records for transforms, in bounded time."""

from __future__ import annotations

import time

import pytest

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema
from headrace.transforms.casting import cast

DECIMAL = "org.apache.kafka.connect.data.Decimal"


@pytest.mark.parametrize("scale", [2**31 - 1, -(2**31), -999_999, "9" * 5000, "x"], ids=lambda scale: str(scale)[:12])
@pytest.mark.parametrize("type_name", ["int8", "int64", "double", "boolean", "string"])
def test_cast_refuses_decimals_of_a_huge_scale(type_name: str, scale: object) -> None:
    """Cast computes no number that its scale makes huge."""
    begin = time.monotonic()
    with pytest.raises(BadRecord):
        cast(SchemaAndValue(Schema("bytes", name=DECIMAL, parameters=(("scale", str(scale)),)), b"\x7f"), type_name)
    assert time.monotonic() - begin < 2
