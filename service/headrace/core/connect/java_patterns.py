r"""Java's regular expressions in Python's spelling.

``re`` reads most of Java's syntax in the same way. Named groups have another spelling. ``re`` has no ``\Q..\E``,
``\p{..}`` or sets of characters within sets; it reads some of these as other characters, without an error.
"""

from __future__ import annotations

import re

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
