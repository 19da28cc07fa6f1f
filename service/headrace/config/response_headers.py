"""``response.http.headers.config``: rules for headers of every REST answer (KIP-577).

``[action] [name]:[value]``, separated by commas; a rule whose value has a comma is put in double quotes. The actions
are ``set`` and ``add``, and ``setDate`` and ``addDate``, whose value is milliseconds from now.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

from headrace.core.connect.config_validators import InvalidValue

_ACTIONS = {action.lower(): action for action in ("set", "add", "setDate", "addDate")}


@dataclass(frozen=True, slots=True)
class HeaderRule:
    """One header. ``replaces``: instead of the answer's own; the ``value`` of a date is milliseconds from now."""

    name: str
    value: str
    replaces: bool
    is_date: bool


def header_rules(text: str) -> tuple[HeaderRule, ...]:
    """Return the rules in order. Raises ValueError, which names the cause."""
    [rules] = csv.reader([text], skipinitialspace=True) if text.strip() else [[]]
    return tuple(map(_rule, rules))


def response_headers(name: str, value: Any) -> None:
    """Validate the option."""
    try:
        header_rules(str(value or ""))
    except ValueError as error:
        raise InvalidValue(f"Invalid value {value} for configuration {name}: {error}") from error


def _rule(text: str) -> HeaderRule:
    parts = text.split(None, 1)
    if len(parts) != 2:
        raise ValueError(f"Invalid format of header config '{text}'. Expected: '[action] [header name]:[header value]'")
    action = _ACTIONS.get(parts[0].lower())
    if action is None:
        expected = ", ".join(_ACTIONS.values())
        raise ValueError(f"Invalid header config action: '{parts[0]}'. Expected one of {expected}")
    name, colon, value = (part.strip() for part in parts[1].partition(":"))
    if not colon:
        raise ValueError(
            f"Invalid format of header name and header value pair '{parts[1]}'. "
            "Expected: '[header name]:[header value]'"
        )
    if not name or len(name.split()) > 1:
        raise ValueError(f"Invalid header name '{name}'. The '[header name]' cannot contain whitespace")
    is_date = action.endswith("Date")
    if is_date and not value.lstrip("-").isdecimal():
        raise ValueError(f"Invalid header config '{text}': the value of {action} is milliseconds from now")
    return HeaderRule(name, value, action.startswith("set"), is_date)
