"""Values of the records that ``column_probe.py`` sends through transforms: each is an object of its own.

They are instances of subclasses of ``int``, ``str`` etc.: a conversion to one of these makes another object, also one
that leaves the value as it is. Tests: ``tests/unit/transforms/test_column_probe.py``.
"""

from __future__ import annotations

from typing import Any

from headrace.core.model.schema import Schema

_ZONED_TIMES = {
    "io.debezium.time.ZonedTimestamp": "2000-01-01T00:00:00Z",
    "io.debezium.time.ZonedTime": "00:00:00Z",
}


class _Integer(int):
    """An object of its own, as the next classes: Python has one object for equal small integers and short texts."""


class _Real(float):
    pass


class Text(str):
    """A text that is an object of its own."""

    __slots__ = ()


class _Binary(bytes):
    pass


class _Items(list[Any]):
    pass


class _Members(dict[str, Any]):
    pass


def sample(schema: Schema) -> Any:
    """Return a valid value of a type, which is identical with no other object."""
    if schema.type == "string":
        return Text(_ZONED_TIMES.get(schema.name or "", ""))
    if schema.type == "bytes":
        return _Binary(b"\0")
    if schema.type in ("float", "double"):
        return _Real()
    if schema.type == "struct":
        return _Members({member.name: sample(member.schema) for member in schema.fields})
    if schema.type == "map" and schema.keys is not None and schema.keys.type == "string":
        return _Members()
    return _Items() if schema.type in ("array", "map") else _Integer()


_DEFAULTS = {"boolean": False, "string": "", "bytes": "", "float": 0.0, "double": 0.0, "array": [], "struct": None}


def default(schema: Schema) -> Any:
    """Return a default of a type, in the form of JsonConverter; None for structs, whose columns have none."""
    if schema.type == "map":
        return {} if schema.keys is not None and schema.keys.type == "string" else []
    return _ZONED_TIMES.get(schema.name or "", _DEFAULTS.get(schema.type, 0))
