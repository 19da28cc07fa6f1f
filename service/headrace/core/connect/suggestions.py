"""What somebody may have meant who wrote a name that nobody knows."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_COMPARED = 200
"""Characters of a name: comparing takes the square of its length."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence that names the closest known options, or points to the documentation."""
    name = name[:_COMPARED]
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(key) for key in close)}?"
    return "See docs/configuration.md for the list."
