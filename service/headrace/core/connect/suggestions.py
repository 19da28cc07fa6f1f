"""Suggestions for the name of an unknown option."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_COMPARED = 200
"""The characters of a name that are compared: the time grows with the square of the length."""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return a sentence that names the closest known options, or refers to the documentation."""
    name = name[:_COMPARED]
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(key) for key in close)}?"
    return "See docs/configuration.md for the list."
