"""Java properties and their environment form."""

from __future__ import annotations

import pytest

from headrace.core.connect.properties import parse_properties, properties_from_environment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("a = b ", {"a": "b "}),
        ("a: b", {"a": "b"}),
        ("a b c", {"a": "b c"}),
        ("  # note\n! note\n\na=1\na=2", {"a": "2"}),
        ("a=1,\\\n   2", {"a": "1,2"}),
        ("a=x\\\\\nb=2", {"a": "x\\", "b": "2"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u00e9\\t", {"a": "é\t"}),
        ("a=\\ud83d\\ude00", {"a": "\N{GRINNING FACE}"}),
        ("a=x=y", {"a": "x=y"}),
        ("empty=", {"empty": ""}),
        ("a=1\rb=2\r\nc=3\n", {"a": "1", "b": "2", "c": "3"}),
        ("a=p\u2028w\x85\x0b\x0c\x1c", {"a": "p\u2028w\x85\x0b\x0c\x1c"}),
        ("a\xa0\u2028b=c", {"a\xa0\u2028b": "c"}),
        ("a=1\\\r\n\t2\\", {"a": "12"}),
        ("\\\n# note\na=1", {"a": "1"}),
        ("a=1,\\\n# 2", {"a": "1,# 2"}),
        ('jaas=Plain required password="p#1";', {"jaas": 'Plain required password="p#1";'}),
    ],
)  # fmt: skip
def test_lines_are_parsed_as_in_java(text: str, expected: dict[str, str]) -> None:
    """The parser returns the properties that java.util.Properties.load returns."""
    assert parse_properties(text) == expected


def test_a_lone_surrogate_is_replaced() -> None:
    """Java keeps a lone surrogate, but UTF-8, and so a topic, a response or a log, cannot contain it."""
    assert parse_properties("a=x\\ud83dy") == {"a": "x\N{REPLACEMENT CHARACTER}y"}


@pytest.mark.parametrize("text", ["a=x\\u12", "a=\\u00zz\nb=1", "a=\\uuuu0041"])
def test_an_incomplete_escape_is_refused(text: str) -> None:
    """Java refuses it too: a password would change. The error names the key and not the value."""
    with pytest.raises(ValueError, match=r"^Malformed \\uxxxx encoding in the value of a$"):
        parse_properties(text)
    with pytest.raises(ValueError, match=r"^Malformed \\uxxxx encoding in a key$"):
        parse_properties("k\\u1=2")
    assert parse_properties("a=\\\\u12\n# \\u1\nb=\\U12") == {"a": "\\u12", "b": "U12"}


def test_environment_names_become_keys() -> None:
    """In the name of a variable, one underscore is a dot, two are an underscore and three a dash."""
    environment = {"CONNECT_BOOTSTRAP_SERVERS": "a:1", "CONNECT_A__B___C": "x", "PATH": "/bin", "CONNECT_": "y"}
    assert properties_from_environment(environment) == {"bootstrap.servers": "a:1", "a_b-c": "x"}
