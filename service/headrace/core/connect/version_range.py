"""Ranges of plugin versions in Maven's syntax, for ``connector.plugin.version`` and ``?version=`` (KIP-891).

``[4,5)`` and ``(,2.0],[3,)`` are ranges. A single version means exactly this version. The caller handles ``latest``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

Key = tuple[tuple[int, int | str], ...]

_PART = re.compile(r"([\[(])\s*([^\[\](),]*?)\s*(?:(,)\s*([^\[\](),]*?)\s*)?([\])])")
_QUALIFIERS = ("alpha", "beta", "milestone", "rc", "cr", "snapshot")
_RELEASED = ("", "final", "ga", "release")
_EARLY, _RELEASE, _NUMBER = 0, 1, 2


class InvalidVersionSpecification(ValueError):
    """The text is not a version range."""


@dataclass(frozen=True, slots=True)
class _Interval:
    lower: str
    upper: str
    with_lower: bool
    with_upper: bool

    def __str__(self) -> str:
        return f"{'[' if self.with_lower else '('}{self.lower},{self.upper}{']' if self.with_upper else ')'}"

    def contains(self, version: Key) -> bool:
        above = not self.lower or version > _key(self.lower) or (self.with_lower and version == _key(self.lower))
        below = not self.upper or version < _key(self.upper) or (self.with_upper and version == _key(self.upper))
        return above and below


@dataclass(frozen=True, slots=True)
class VersionRange:
    """A union of intervals."""

    intervals: tuple[_Interval, ...]

    @classmethod
    def parse(cls, text: str) -> VersionRange:
        """Parse a range or a version. Raises InvalidVersionSpecification."""
        text = text.strip()
        if not text or text[0] not in "[(":
            if re.search(r"[\[\](),]", text):
                raise InvalidVersionSpecification(text)
            return cls((_Interval(text, text, True, True),))
        intervals, at = [], 0
        while at < len(text):
            part = _PART.match(text, at)
            if part is None:
                raise InvalidVersionSpecification(text)
            opening, lower, comma, upper, closing = part.groups()
            intervals.append(_Interval(lower, upper if comma else lower, opening == "[", closing == "]"))
            at = part.end() + (part.end() < len(text) and text[part.end()] == ",")
        return cls(tuple(intervals))

    def __str__(self) -> str:
        return ",".join(map(str, self.intervals))

    def contains(self, version: str) -> bool:
        """Return whether the range contains ``version``. The range of an empty text contains none."""
        if self.intervals == (_Interval("", "", True, True),):
            return False
        return any(interval.contains(_key(version)) for interval in self.intervals)


def _key(version: str) -> Key:
    """Return a sort key: numbers sort as numbers, trailing zeros do not count, ``rc`` etc. precede the release."""
    parts: list[tuple[int, int | str]] = []
    for token in [*re.findall(r"\d+|[a-z]+", version.lower()), ""]:
        if token.isdecimal():
            parts.append((_NUMBER, int(token)))
            continue
        while parts and parts[-1] == (_NUMBER, 0):
            parts.pop()
        if token in _QUALIFIERS:
            parts.append((_EARLY, str(_QUALIFIERS.index(token))))
        elif token not in _RELEASED:
            parts.append((_RELEASE, token))
    return (*parts, (_RELEASE, ""))
