"""Java's regular expressions and replacement texts."""

from __future__ import annotations

import re

from headrace.core.connect.java_patterns import python_pattern


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of Java's. Raises OnlyJava, or ``re.error`` for an invalid one."""
    return re.compile(python_pattern(pattern))


def replaced(pattern: re.Pattern[str], replacement: str, text: str) -> str | None:
    """``text`` with the first match replaced, None if the pattern does not match the whole of it.

    As Java's routers do: ``matches()``, and then ``replaceFirst()``, which searches anew.
    """
    if pattern.fullmatch(text) is None:
        return None
    return pattern.sub(lambda match: _expanded(match, replacement), text, count=1)


def _expanded(match: re.Match[str], replacement: str) -> str:
    """Java's replacement: ``$1``, ``${name}``, and a backslash before what stands for itself."""
    out, place = [], 0
    while place < len(replacement):
        letter = replacement[place]
        if letter == "\\" and place + 1 < len(replacement):
            out.append(replacement[place + 1])
            place += 2
        elif letter == "$":
            group, place = _group(match, replacement, place + 1)
            out.append(match[group] or "")
        else:
            out.append(letter)
            place += 1
    return "".join(out)


def _group(match: re.Match[str], replacement: str, place: int) -> tuple[int | str, int]:
    """The group that is named at ``place``: as many digits as there are groups. Raises IndexError for no such group."""
    if replacement.startswith("{", place):
        end = replacement.index("}", place)
        return replacement[place + 1 : end], end + 1
    number, end = int(replacement[place]), place + 1
    while end < len(replacement) and replacement[end].isdigit():
        longer = number * 10 + int(replacement[end])
        if longer > match.re.groups:
            break
        number, end = longer, end + 1
    return number, end


def check_replacement(pattern: re.Pattern[str], replacement: str) -> str | None:
    """What is wrong with a replacement, or None."""
    try:
        places = re.findall(r"(?<!\\)\$(\d|\{[^}]*\})?", replacement)
        for place in places:
            if not place:
                return "Illegal group reference"
            if place.isdigit() and int(place) > pattern.groups:
                return f"No group {place}"
            if not place.isdigit() and place[1:-1] not in pattern.groupindex:
                return f"No group with name {place}"
    except ValueError:
        return "Illegal group reference"
    return None
