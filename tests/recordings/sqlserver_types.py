"""The values that a lake column must contain for SQL Server: from a dump's text (binary in hex) to the exact value."""

from __future__ import annotations

import re

from recordings.canonical import binary_form, numeric_form
from recordings.canonical_time import TIMES
from recordings.forms import Form
from recordings.records import Variant

_TYPE = re.compile(r"(?P<base>[a-z0-9]+?)(?:\((?P<arguments>[\d,]+)\))?")


def form(type_name: str, of: Variant) -> Form:
    """The form in which SQL Server's type ``type_name`` is sent and stored, in the precise decimal mode."""
    match = _TYPE.fullmatch(type_name)
    assert match, f"unknown type {type_name}"
    base, arguments = match["base"], match["arguments"] or ""
    if base == "decimal":
        return numeric_form(int(arguments.split(",")[1]), of)
    if base == "datetime2":
        return TIMES["timestamp without time zone"](int(arguments), of)
    return {"int": Form(int), "nvarchar": Form(str), "varbinary": binary_form(of)}[base]
