"""Suggestions for the name of an unknown option."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_COMPARED = 200
"""The characters of a name that are compared: the time grows with the square of the length."""

_SHARED = re.compile(r"(Converter|Transform(ation)?|\$(Key|Value))$")
"""Ends of the names of classes that a user leaves out or guesses."""


_SEE = "See docs/configuration.md for the list."


def suggestion(name: str, known: Iterable[str], otherwise: str = _SEE) -> str:
    """Return a sentence that names the closest known options, or ``otherwise`` if none is similar."""
    name = name[:_COMPARED]
    close = difflib.get_close_matches(name, list(known), n=2, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(key) for key in close)}?"
    return otherwise


def class_suggestion(name: str, known: Iterable[str]) -> str:
    """Return sentences that name the closest known classes, and all of them.

    Classes are compared by their simple names, because a wrong package is as common as a wrong name, and without the
    words that many of them share. A name with a package gets the closest classes with theirs.
    """
    name, simple_names = name[:_COMPARED], {full: full.rpartition(".")[2] for full in known}
    given = name.rpartition(".")[2]
    words = {_SHARED.sub("", simple).lower(): simple for simple in simple_names.values()}
    matches = difflib.get_close_matches(_SHARED.sub("", given).lower(), list(words), n=2, cutoff=0.6)
    close = [words[match] for match in matches]
    close = close or difflib.get_close_matches(given, list(words.values()), n=1, cutoff=0.85)  # a shared word misspelt
    if "." in name:
        close = [full for simple in close for full, own in simple_names.items() if own == simple]
        close = difflib.get_close_matches(name, close, n=2, cutoff=0.0)
    meant = f"Did you mean {' or '.join(repr(each) for each in close)}? " if close else ""
    return f"{meant}The classes are: {', '.join(dict.fromkeys(simple_names.values()))}."
