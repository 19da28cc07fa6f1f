"""Parsing of header texts by SimpleHeaderConverter, with the recorded results of Kafka Connect 4.3.1."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.transforms.literals import parse_literal

DAY = (date(2020, 1, 2) - date(1970, 1, 1)).days
MOMENT = DAY * 86_400_000 + 11_045_678
PARSED: dict[str, tuple[str, Any]] = {
    " true ": ("boolean", True),
    "TRUE": ("string", "TRUE"),
    "true}": ("string", "true}"),
    "null,": ("string", "null,"),
    " 12 ": ("int8", 12),
    "-129": ("int16", -129),
    "2147483648": ("int64", 2147483648),
    "-0": ("int8", 0),
    "+5": ("int8", 5),
    "1.": ("int8", 1),
    "100.00": ("int8", 100),
    "1e3": ("int16", 1000),
    ".5": ("string", ".5"),
    "-.5": ("float", -0.5),
    "1.5": ("float", 1.5),
    "1.12345678901": ("float", 1.1234568357467651),
    "1e39": ("double", 1e39),
    "1e-400": ("float", 0.0),
    "9223372036854775807": ("int64", 9223372036854775807),
    "9223372036854775808": ("Decimal 0", (1 << 63).to_bytes(9, "big")),
    "-1e400": ("Decimal -400", b"\xff"),
    "-": ("string", "-"),
    "1_0": ("string", "1_0"),
    "NaN": ("string", "NaN"),
    "2020-01-02": ("Date", DAY),
    "2020-13-45": ("Date", 18672),
    "2020-01-02x": ("string", "2020-01-02x"),
    "2020-01-02T03:04:05.678Z": ("Timestamp", MOMENT),
    "2020-01-02T03:04:05Z": ("string", "2020-01-02T03:04:05Z"),
    "12:30:45.123Z": ("Time", 45045123),
    "[1, 300]": ("[int16]", [1, 300]),
    "[1,1.5]": ("[float]", [1.0, 1.5]),
    '[ "a" , "b" ]': ("[string]", ["a", "b"]),
    '["2020-01-02"]': ("[Date]", [DAY]),
    "[12:30:45.123Z]": ("[Time]", [45045123]),
    '["a]b"]': ("[string]", ["a]b"]),
    '["a\\"b"]': ("[string]", ['a\\"b']),
    "[[1],[2]]": ("[[int8]]", [[1], [2]]),
    "[1,]": ("[int8]", [1]),
    "[]": ("[?]", []),
    '[1,"a"]': ("[?]", [1, "a"]),
    "[1,null]": ("string", "[1,null]"),
    "[1,,2]": ("string", "[1,,2]"),
    "[a,b]": ("string", "[a,b]"),
    "[1,2": ("string", "[1,2"),
    '{"a":1,"b":300}': ("{string:int16}", {"a": 1, "b": 300}),
    '{"a":{"b":true}}': ("{string:{string:boolean}}", {"a": {"b": True}}),
    '{"a":null}': ("{string:?}", {"a": None}),
    "{1:2}": ("{int8:int8}", [(1, 2)]),
    "{}": ("{?:?}", {}),
    "{a:1}": ("string", "{a:1}"),
    "{null:1}": ("string", "{null:1}"),
    '"1"': ("string", '"1"'),
    " padded": ("string", " padded"),
    "": ("string", ""),
}
DIFFERENT: dict[str, tuple[str, Any]] = {
    "12:30": ("string", "12:30"),
    "[1,2]x": ("string", "[1,2]x"),
    "1" * 5000: ("string", "1" * 5000),
    "407127e212797209": ("string", "407127e212797209"),
}
"""Texts for which Kafka Connect ignores trailing characters, or returns a number that no column type can hold."""


def short_name(schema: Any) -> str:
    """Return a short notation of a schema."""
    if schema is None:
        return "?"
    if schema.type == "array":
        return f"[{short_name(schema.items)}]"
    if schema.type == "map":
        return f"{{{short_name(schema.keys)}:{short_name(schema.values)}}}"
    name = (schema.name or schema.type).rpartition(".")[2]
    return f"{name} {schema.parameter('scale')}" if schema.parameters else name


@pytest.mark.parametrize(("text", "expected"), [*PARSED.items(), *DIFFERENT.items()])
def test_guesses(text: str, expected: tuple[str, Any]) -> None:
    """A header text has the narrowest type that can hold it, else it is a string."""
    found = parse_literal(text)
    assert (short_name(found.schema), found.value) == expected
    assert type(found.value) is type(expected[1])


@given(st.text(st.sampled_from('[]{}",:1.e-+TZ \\ntrue2020')))
def test_every_text_is_parsed(text: str) -> None:
    """Parsing never fails, and a text of no other type is a string with the same characters."""
    found = parse_literal(text)
    if found.schema is not None and found.schema.type == "string":
        assert found.value == text
