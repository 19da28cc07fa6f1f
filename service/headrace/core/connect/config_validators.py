"""Validators of options: Kafka's ``ConfigDef.Validator`` and its subclasses, with Kafka's messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.connect.java_patterns import OnlyJava, python_pattern
from headrace.core.connect.regex_cost import TooCostly, check_cost

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
    """Validate one of a few strings in any case."""
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
    """Validate the aliases of transforms or predicates: no duplicates."""
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
