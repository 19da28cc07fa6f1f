"""Groups of options as frozen dataclasses, whose fields are the declarations of the options.

    @dataclass(frozen=True, slots=True)
    class BatchOptions:
        linger: float = option("batch.linger.ms", Type.LONG, 1000, "Longest time ...", read=seconds)

The field is what the code uses, in the code's unit. The same declaration gives the default (``BatchOptions().linger``),
the definition that checks a configuration (``definition``), and its parsing (``parse_options``). ``headrace.config``
makes the documentation, the answers of the REST API and the chart's schema from the definitions.

Tests: ``tests/unit/config/test_one_declaration.py``, ``tests/unit/config/test_hostile_options.py``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

from headrace.core.connect.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    InvalidValue,
    Type,
    Validator,
    Width,
    parse,
)
from headrace.core.model.errors import ConfigError

_COMPARED = 200
"""The characters of a name that are compared: the time grows with the square of the length."""

_SHARED = re.compile(r"(Converter|Transform(ation)?|\$(Key|Value))$")
"""Ends of the names of classes that a user leaves out or guesses."""


_SEE = "See docs/configuration.md for the list."


def suggestion(name: str, options: Iterable[str], otherwise: str = _SEE) -> str:
    """Return a sentence that names the closest options, or ``otherwise`` if none is similar."""
    name = name[:_COMPARED]
    close = difflib.get_close_matches(name, list(options), n=2, cutoff=0.6)
    if close:
        return f"Did you mean {' or '.join(repr(key) for key in close)}?"
    return otherwise


def class_suggestion(name: str, classes: Iterable[str]) -> str:
    """Return sentences that name the closest classes, and all of them.

    Classes are compared by their simple names, because a wrong package is as common as a wrong name, and without the
    words that many of them share. A name with a package gets the closest classes with theirs.
    """
    name, simple_names = name[:_COMPARED], {full: full.rpartition(".")[2] for full in classes}
    given = name.rpartition(".")[2]
    words = {_SHARED.sub("", simple).lower(): simple for simple in simple_names.values()}
    matches = difflib.get_close_matches(_SHARED.sub("", given).lower(), list(words), n=2, cutoff=0.6)
    close = [words[match] for match in matches]
    close = close or difflib.get_close_matches(given, list(words.values()), n=1, cutoff=0.85)  # a shared word misspelt
    if "." in name:
        close = [full for simple in close for full, other in simple_names.items() if other == simple]
        close = difflib.get_close_matches(name, close, n=2, cutoff=0.0)
    meant = f"Did you mean {' or '.join(repr(full) for full in close)}? " if close else ""
    return f"{meant}The classes are: {', '.join(dict.fromkeys(simple_names.values()))}."


Group = TypeVar("Group")
Properties = Mapping[str, str | None]
Read = Callable[[Any], Any]
"""Converts a value from its type to what the code uses. None, for an option without a value, stays None."""

_OPTION, _PREFIX, _GROUP = "option", "prefix", "group"
_WIDTHS = {
    Type.BOOLEAN: Width.SHORT,
    Type.INT: Width.SHORT,
    Type.SHORT: Width.SHORT,
    Type.LIST: Width.LONG,
    Type.CLASS: Width.LONG,
}


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the form of a console shows an option."""

    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str | None = None


_ANYWHERE = Layout()


@dataclass(frozen=True, slots=True)
class _Declaration:
    """What the field of an option carries."""

    key: ConfigKey
    read: Read | None

    def convert(self, value: Any) -> Any:
        if isinstance(value, list):
            value = tuple(value)
        return value if value is None or self.read is None else self.read(value)

    def value(self, properties: Properties, prefix: str) -> Any:
        """Return the value for the code, the default if none is given. Raises ConfigError with Kafka's message."""
        key = replace(self.key, name=prefix + self.key.name) if prefix else self.key
        name, validator = key.name, key.validator
        raw = properties.get(name, key.default_text)
        if raw is None and key.required:
            raise ConfigError(f'Missing required configuration "{name}" which has no default value.', name)
        try:
            value = parse(key, raw)
            if value is not None and validator is not None:
                validator(name, value)
        except InvalidValue as error:
            raise ConfigError(str(error), name) from error
        return self.convert(value)


def option(
    name: str,
    type: Type,
    default: Any,
    doc: str,
    importance: Importance = Importance.MEDIUM,
    validator: Validator | None = None,
    *,
    read: Read | None = None,
    layout: Layout = _ANYWHERE,
) -> Any:
    """Declare an option as a field of a group.

    ``default`` is a value of ``type``, as a configuration contains it; None is no value, and REQUIRED is no default.
    ``read`` converts the default as it converts a given value.
    """
    place = (layout.group, layout.order, layout.width, layout.display_name)
    shown = default
    if isinstance(default, bool):
        shown = str(default).lower()
    elif default is not None and default is not REQUIRED:
        shown = ",".join(default) if isinstance(default, tuple) else str(default)
    declared = _Declaration(ConfigKey(name, type, shown, importance, doc, *place, validator), read)
    metadata, visible = {_OPTION: declared}, type is not Type.PASSWORD
    if default is REQUIRED:
        return field(metadata=metadata, repr=visible)
    return field(
        default=declared.convert(parse(declared.key, declared.key.default_text)), metadata=metadata, repr=visible
    )


def options_below(*prefixes: str) -> Any:
    """Declare a field for the keys below ``prefixes``, without the prefix; of a key below several the last counts."""
    return field(default_factory=dict, metadata={_PREFIX: prefixes}, repr=False)


def option_group(group: type[Any], prefix: str = "") -> Any:
    """Declare a field that is another group, whose options have a ``prefix`` here."""
    return field(default_factory=group, metadata={_GROUP: (group, prefix)})


def definition(group: type[Any]) -> ConfigDef:
    """Return the options of a group, in the order of its fields."""
    return ConfigDef(tuple(_keys(group)))


def section(title: str, keys: Iterable[ConfigKey]) -> ConfigDef:
    """Return options as the section ``title`` of the forms of consoles.

    They are numbered from 1, with widths by type and display names made from their names.
    """
    return ConfigDef(
        tuple(
            replace(
                key,
                group=title,
                order=order,
                width=_WIDTHS.get(key.type, Width.MEDIUM),
                display_name=key.name.replace(".", " ").capitalize(),
            )
            for order, key in enumerate(keys, start=1)
        )
    )


def _keys(group: type[Any]) -> Iterator[ConfigKey]:
    for item in fields(group):
        if _GROUP in item.metadata:
            inner, prefix = item.metadata[_GROUP]
            yield from (replace(key, name=prefix + key.name) for key in _keys(inner))
        elif _OPTION in item.metadata:
            yield item.metadata[_OPTION].key


def parse_options(group: type[Group], properties: Properties, prefix: str = "") -> Group:
    """Return a group with the values of ``properties``, and with defaults. Raises ConfigError that names the option.

    Keys of other groups are ignored. ``prefix`` stands before the names of the group's options.
    """
    values: dict[str, Any] = {}
    for item in fields(group):  # type: ignore[arg-type] # a dataclass
        if _GROUP in item.metadata:
            inner, further = item.metadata[_GROUP]
            values[item.name] = parse_options(inner, properties, prefix + further)
        elif _PREFIX in item.metadata:
            values[item.name] = below(properties, *(prefix + before for before in item.metadata[_PREFIX]))
        elif _OPTION in item.metadata:
            values[item.name] = item.metadata[_OPTION].value(properties, prefix)
    return group(**values)


def below(properties: Properties, *prefixes: str) -> dict[str, str]:
    """Return the keys below ``prefixes`` that have a value, without the prefix."""
    return {
        name[len(prefix) :]: value
        for prefix in prefixes
        for name, value in properties.items()
        if name.startswith(prefix) and value is not None
    }


def seconds(milliseconds: int) -> float:
    return milliseconds / 1000


def microseconds(milliseconds: int) -> int:
    return milliseconds * 1000


def equal_to(word: str) -> Read:
    """Read an option of two words as whether it is ``word``."""
    return lambda value: bool(value == word)
