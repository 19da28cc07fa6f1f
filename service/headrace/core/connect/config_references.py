"""References to config providers in option values: ``${provider:[path:]key}`` (KIP-297, ``connect.md`` section 10)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")  # the pattern of Kafka's ConfigTransformer

Lookup = Callable[[str, str, str], str | None]
"""Returns the value of (provider, path, key), or None if no provider has it. May raise ConfigError."""


def replace_references(value: str, lookup: Lookup) -> str:
    """Replace the references of a value; a reference without a value is kept."""

    def found(reference: re.Match[str]) -> str:
        resolved = lookup(reference[1], reference[2] or "", reference[3])
        return reference[0] if resolved is None else resolved

    return _REFERENCE.sub(found, value)


def references(value: str) -> Iterator[tuple[str, str, str]]:
    """Yield provider, path and key of each reference of a value."""
    for reference in _REFERENCE.finditer(value):
        yield reference[1], reference[2] or "", reference[3]
