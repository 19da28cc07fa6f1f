"""References to config providers in option values: ``${provider:[path:]key}`` (KIP-297, ``connect.md`` section 10)."""

from __future__ import annotations

import re
from collections.abc import Callable

_REFERENCE = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")  # as Kafka's ConfigTransformer has it

Lookup = Callable[[str, str, str], str | None]
"""Value of (provider, path, key); None where nobody knows it. May raise ConfigError."""


def has_references(value: str) -> bool:
    """Whether a value may refer to config providers."""
    return _REFERENCE.search(value) is not None


def replace_references(value: str, lookup: Lookup) -> str:
    """The value with its references resolved; one that nobody knows stays as it is."""

    def found(reference: re.Match[str]) -> str:
        resolved = lookup(reference[1], reference[2] or "", reference[3])
        return reference[0] if resolved is None else resolved

    return _REFERENCE.sub(found, value)
