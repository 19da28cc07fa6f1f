"""The texts of a configuration, before they are parsed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

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
