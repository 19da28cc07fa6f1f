"""Cached rows are encoded as bytes (``reselect.md`` section 10: upstream's ``ReselectValueSerdeTest``)."""

from __future__ import annotations

import zlib
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from contracts.row_store_suite import row
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.reselect.cache.codec import decode_row, encode_row


def round_trip(value: Any) -> Any:
    return decode_row(encode_row(row(value)))["big"].value


@pytest.mark.parametrize("arrow_type", [pa.int8(), pa.int32(), pa.int64()])
def test_integer_does_not_widen_to_long(arrow_type: pa.DataType) -> None:
    """A decoded integer has the Arrow type that was encoded."""
    assert round_trip(pa.array([1], arrow_type)).type == arrow_type


def test_byte_array_and_byte_buffer_keep_their_distinct_types() -> None:
    """A text and bytes with the same characters are decoded as text and bytes."""
    assert (round_trip("A"), round_trip(b"A")) == ("A", b"A")


def test_strings_larger_than_sixty_four_kilobytes_round_trip() -> None:
    """Texts above 64 KiB, the limit of Java's ``writeUTF``, are decoded without a change."""
    assert round_trip("ü" * 100_000) == "ü" * 100_000


def test_big_decimal_preserves_scale_and_value() -> None:
    """A decoded decimal has the same scale and value."""
    value = pa.array([Decimal("1.50")], pa.decimal128(38, 2))
    assert round_trip(value).equals(value)
    assert round_trip(value).type == value.type


def test_nested_lists_and_maps_round_trip() -> None:
    """Nested lists, maps and structs with nulls are decoded without a change."""
    arrow_type = pa.map_(pa.string(), pa.list_(pa.struct([("a", pa.int32()), ("b", pa.binary())])))
    value = pa.array([[("k", [{"a": 1, "b": b"x"}, None]), ("l", None)]], arrow_type)
    assert round_trip(value).equals(value)


@given(st.data())
def test_truncated_bytes_throw(data: st.DataObject) -> None:
    """Decoding bytes that are truncated at any place, or differ in one byte, is an error."""
    written = encode_row(row("A" * 20))
    cut = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(ValueError, match="truncated or modified"):
        decode_row(written[:cut])
    with pytest.raises(ValueError, match="truncated or modified"):
        decode_row(written[:cut] + bytes([written[cut] ^ 1]) + written[cut + 1 :])


def test_another_format_is_no_row() -> None:
    """Decoding bytes with a valid checksum and another format is an error."""
    body = b"\x81\xa1a\x01"
    with pytest.raises(ValueError, match="another format"):
        decode_row(zlib.crc32(body).to_bytes(4, "big") + body)


@pytest.mark.parametrize(("value", "fingerprint"), [("\ud800", "print"), ("A", ("text", 3))])
def test_a_row_that_cannot_be_encoded_is_refused(value: str, fingerprint: object) -> None:
    """Encoding a text with a lone surrogate, or a fingerprint that is no text, is an error."""
    with pytest.raises(ValueError, match=r"cannot be encoded|surrogates"):
        encode_row({"big": replace(row(value)["big"], fingerprint=fingerprint)})
