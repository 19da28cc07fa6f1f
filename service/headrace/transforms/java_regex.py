"""Java's regular expressions and replacements, as far as Python has equivalents (``reselect.md`` section 3.3)."""

from __future__ import annotations

import re

from headrace.core.connect.java_patterns import python_pattern


def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern of Java's. Raises OnlyJava, or ``re.error`` for an invalid one."""
    return re.compile(python_pattern(pattern))


def replaced(pattern: re.Pattern[str], replacement: str, text: str) -> str | None:
    """Return ``text`` with the first match replaced, None if the pattern does not match the complete text.

    Java's routers do the same: ``matches()``, then ``replaceFirst()``, which searches again.
    """
    if pattern.fullmatch(text) is None:
        return None
    return pattern.sub(lambda match: _expanded(match, replacement), text, count=1)


def _expanded(match: re.Match[str], replacement: str) -> str:
    """Expand Java's replacement: ``$1``, ``${name}``, and a backslash before a literal character."""
    out, index = [], 0
    while index < len(replacement):
        letter = replacement[index]
        if letter == "\\" and index + 1 < len(replacement):
            out.append(replacement[index + 1])
            index += 2
        elif letter == "$":
            group, index = _group(match, replacement, index + 1)
            out.append(match[group] or "")
        else:
            out.append(letter)
            index += 1
    return "".join(out)


def _group(match: re.Match[str], replacement: str, index: int) -> tuple[int | str, int]:
    """Return the group at ``index`` and where it ends: digits count while such a group exists. Raises IndexError."""
    if replacement.startswith("{", index):
        end = replacement.index("}", index)
        return replacement[index + 1 : end], end + 1
    number, end = int(replacement[index]), index + 1
    while end < len(replacement) and replacement[end].isdigit():
        longer = number * 10 + int(replacement[end])
        if longer > match.re.groups:
            break
        number, end = longer, end + 1
    return number, end


def check_replacement(pattern: re.Pattern[str], replacement: str) -> str | None:
    """Return the problem of a replacement, or None."""
    try:
        references = re.findall(r"(?<!\\)\$(\d|\{[^}]*\})?", replacement)
        for reference in references:
            if not reference:
                return "Illegal group reference"
            if reference.isdigit() and int(reference) > pattern.groups:
                return f"No group {reference}"
            if not reference.isdigit() and reference[1:-1] not in pattern.groupindex:
                return f"No group with name {reference}"
    except ValueError:
        return "Illegal group reference"
    return None
