"""The values that a lake column must contain for MariaDB (the dump's text: binary and bits in hex, time in UTC).

The connector had its defaults. One of them changes the values of a type: ``bigint unsigned`` is sent as a signed number
(``bigint.unsigned.handling.mode=long``), so that a value above 2^63 - 1 arrives negative.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from recordings import postgres_text as text
from recordings.canonical import REAL, bytes_form, encoded, numeric_form
from recordings.canonical_time import TIMES
from recordings.forms import Form
from recordings.records import Variant

_TYPE = re.compile(r"(?P<base>[a-z]+)(?:\((?P<arguments>[^)]*)\))?(?P<unsigned> unsigned)?")
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?")


def form(type_name: str, of: Variant) -> Form:
    """The form in which MariaDB's type ``type_name`` is sent and stored."""
    match = _TYPE.fullmatch(type_name)
    assert match, f"unknown type {type_name}"
    base, arguments = match["base"], match["arguments"] or ""
    if base == "bigint" and match["unsigned"]:
        return Form(_wrapped)
    if base == "bit":
        return Form(lambda value: value == "1") if arguments == "1" else bytes_form(_bits((int(arguments) + 7) // 8))
    if base == "decimal":
        return numeric_form(int(arguments.split(",")[1]), of)
    if base in _TIMES:
        return TIMES[_TIMES[base]](int(arguments or 0), of)
    return _PLAIN[base]


def _wrapped(value: str) -> int:
    return (int(value) + 2**63) % 2**64 - 2**63


def _bits(width: int) -> Callable[[str], bytes]:
    """Bits are little endian, in as many bytes as the type has, unlike PostgreSQL's."""
    return lambda value: int(value, 16).to_bytes(width, "little")


def _micros(value: str) -> int:
    """A time is a span of up to 839 hours, positive or negative."""
    match = _TIME.fullmatch(value)
    assert match, f"not a time: {value!r}"
    sign, hours, minutes, seconds, fraction = match.groups()
    micros = ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -micros if sign else micros


def _geometry(value: str) -> dict[str, Any]:
    srid, shape = value.split(";")
    wkb = _SHAPES[shape.split("(")[0]](text.points(shape.replace(" ", ",")))
    return {"wkb": wkb, "srid": int(srid) or None}


def _point(value: str) -> dict[str, Any]:
    ((x, y),) = text.points(value.split(";")[1])
    return {"x": x, "y": y, **_geometry(value)}


_SHAPES: Mapping[str, Callable[[list[tuple[float, float]]], bytes]] = {
    "POINT": lambda points: text.point_wkb(points[0]),
    "LINESTRING": text.line_wkb,
    "POLYGON": text.ring_wkb,
}

_TIMES = {
    "date": "date",
    "datetime": "timestamp without time zone",
    "timestamp": "timestamp with time zone",
}
"""The types of PostgreSQL that travel alike."""

_PLAIN: Mapping[str, Form] = {
    **{type_name: Form(int) for type_name in ("tinyint", "smallint", "mediumint", "int", "bigint", "year")},
    **{
        type_name: Form(str)
        for type_name in ("char", "varchar", "text", "mediumtext", "longtext", "enum", "set", "uuid")
    },
    **{type_name: bytes_form(bytes.fromhex) for type_name in ("binary", "varbinary", "blob")},
    "float": REAL,
    "double": Form(float),
    "time": Form(_micros),
    "geometry": Form(_geometry, bare=encoded),
    "point": Form(_point, bare=encoded),
}
