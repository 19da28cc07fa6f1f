"""The description of a class of transforms or predicates: its name, its options, and how to create an instance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from headrace.core.connect import typed_options
from headrace.core.connect.config_def import REQUIRED, ConfigDef, ConfigKey, Importance, InvalidValue, Type, regex
from headrace.transforms.record import Side

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
Values = Mapping[str, Any]
Make = Callable[[Values], Any]
"""Creates a transform or predicate. Raises ValueError, with Connect's message, for contradictory values."""

Varies = Callable[[Values], "str | None"]
"""Returns what of a record decides its result, in words; None if all records of a topic and a schema are alike."""

REPLACE_NULL = "replace.null.with.default"


def alike(_values: Values) -> None:
    """Declare that topic, schemas and options alone decide which fields, key and topic the records get."""
    return


def without_declaration(_values: Values) -> str:
    """The declaration of a class without one."""
    return "its class does not declare that it treats all records of a topic alike"


@dataclass(frozen=True, slots=True)
class PluginClass:
    """A class of transforms or predicates.

    ``merges`` is whether it merges several source tables, with keys that are unique across them. ``keeps_cells`` is
    whether it does not change the values of rows. ``varies`` declares whether values, headers or the timestamp of a
    record decide that it is dropped, where it is routed, or which of its cells are copied. If not, ``headrace verify``
    finds out with a few synthetic records what the class does with all of them (``column_probe.py``). That a record has
    no value, as tombstones, does not count.
    """

    class_name: str
    options: ConfigDef
    make: Make
    merges: bool = False
    keeps_cells: bool = False
    varies: Varies = without_declaration

    @property
    def simple_name(self) -> str:
        return self.class_name.rpartition(".")[2]


class PluginClasses(Protocol):
    """What an entry point of ``headrace.transforms`` or ``headrace.predicates`` names."""

    def __call__(self) -> Iterable[PluginClass]:
        """Return the classes of the package."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The options of every transform that select the records which it applies to."""

    predicate: str | None = typed_options.option(
        "predicate",
        Type.STRING,
        None,
        "Alias of the predicate that selects the records which the transform applies to.",
    )
    negate: bool = typed_options.option(
        "negate", Type.BOOLEAN, False, "Whether the transform applies to the other records instead."
    )


def option(
    name: str,
    option_type: Type = Type.STRING,
    default: Any = None,
    doc: str = "",
    importance: Importance = MEDIUM,
    validator: Callable[[str, Any], None] | None = None,
) -> ConfigKey:
    return ConfigKey(name, option_type, default, importance, doc, validator=validator)


def required(name: str, option_type: Type, doc: str, importance: Importance = HIGH, validator: Any = None) -> ConfigKey:
    return option(name, option_type, REQUIRED, doc, importance, validator)


def replace_null() -> ConfigKey:
    """The option that most of Kafka's transforms have."""
    return option(
        REPLACE_NULL,
        Type.BOOLEAN,
        "true",
        "Whether a null becomes the default of its field. Set it to false: with true, a table differs from its source "
        "where a column has a default and its value is null.",
    )


def sides(
    class_name: str, options: ConfigDef, make: Callable[[Side, Values], Any], varies: Varies
) -> Iterator[PluginClass]:
    """Return the two classes of a transform, for keys and for values."""
    for side in Side:
        yield PluginClass(f"{class_name}${side}", options, partial(make, side), varies=varies)


def a_regex(name: str, value: Any) -> None:
    """Validate a required regular expression, with Java's message."""
    if value is None:
        raise InvalidValue(
            f"Invalid value null for configuration {name}: Invalid regex: "
            'Cannot invoke "String.isEmpty()" because "this.pattern" is null'
        )
    regex(name, value)


def not_empty_list(name: str, value: Any) -> None:
    """Validate a list with at least one entry, without empty entries and duplicates."""
    if not value:
        raise InvalidValue(f"Configuration '{name}' must not be empty. Valid values include: any non-empty value")
    if len(set(value)) != len(value):
        raise InvalidValue(f"Configuration '{name}' values must not be duplicated.")
    if not all(value):
        raise InvalidValue(f"Configuration '{name}' values must not be empty.")


def word(*choices: str) -> Callable[[str, Any], None]:
    """Validate one of a few strings; the case counts."""

    def check(name: str, value: Any) -> None:
        if value not in choices:
            shown = "null" if value is None else value
            raise InvalidValue(
                f"Invalid value {shown} for configuration {name}: String must be one of: {', '.join(choices)}"
            )

    return check
