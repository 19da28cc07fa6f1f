"""JsonConverter's documents as Connect data."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.decode.json_converter import JsonData, unscaled_bytes
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord

PRICE = {"type": "bytes", "optional": True, "name": DECIMAL, "parameters": {"scale": "2"}, "field": "price"}


def document(fields: list[dict[str, Any]], payload: str) -> bytes:
    schema = json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))
    return f'{{"schema":{schema},"payload":{payload}}}'.encode()


@pytest.mark.parametrize("price", ['"BNI="', "12.34"])
def test_decimals_of_both_formats_are_unscaled_bytes(price: str) -> None:
    """The converter reads ``decimal.format`` BASE64 and NUMERIC, also in arrays and maps."""
    prices = {"type": "array", "items": PRICE, "field": "prices"}
    by_name = {"type": "map", "keys": {"type": "string"}, "values": PRICE, "field": "by_name"}
    by_number = {"type": "map", "keys": {"type": "int32"}, "values": PRICE, "field": "by_number"}
    payload = (
        f'{{"price":{price},"prices":[{price},null],"by_name":{{"a":{price}}},"by_number":[[1,{price}]],"more":1}}'
    )
    data = JsonData(True).to_connect_data(document([PRICE, prices, by_name, by_number], payload))
    unscaled = b"\x04\xd2"
    assert data.value == {
        "price": unscaled,
        "prices": [unscaled, None],
        "by_name": {"a": unscaled},
        "by_number": [(1, unscaled)],
    }


def test_equal_schemas_of_documents_are_one_object() -> None:
    """The converter returns one schema object, by whose identity its users cache what they derive from it."""
    converter = JsonData(True)
    one, other = (converter.to_connect_data(document([PRICE], f'{{"price":{price}}}')) for price in (1, 2))
    assert one.schema is other.schema
    assert one.schema is not None


def test_plain_json_has_no_schema() -> None:
    """Without schemas, ``schema`` and ``payload`` are ordinary members (``connect.md`` section 11)."""
    assert JsonData(False).to_connect_data(b'{"schema":null,"payload":[1,2.5]}') == SchemaAndValue(
        None, {"schema": None, "payload": [1, 2.5]}
    )


@pytest.mark.parametrize("price", ["true", "1.234", "1" * 5000, "1e5000", "1e-5000", "1e9999999999"])
def test_a_value_that_contradicts_its_schema_is_a_bad_record(price: str) -> None:
    """The converter refuses a value of another type, or with more digits than the schema or the limit allows."""
    with pytest.raises(BadRecord):
        JsonData(True).to_connect_data(document([PRICE], f'{{"price":{price}}}'))


@given(st.integers(-(10**30), 10**30), st.integers(0, 10))
def test_unscaled_bytes_are_the_digits(number: int, scale: int) -> None:
    """The bytes are the exact number, also if it has more zeros after the point than the scale."""
    exact = Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))
    assert int.from_bytes(unscaled_bytes(exact, scale), "big", signed=True) == number
    longer = Decimal((number < 0, (*map(int, str(abs(number))), 0, 0), -scale - 2))
    assert unscaled_bytes(longer, scale) == unscaled_bytes(exact, scale)
