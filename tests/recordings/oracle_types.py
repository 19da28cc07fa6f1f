"""The values that a lake column must contain for Oracle, from the text of a dump (``reselect.md`` section 8.2)."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

from recordings.canonical import binary_form, digits, numeric_form, unscaled
from recordings.canonical_time import TIMES
from recordings.forms import Form, base64_text
from recordings.records import Variant

_TYPE = re.compile(r"(?P<base>[A-Z0-9]+)(?:\((?P<arguments>[\d,]+)\))?")


def form(type_name: str, of: Variant) -> Form:
    """The form in which Oracle's type ``type_name`` is sent and stored, in the precise decimal mode."""
    match = _TYPE.fullmatch(type_name)
    assert match, f"unknown type {type_name}"
    base, arguments = match["base"], (match["arguments"] or "").split(",")
    if base == "NUMBER" and len(arguments) == 2:
        return numeric_form(int(arguments[1]), of)
    if base == "NUMBER":
        return Form(int) if arguments[0] else Form(Decimal, digits, _variable)
    if base == "TIMESTAMP":
        return TIMES["timestamp without time zone"](int(arguments[0]), of)
    return binary_form(of) if base == "BLOB" else Form(str)


def _variable(number: Decimal) -> dict[str, Any]:
    """The scale is the number's own: 1E+3 has -3."""
    scale = -int(number.as_tuple().exponent)
    return {"scale": scale, "value": base64_text(unscaled(number, scale))}
