"""Which versions of a plug-in a version range contains."""

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
def test_versions_inside_and_outside_of_a_range(text: str, inside: list[str], outside: list[str]) -> None:
    """Versions have Maven's order: numbers by value, pre-releases before their release."""
    wanted = VersionRange.parse(text)
    assert [each for each in inside if not wanted.contains(each)] == []
    assert [each for each in outside if wanted.contains(each)] == []


@pytest.mark.parametrize(
    ("text", "shown"), [("9.9", "[9.9,9.9]"), ("[9,)", "[9,)"), ("", "[,]"), ("(,1],[2]", "(,1],[2,2]")]
)
def test_a_range_is_shown_as_connect_shows_it(text: str, shown: str) -> None:
    """The text of a range is that of Kafka Connect's errors."""
    assert str(VersionRange.parse(text)) == shown


@pytest.mark.parametrize("text", ["[", "[1,2", "1,2", "[1,2,3]", "[1]x", "]1["])
def test_an_invalid_range_is_refused(text: str) -> None:
    """Kafka Connect answers 400."""
    with pytest.raises(InvalidVersionSpecification):
        VersionRange.parse(text)
