"""Definitions of options: Kafka's ``ConfigDef`` and ``ConfigDef.Validator`` as plain values, with Kafka's messages.

Tests: ``tests/unit/config/test_validation.py``, ``tests/rest/test_transcript.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from headrace.core.connect.java_patterns import OnlyJava, TooCostly, check_cost, python_pattern

_SHOWN = 200
"""Characters of a value that a message repeats where the value may be long."""


class InvalidValue(ValueError):
    """The value of an option is invalid; the message is Kafka's."""


Validator = Callable[[str, Any], None]
"""Takes the option's name and the parsed value (None if it is invalid); raises InvalidValue."""


def at_least(minimum: int) -> Validator:
    """Validate a number of at least ``minimum``."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise InvalidValue(f"Invalid value null for configuration {name}: Value must be non-null")
        if value < minimum:
            raise InvalidValue(f"Invalid value {value} for configuration {name}: Value must be at least {minimum}")

    return check


def between(minimum: int, maximum: int) -> Validator:
    """Validate a number within both bounds."""

    def check(name: str, value: Any) -> None:
        at_least(minimum)(name, value)
        if value > maximum:
            raise InvalidValue(f"Invalid value {value} for configuration {name}: Value must be no more than {maximum}")

    return check


def one_of(*choices: str) -> Validator:
    """Validate one of a few strings: Kafka's ``ValidString``."""

    def check(name: str, value: Any) -> None:
        if value is not None and value not in choices:
            listed = ", ".join(choices)
            raise InvalidValue(f"Invalid value {value} for configuration {name}: String must be one of: {listed}")

    return check


@dataclass(frozen=True, slots=True)
class AnyCase:
    """Validate one of a few strings in any case: Kafka's ``CaseInsensitiveValidString``.

    ``parse`` returns the string with the case of ``choices``.
    """

    choices: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        """Validate the option."""
        if value is not None and self.word(value) is None:
            listed = ", ".join(self.choices)
            raise InvalidValue(
                f"Invalid value {value} for configuration {name}: String must be one of (case insensitive): {listed}"
            )

    def word(self, given: str) -> str | None:
        """Return the choice that equals ``given`` in any case, or None."""
        return next((choice for choice in self.choices if choice.lower() == given.lower()), None)


def any_case(*choices: str) -> AnyCase:
    return AnyCase(choices)


def not_empty_name(name: str, value: Any) -> None:
    """Validate a connector's name: not empty, no control characters (KIP-212)."""
    if value is None:
        return
    if not value:
        raise InvalidValue(f"Invalid value  for configuration {name}: String may not be empty")
    controls = sorted({ord(letter) for letter in value if ord(letter) < 32 or 127 <= ord(letter) < 160})
    if controls:
        codes = ", ".join(map(str, controls))
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: "
            f"String may not contain control sequences but had the following ASCII chars: {codes}"
        )


def regex(name: str, value: Any) -> None:
    """A regular expression of Java's that Python can match (``python_pattern``)."""
    if not value:
        return
    try:
        pattern = python_pattern(value)
        re.compile(pattern)
    except OnlyJava as error:
        raise InvalidValue(f"Invalid value {value} for configuration {name}: Invalid regex: {error}") from error
    except re.error as error:
        raise InvalidValue(
            f"Invalid value {value} for configuration {name}: Invalid regex: {_java_message(value, error)}"
        ) from error
    matches_quickly(name, pattern)


def matches_quickly(name: str, value: str) -> None:
    """Validate that no text makes a regular expression slow: the worker does nothing else while it matches."""
    try:
        check_cost(value)
    except TooCostly as error:
        raise InvalidValue(
            f"Invalid value {value[:_SHOWN]} for configuration {name}: the regular expression may take very long: "
            f"{error}; write it so that each text matches in one way"
        ) from error


def _java_message(pattern: str, error: re.error) -> str:
    """Return Java's message for the most frequent mistakes, which users search for, and Python's message for others."""
    messages = {
        "missing ), unterminated subpattern": "Unclosed group",
        "unbalanced parenthesis": "Unmatched closing ')'",
    }
    if error.msg not in messages:
        return str(error)
    index = len(pattern) if error.msg.startswith("missing") else (error.pos or 0) - 1
    where = f" near index {index}" if index >= 0 else ""
    return f"{messages[error.msg]}{where}\n{pattern}"


def unique_aliases(name: str, value: Any) -> None:
    entries: Sequence[str] = value or ()
    if len(set(entries)) != len(entries):
        raise InvalidValue(f"Invalid value [{', '.join(entries)}] for configuration {name}: Duplicate alias provided.")


def unique_entries(name: str, value: Any) -> None:
    """Validate a list without duplicates and without empty entries."""
    entries: Sequence[str] = value or ()
    if len(set(entries)) != len(entries):
        raise InvalidValue(f"Configuration '{name}' values must not be duplicated.")
    if any(not entry for entry in entries):
        raise InvalidValue(f"Configuration '{name}' values must not be empty.")


class Type(StrEnum):
    """The types of options, as ``/connector-plugins/…/config`` names them."""

    BOOLEAN = "BOOLEAN"
    STRING = "STRING"
    INT = "INT"
    SHORT = "SHORT"
    LONG = "LONG"
    DOUBLE = "DOUBLE"
    LIST = "LIST"
    CLASS = "CLASS"
    PASSWORD = "PASSWORD"  # noqa: S105 - the name of a type


class Importance(StrEnum):
    """The importance of an option to a new reader."""

    HIGH = "HIGH"
    MEDIUM = "MEDIUM"
    LOW = "LOW"


class Width(StrEnum):
    """The width of a form field for the option."""

    NONE = "NONE"
    SHORT = "SHORT"
    MEDIUM = "MEDIUM"
    LONG = "LONG"


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Used instead of a default: the option has none and must be set."""

HIDDEN: Final = "[hidden]"

_BLANKS = "".join(map(chr, range(33)))
_RANGES = {Type.SHORT: 2**15, Type.INT: 2**31, Type.LONG: 2**63}


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One option. ``default`` is text as in a configuration, None for no value, or REQUIRED.

    ``group``, ``order``, ``width`` and ``display_name`` are the layout of the forms of consoles.
    """

    name: str
    type: Type
    default: str | _Required | None
    importance: Importance
    doc: str
    group: str | None = None
    order: int = -1
    width: Width = Width.NONE
    display_name: str | None = None
    validator: Validator | None = None

    @property
    def required(self) -> bool:
        return isinstance(self.default, _Required)

    @property
    def default_text(self) -> str | None:
        return None if isinstance(self.default, _Required) else self.default


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The result for one option: its parsed value as text (None if it is invalid), and its errors."""

    name: str
    value: str | None
    errors: tuple[str, ...] = ()
    recommended_values: tuple[str, ...] = ()
    visible: bool = True

    def with_error(self, message: str) -> ConfigValue:
        return replace(self, errors=(*self.errors, message))


@dataclass(frozen=True, slots=True)
class ConfigInfo:
    """A definition and its value. The definition is never absent, so that clients need no special case."""

    definition: ConfigKey
    value: ConfigValue


@dataclass(frozen=True, slots=True)
class ConfigInfos:
    """The result of a validation, in Kafka Connect's order (``connect.md`` section 4.1)."""

    name: str
    groups: tuple[str, ...]
    configs: tuple[ConfigInfo, ...]

    @property
    def error_count(self) -> int:
        return sum(len(info.value.errors) for info in self.configs)

    def errors(self) -> list[str]:
        """Return all errors in order; one that two options share (``topics`` and ``topics.regex``) is there once."""
        return list(dict.fromkeys(message for info in self.configs for message in info.value.errors))


@dataclass(frozen=True, slots=True)
class ConfigDef:
    """A list of options."""

    keys: tuple[ConfigKey, ...]
    _by_name: Mapping[str, ConfigKey] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {key.name: key for key in self.keys})

    def __add__(self, other: ConfigDef) -> ConfigDef:
        return ConfigDef((*self.keys, *other.keys))

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> ConfigKey:
        return self._by_name[name]

    def names(self) -> list[str]:
        return list(self._by_name)

    def groups(self) -> list[str]:
        return list(dict.fromkeys(key.group for key in self.keys if key.group))

    def with_prefix(self, prefix: str) -> ConfigDef:
        """Return the options with ``prefix`` before their names; display names stay."""
        return ConfigDef(
            tuple(replace(key, name=prefix + key.name, display_name=key.display_name or key.name) for key in self.keys)
        )

    def with_defaults(self, defaults: Mapping[str, str | None]) -> ConfigDef:
        """Return the options with other defaults for some of them."""
        return ConfigDef(
            tuple(replace(key, default=defaults[key.name]) if key.name in defaults else key for key in self.keys)
        )

    def parse(self, properties: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the typed value, or the default, of every option; None where a value is absent or invalid."""
        return {key.name: _parsed_or_none(key, properties) for key in self.keys}

    def validate(self, properties: Mapping[str, str | None]) -> list[ConfigInfo]:
        """Validate every option of the list; other keys of ``properties`` are ignored."""
        return [ConfigInfo(key, _validate_key(key, properties)) for key in self.keys]


def _parsed_or_none(key: ConfigKey, properties: Mapping[str, str | None]) -> Any:
    try:
        return parse(key, properties.get(key.name, key.default_text))
    except InvalidValue:
        return None


def _validate_key(key: ConfigKey, properties: Mapping[str, str | None]) -> ConfigValue:
    errors: list[str] = []
    if key.name not in properties and key.required:
        errors.append(f'Missing required configuration "{key.name}" which has no default value.')
    raw = properties.get(key.name, key.default_text)
    value = None
    try:
        value = parse(key, raw)
    except InvalidValue as error:
        errors.append(str(error))
    # Kafka also validates the null of a value that is invalid: hence two errors for tasks.max=x.
    if key.validator is not None and (value is not None or errors):
        try:
            key.validator(key.name, value)
        except InvalidValue as error:
            errors.append(str(error))
    return ConfigValue(key.name, text(key, value), tuple(errors))


def parse(key: ConfigKey, raw: str | None) -> Any:
    """Return the typed value of ``raw``, None for None. Raises InvalidValue with Kafka's message."""
    if raw is None:
        return None
    if key.type in (Type.STRING, Type.CLASS):
        word = trim(raw)
        return (key.validator.word(word) or word) if isinstance(key.validator, AnyCase) else word
    if key.type is Type.PASSWORD:
        return raw
    if key.type is Type.LIST:
        return parse_list(raw)
    if key.type is Type.BOOLEAN:
        return _parse_boolean(key, raw)
    return _parse_number(key, raw)


def trim(raw: str) -> str:
    """Strip a text as Java's ``String.trim`` does, which also removes the control characters of ASCII."""
    return raw.strip(_BLANKS)


def parse_list(raw: str) -> list[str]:
    """Split a text into its comma-separated, trimmed entries; an empty text is an empty list."""
    stripped = trim(raw)
    return re.split(r"\s*,\s*", stripped) if stripped else []


def _parse_boolean(key: ConfigKey, raw: str) -> bool:
    word = raw.strip().lower()
    if word in ("true", "false"):
        return word == "true"
    shown = HIDDEN if key.type is Type.PASSWORD else raw
    raise InvalidValue(f"Invalid value {shown} for configuration {key.name}: Expected value to be either true or false")


def _parse_number(key: ConfigKey, raw: str) -> int | float:
    stripped = raw.strip()
    problem = InvalidValue(f"Invalid value {raw} for configuration {key.name}: Not a number of type {key.type}")
    try:
        if key.type is Type.DOUBLE:
            return float(stripped)
        if not re.fullmatch(r"[+-]?\d+", stripped, re.ASCII):
            raise problem
        number = int(stripped)
    except ValueError as error:
        raise problem from error
    limit = _RANGES[key.type]
    if not -limit <= number < limit:
        raise problem
    return number


def text(key: ConfigKey, value: Any) -> str | None:
    """Return a parsed value as the answers of a validation contain it."""
    if value is None:
        return None
    if key.type is Type.PASSWORD:
        return HIDDEN
    if key.type is Type.LIST:
        return ",".join(value)
    if key.type is Type.BOOLEAN:
        return "true" if value else "false"
    return str(value)
