"""Checks on the values of options: Kafka's ``ConfigDef.Validator`` and its kinds, with Kafka's own sentences."""

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
    """A value that does not fit its option; the text is Kafka's."""


Validator = Callable[[str, Any], None]
"""Takes the option's name and the parsed value (None when it did not parse); raises InvalidValue."""


def at_least(minimum: int) -> Validator:
    """A number of at least ``minimum``."""

    def check(name: str, value: Any) -> None:
        if value is None:
            raise InvalidValue(f"Invalid value null for configuration {name}: Value must be non-null")
        if value < minimum:
            raise InvalidValue(f"Invalid value {value} for configuration {name}: Value must be at least {minimum}")

    return check


def between(minimum: int, maximum: int) -> Validator:
    """A number within both bounds."""

    def check(name: str, value: Any) -> None:
        at_least(minimum)(name, value)
        if value > maximum:
            raise InvalidValue(f"Invalid value {value} for configuration {name}: Value must be no more than {maximum}")

    return check


def one_of(*choices: str) -> Validator:
    """One of a few words, letter by letter: Kafka's ``ValidString``."""

    def check(name: str, value: Any) -> None:
        if value is not None and value not in choices:
            listed = ", ".join(choices)
            raise InvalidValue(f"Invalid value {value} for configuration {name}: String must be one of: {listed}")

    return check


@dataclass(frozen=True, slots=True)
class AnyCase:
    """One of a few words in any case, Kafka's ``CaseInsensitiveValidString``; ``parse`` gives it as it stands here."""

    choices: tuple[str, ...]

    def __call__(self, name: str, value: Any) -> None:
        """Validates the option."""
        if value is not None and self.word(value) is None:
            listed = ", ".join(self.choices)
            raise InvalidValue(
                f"Invalid value {value} for configuration {name}: String must be one of (case insensitive): {listed}"
            )

    def word(self, given: str) -> str | None:
        """The choice that is meant, None for none of them."""
        return next((choice for choice in self.choices if choice.lower() == given.lower()), None)


def any_case(*choices: str) -> AnyCase:
    """One of a few words in any case."""
    return AnyCase(choices)


def not_empty_name(name: str, value: Any) -> None:
    """A connector's name: not empty, no control characters (KIP-212)."""
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
            f"Invalid value {value} for configuration {name}: Invalid regex: {_in_javas_words(value, error)}"
        ) from error
    matches_quickly(name, pattern)


def matches_quickly(name: str, value: str) -> None:
    """A regular expression that no text keeps busy for long: the worker serves nobody else while it matches."""
    try:
        check_cost(value)
    except TooCostly as error:
        raise InvalidValue(
            f"Invalid value {value[:_SHOWN]} for configuration {name}: the regular expression may take very long: "
            f"{error}; write it so that each text matches in one way"
        ) from error


def _in_javas_words(pattern: str, error: re.error) -> str:
    """What Java says of the commonest mistakes, which people search for; else what Python says."""
    said = {"missing ), unterminated subpattern": "Unclosed group", "unbalanced parenthesis": "Unmatched closing ')'"}
    if error.msg not in said:
        return str(error)
    near = len(pattern) if error.msg.startswith("missing") else (error.pos or 0) - 1
    place = f" near index {near}" if near >= 0 else ""
    return f"{said[error.msg]}{place}\n{pattern}"


def regexes(name: str, value: Any) -> None:
    """A list of regular expressions."""
    for part in value or ():
        regex(name, part)


def unique_aliases(name: str, value: Any) -> None:
    """The aliases of transforms or predicates: each once."""
    entries: Sequence[str] = value or ()
    if len(set(entries)) != len(entries):
        raise InvalidValue(f"Invalid value [{', '.join(entries)}] for configuration {name}: Duplicate alias provided.")


def unique_entries(name: str, value: Any) -> None:
    """A list without doubles and without empty entries."""
    entries: Sequence[str] = value or ()
    if len(set(entries)) != len(entries):
        raise InvalidValue(f"Configuration '{name}' values must not be duplicated.")
    if any(not entry for entry in entries):
        raise InvalidValue(f"Configuration '{name}' values must not be empty.")
