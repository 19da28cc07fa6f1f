"""Which plugin versions a text asks for."""

from __future__ import annotations

import pytest

from headrace.core.connect.version_range import InvalidVersionSpecification, VersionRange


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("4.3.1", ["4.3.1", "4.3.1.0", "4.3.1.Final"], ["4.3.2", "4.3"]),
        ("[4,5)", ["4", "4.3.1", "4.10"], ["5", "5.0.0", "3.9.9"]),
        ("(4.3,]", ["4.3.1", "10"], ["4.3", "4.3.0"]),
        ("(,2.0],[3,)", ["1.9", "2", "3.0.1"], ["2.5", "3-rc1"]),
        ("[1.0]", ["1"], ["1.0.1", "1.0-SNAPSHOT"]),
        ("[1.0-beta,1.0)", ["1.0-rc1", "1.0-SNAPSHOT"], ["1.0-alpha", "1.0"]),
        ("[,]", [], ["4.3.1"]),
        ("", [], ["4.3.1"]),
    ],
)
def test_what_is_in_a_range_and_what_is_not(text: str, inside: list[str], outside: list[str]) -> None:
    """As Maven orders versions: numbers by value, pre-releases before their release."""
    wanted = VersionRange.parse(text)
    assert [each for each in inside if not wanted.contains(each)] == []
    assert [each for each in outside if wanted.contains(each)] == []


@pytest.mark.parametrize(
    ("text", "shown"), [("9.9", "[9.9,9.9]"), ("[9,)", "[9,)"), ("", "[,]"), ("(,1],[2]", "(,1],[2,2]")]
)
def test_a_range_is_shown_as_connect_shows_it(text: str, shown: str) -> None:
    """In the text of the error."""
    assert str(VersionRange.parse(text)) == shown


@pytest.mark.parametrize("text", ["[", "[1,2", "1,2", "[1,2,3]", "[1]x", "]1["])
def test_what_is_no_range_is_told(text: str) -> None:
    """Connect answers 400."""
    with pytest.raises(InvalidVersionSpecification):
        VersionRange.parse(text)
