r"""Java's regular expressions in Python's spelling.

``re`` reads most of Java's syntax in the same way. Named groups have another spelling. ``re`` has no ``\Q..\E``,
``\p{..}`` or sets of characters within sets; it reads some of these as other characters, without an error.

``re`` tries the ways to match a text one by one. A pattern such as ``(a+)+`` matches one text in exponentially many
ways, and a worker that tries them all answers no requests. ``check_cost`` searches the loops of a pattern for two ways
to match the same text. Within a loop, the number of ways is exponential; in a chain of loops (``.*a.*b.*``) it is a
power of the text's length. The method is that of Weideman et al., "Analyzing Matching Time Behavior of Backtracking
Regular Expression Matchers".
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

_TOKEN = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\\\]])*|\(\?<(?![=!])", re.DOTALL)
"""An escape, a set of characters up to its end, the beginning of a named group."""
_ESCAPE = re.compile(r"\\.", re.DOTALL)
_ONLY_JAVA = frozenset("QEpPhHvVRXGkzZ0")
"""Letters of escapes."""


class OnlyJava(ValueError):
    """A pattern that Python cannot read, or reads differently from Java."""


def python_pattern(pattern: str) -> str:
    """Return ``pattern`` as Python spells it. Raises OnlyJava for syntax that only Java has."""
    return _TOKEN.sub(_spelled, pattern)


def _spelled(token: re.Match[str]) -> str:
    text = token[0]
    if text == "(?<":
        return "(?P<"
    members = _ESCAPE.sub("", text[1:]) if text[0] == "[" else ""
    if _ONLY_JAVA & {escape[1] for escape in _ESCAPE.findall(text)} or "[" in members or "&&" in members:
        raise OnlyJava(r"only Java has \Q..\E, \p{..}, \0 and sets within sets ([a[b]], &&); write the pattern without")
    return text


_parser: Any = importlib.import_module("re._parser")  # the standard library's own parser, which has no public name
_ALPHABET = 257
"""Latin characters, and one for all others."""
_ALL = (1 << _ALPHABET) - 1
_COPIES = 64
"""Up to so many positions ``{n}`` is written out; more, and ``{m,n}``, count as a loop."""
MAX_LENGTH = 20_000
"""Characters of a pattern."""
_MAX_CHAIN = 4
"""Loops in a row that may share a text: the time grows with this power of its length."""
_MAX_STEPS = 200_000
_IGNORES_CASE = re.compile(r"\(\?[a-zA-Z]*i")


class TooCostly(ValueError):
    """The pattern may take very long; the message is the reason."""


def check_cost(pattern: str, flags: int = 0) -> None:
    """Raise TooCostly for a pattern that may take very long for some text, ``re.error`` for an invalid pattern."""
    if len(pattern) > MAX_LENGTH:
        raise TooCostly(f"it is longer than {MAX_LENGTH} characters")
    try:
        parsed = _parser.parse(pattern, flags)
        builder = _Builder(bool(flags & re.IGNORECASE) or _IGNORES_CASE.search(pattern) is not None)
        builder.sequence(parsed)
    except RecursionError as error:
        raise TooCostly("its groups are nested too deeply") from error
    builder.check()


@dataclass(slots=True)
class _Part:
    """A part of the pattern: the positions with which its texts begin and end, and whether it matches nothing."""

    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    empty: bool = True


class _Builder:
    """Glushkov's automaton of a pattern: a state for each position, its characters, and what may follow."""

    def __init__(self, folds_case: bool) -> None:
        self._folds_case = folds_case
        self._characters: list[int] = []
        self._follow: list[list[int]] = []
        self._loop_of: dict[int, int] = {}
        self._loops = 0
        self._empty_twice = -1
        """The newest position count at which a part was seen that matches nothing in two ways."""

    def sequence(self, items: Iterable[tuple[Any, Any]]) -> _Part:
        """Parts one after the other."""
        whole = _Part()
        for operator, argument in items:
            whole = self._then(whole, self._part(str(operator), argument))
        return whole

    def _then(self, before: _Part, after: _Part) -> _Part:
        self._connect(before.last, after.first)
        return _Part(
            before.first + after.first if before.empty else before.first,
            before.last + after.last if after.empty else after.last,
            before.empty and after.empty,
        )

    def _connect(self, ends: Sequence[int], starts: Sequence[int]) -> None:
        for end in ends:
            self._follow[end].extend(starts)

    def _part(self, operator: str, argument: Any) -> _Part:
        if operator in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            return self._position(_characters(operator, argument, self._folds_case))
        if operator == "BRANCH":
            return self._branches([self.sequence(branch) for branch in argument[1]])
        if operator == "SUBPATTERN":
            return self.sequence(argument[3])
        if operator == "ATOMIC_GROUP":
            return self.sequence(argument)
        if operator in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            return self._repeat(*argument)
        if operator in ("ASSERT", "ASSERT_NOT"):
            self.sequence(argument[1])  # searched for by itself, at the same place
            return _Part()
        if operator in ("GROUPREF", "GROUPREF_EXISTS"):
            raise TooCostly("references to groups are not supported")
        return _Part()

    def _position(self, characters: int) -> _Part:
        self._characters.append(characters)
        self._follow.append([])
        number = len(self._characters) - 1
        return _Part([number], [number], False)

    def _branches(self, parts: Sequence[_Part]) -> _Part:
        if sum(part.empty for part in parts) > 1:
            self._empty_twice = len(self._characters)
        return _Part(
            [position for part in parts for position in part.first],
            [position for part in parts for position in part.last],
            any(part.empty for part in parts),
        )

    def _repeat(self, least: int, most: Any, items: Sequence[tuple[Any, Any]]) -> _Part:
        began = len(self._characters)
        part = self.sequence(items)
        size = len(self._characters) - began
        if part.empty and most != 1:
            self._empty_twice = len(self._characters)
        if least == most and size * most <= _COPIES:
            for _ in range(1, most):
                part = self._then(part, self.sequence(items))
        elif most != 1:
            self._loop(part, began)
        if least == 0:
            self._empty_twice = len(self._characters) if part.empty else self._empty_twice
            part = _Part(part.first, part.last, True)
        return part

    def _loop(self, part: _Part, began: int) -> None:
        if self._empty_twice > began:
            raise TooCostly("a repeated part matches the empty text in two ways")
        self._connect(part.last, part.first)
        self._loops += 1
        self._loop_of.update(dict.fromkeys(range(began, len(self._characters)), self._loops))

    def check(self) -> None:
        """Raise TooCostly where two ways through the automaton read the same text too often."""
        self._steps = 0
        loops: dict[int, list[int]] = {}
        for position, loop in self._loop_of.items():
            loops.setdefault(loop, []).append(position)
        longest: dict[int, int] = {}
        for loop in sorted(loops, reverse=True):
            reached = self._reached_beside(loop, loops[loop])
            longest[loop] = 1 + max((longest[other] for other in reached if other > loop), default=0)
        if max(longest.values(), default=0) > _MAX_CHAIN:
            raise TooCostly(f"more than {_MAX_CHAIN} repeated parts in a row may match the same text")

    def _reached_beside(self, loop: int, positions: Sequence[int]) -> set[int]:
        """The loops that a second way enters while a first one stays in ``loop``, both reading the same text."""
        for position in positions:
            within = [other for other in self._follow[position] if self._loop_of.get(other) == loop]
            if len(set(within)) < len(within):
                raise TooCostly("a repeated part matches the same text in several ways")
        start = {(position, position) for position in positions}
        seen, meeting = self._pairs(start, loop)
        if any(first != second for first, second in meeting):
            raise TooCostly("a repeated part matches the same text in several ways")
        return {self._loop_of[second] for _, second in seen if second in self._loop_of}

    def _pairs(self, start: set[tuple[int, int]], loop: int) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
        """Pairs of positions that one text reaches, and those of them from which both ways meet in the loop again."""
        seen, waiting = set(start), list(start)
        before: dict[tuple[int, int], list[tuple[int, int]]] = {}
        while waiting:
            pair = waiting.pop()
            for after in self._next(pair, loop):
                if pair[0] != pair[1] or after[0] != after[1]:
                    before.setdefault(after, []).append(pair)
                if after not in seen:
                    seen.add(after)
                    waiting.append(after)
        meeting = {pair for pair in start if pair in before}
        waiting = list(meeting)
        while waiting:
            for pair in before.get(waiting.pop(), ()):
                if pair not in meeting and pair[0] != pair[1]:
                    meeting.add(pair)
                    waiting.append(pair)
        return seen, meeting

    def _next(self, pair: tuple[int, int], loop: int) -> Iterator[tuple[int, int]]:
        for first in self._follow[pair[0]]:
            if self._loop_of.get(first) != loop:
                continue
            for second in self._follow[pair[1]]:
                self._steps += 1
                if self._steps > _MAX_STEPS:
                    raise TooCostly("it has too many repeated parts to analyze")
                if self._characters[first] & self._characters[second]:
                    yield first, second


def _characters(operator: str, argument: Any, folds_case: bool) -> int:
    """The characters of a position as bits."""
    if operator == "ANY":
        return _ALL
    items = [("LITERAL", argument)] if operator != "IN" else [(str(kind), value) for kind, value in argument]
    characters, negated = 0, operator == "NOT_LITERAL"
    for kind, value in items:
        if kind == "NEGATE":
            negated = True
        elif kind == "CATEGORY":
            characters |= _category(str(value))
        else:
            low, high = (value, value) if kind == "LITERAL" else value
            for code in range(min(low, _ALPHABET - 1), min(high, _ALPHABET - 1) + 1):
                characters |= 1 << code
                if folds_case and code < _ALPHABET - 1:
                    for other in (chr(code).lower(), chr(code).upper()):
                        characters |= 1 << min(ord(other[0]), _ALPHABET - 1)
    return _ALL & ~characters | 1 << (_ALPHABET - 1) if negated else characters


def _category(name: str) -> int:
    """``\\d``, ``\\w`` and ``\\s``, and their complements; each contains all characters that are not Latin."""
    kind = {"DIGIT": r"\d", "WORD": r"\w", "SPACE": r"\s"}[name.rpartition("_")[2]]
    matches = re.compile(kind).match
    inside = sum(1 << code for code in range(_ALPHABET - 1) if matches(chr(code)))
    chosen = _ALL & ~inside if "_NOT_" in name else inside
    return chosen | 1 << (_ALPHABET - 1)
