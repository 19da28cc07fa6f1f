"""Typed access to parsed options, with the getters of Kafka's ``AbstractConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from headrace.core.connect.config_def import trim

Value = TypeVar("Value", str, str | None)

_AS_GIVEN = ("spark.", "table.properties.")


def trimmed(properties: Mapping[str, Value]) -> dict[str, Value]:
    """The values without blanks around them, as Kafka's parser reads them.

    What Spark or a table format gets is theirs to read, and stays as it is.
    """
    return {
        name: value if value is None or name.startswith(_AS_GIVEN) else trim(value)
        for name, value in properties.items()
    }


class AbstractConfig:
    """Parsed values by option name. Asking for an option that is not in the list is a KeyError: a bug, not a user's.

    ``originals`` are the texts of all options, ``trimmed``.
    """

    __slots__ = ("_values", "originals")

    def __init__(self, originals: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self.originals = trimmed(originals)
        self._values = dict(values)

    def get_string(self, name: str) -> str:
        """A text; an absent one is empty."""
        value = self._values[name]
        return "" if value is None else str(value)

    def get_password(self, name: str) -> str | None:
        """A secret, or None. Never log it."""
        value = self._values[name]
        return None if value is None else str(value)

    def get_int(self, name: str) -> int:
        """A whole number; raises TypeError if it has no value."""
        return int(self._values[name])

    def get_optional_int(self, name: str) -> int | None:
        """A whole number, or None where none is set."""
        value = self._values[name]
        return None if value is None else int(value)

    def get_boolean(self, name: str) -> bool:
        """A switch."""
        return bool(self._values[name])

    def get_list(self, name: str) -> list[str]:
        """The entries of a list."""
        return list(self._values[name] or ())

    def originals_with_prefix(self, prefix: str) -> dict[str, str]:
        """What was given under ``prefix``, without it."""
        return {name[len(prefix) :]: value for name, value in self.originals.items() if name.startswith(prefix)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(sorted(self.originals))})"
