"""The values that a lake column must contain for PostgreSQL: from a dump's text to the exact value, per handling mode.

``form(type, variant)`` describes how one PostgreSQL type is sent and stored (``reselect.md`` section 8.2). Its ``read``
makes the Connect value, ``lake`` the value of a typed column (dates as days, timestamps as microseconds, decimals of
unlimited scale as text), ``bare`` what JsonConverter writes when it sends no schema. ``comparable`` converts an Arrow
column to the same Python values. Nothing here uses Headrace's own decoding.

``mariadb_types.py`` and ``oracle_types.py`` describe other databases in the same way; ``columns.py`` chooses.

Changes that Debezium itself makes (NaN, dates BC, arrays of arrays…) are not modelled here: ``differences.py`` names
them, cell by cell.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from recordings import postgres_text as text
from recordings.canonical_time import TIMES
from recordings.forms import Form, base64_text, same
from recordings.records import Variant

NAN = "NaN"  # stands for the float, which does not equal itself

DOMAINS = {
    "pos_int": "integer",
    "dom_of_dom": "integer",
    "money3": "numeric(8,3)",
    "short_text": "character varying(12)",
}
NO_CONVERTER = frozenset({"int4multirange", "tsquery", "pg_lsn", "addr", *(f"{domain}[]" for domain in DOMAINS)})
NEVER_SENT = frozenset({"money[]", "interval[]"})
GEOMETRIC = frozenset({"line", "lseg", "box", "path", "polygon", "circle"})  # converters came with Debezium 3.7

_TYPE = re.compile(
    r"(?P<base>[^(\[]+?)(?:\((?P<modifier>[-\d,]+)\))?(?P<zone> with(?:out)? time zone)?(?P<array>\[\])?"
)
_WIDE = Context(prec=3000)


def field_name(column: str, of: Variant) -> str:
    """The field's name: avro adjustment turns what Avro does not allow into ``_`` (per UTF-16 unit)."""
    if not of.adjusted_names:
        return column
    units = "".join(char if re.match(r"\w", char, re.ASCII) else "_" * (1 + (ord(char) > 0xFFFF)) for char in column)
    return f"_{units}" if units[0].isdigit() else units


def expected(value: str | None, column: Form, *, typed: bool) -> Any:
    """The value that the lake must contain for ``value`` of the dump, in a typed or an inferred column."""
    if value is None:
        return None
    read = column.read(value)
    return plain(column.lake(read) if typed else column.bare(read))


def without_nulls(value: Any) -> Any:
    """A struct without its null members, at any depth: without a schema they have no type, and so no column."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return value


def comparable(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """An Arrow column as the plain Python values that ``expected`` gives."""
    return [plain(value) for value in _integers(values).to_pylist(maps_as_pydicts="strict")]


def _integers(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Dates and timestamps as integers, at any depth: Python's own types end at the year 9999."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return array.view(_counted(array.type)) if _counted(array.type) != array.type else array


def _counted(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(data_type):
        return pa.int32()
    if pa.types.is_timestamp(data_type):
        return pa.int64()
    if pa.types.is_list(data_type):
        return pa.list_(_counted(data_type.value_type))
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(member.name, _counted(member.type)) for member in data_type])
    return data_type


def plain(value: Any) -> Any:
    """A value that equals another one exactly if both mean the same; NaN becomes a text."""
    if isinstance(value, float) and math.isnan(value):
        return NAN
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value


def form(pg_type: str, of: Variant) -> Form | None:
    """The form in which ``pg_type`` is sent in a variant; None when Debezium sends no such column."""
    match = _TYPE.fullmatch(pg_type)
    assert match, f"unknown type {pg_type}"
    if pg_type in NEVER_SENT or (pg_type in GEOMETRIC and of.release == "3.6"):
        return None
    if pg_type in NO_CONVERTER and not of.unknown_types:
        return None
    if match["array"]:
        return _array(pg_type, of)
    return _scalar(match["base"] + (match["zone"] or ""), match["modifier"], of)


def _array(pg_type: str, of: Variant) -> Form | None:
    """Arrays; ``bit(n)[]`` is sent as if it were one bit string, and is always null (differences.py)."""
    item = _unknown() if pg_type in NO_CONVERTER else form(pg_type.removesuffix("[]"), of)
    assert item, f"no converter for the elements of {pg_type}"
    return Form(
        lambda value: _read_each(item.read, text.array(value)),
        _each(item.lake),
        _each(item.bare),
        _each(item.seen),
    )


def _read_each(read: Callable[[str], Any], parts: list[Any]) -> list[Any]:
    """The elements of an array; those of an inner array are in an inner list."""
    return [
        _read_each(read, part) if isinstance(part, list) else None if part is None else read(part) for part in parts
    ]


def _each(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda items: None if items is None else [None if item is None else convert(item) for item in items]


def _scalar(base: str, modifier: str | None, of: Variant) -> Form:
    if base in NO_CONVERTER:
        return _unknown()
    if base in DOMAINS:
        found = form(DOMAINS[base], of)
        assert found
        return found
    if base in ("numeric", "money"):
        return numeric_form(_scale(base, modifier), of)
    if base in TIMES:
        return TIMES[base](int(modifier) if modifier else 6, of)
    if base == "character":
        return Form(lambda value: value.ljust(int(modifier or 1)))
    if base in ("bit", "bit varying"):
        return Form(lambda value: value == "1") if modifier == "1" else bytes_form(text.bits)
    return _MODAL[base](of) if base in _MODAL else _PLAIN.get(base, Form(str))


def _unknown() -> Form:
    """Types without a converter, with ``include.unknown.datatypes``: the text in the binary mode of that variant."""
    return Form(lambda value: _url_safe(value.encode()))


# -- numbers ----------------------------------------------------------------------------------------------------------


def _scale(base: str, modifier: str | None) -> int | None:
    """The scale in the event; the connector reads a negative one as eleven unsigned bits."""
    if base == "money":
        return 2
    return None if modifier is None else int((*modifier.split(","), "0")[1]) & 0x7FF


def numeric_form(scale: int | None, of: Variant) -> Form:
    """A decimal with ``scale`` digits after the point, or any number of them if it has none."""
    if of.decimals == "double":
        return Form(lambda value: float(_decimal(value)), bare=lambda value: NAN if math.isnan(value) else value)
    if of.decimals == "string":
        return Form(lambda value: _with_scale(_decimal(value), scale))
    if scale is None:
        return Form(_decimal, digits, _variable)
    return Form(_decimal, digits if scale > 38 else same, lambda value: base64_text(unscaled(value, scale)))


def _decimal(value: str) -> Decimal:
    return Decimal(value.replace("$", "").replace(",", ""))


def _with_scale(number: Decimal, scale: int | None) -> str:
    if not number.is_finite():
        return {"NaN": "NAN", "Infinity": "POSITIVE_INFINITY", "-Infinity": "NEGATIVE_INFINITY"}[str(number)]
    return format(number if scale is None else _WIDE.quantize(number, Decimal((0, (1,), -scale))), "f")


def digits(number: Decimal) -> str:
    """Plain digits without trailing zeros: the lake's form of a decimal that no decimal column can contain."""
    plain_digits = format(number, "f")
    return plain_digits.rstrip("0").rstrip(".") if "." in plain_digits else plain_digits


def _variable(number: Decimal) -> dict[str, Any]:
    if not number.is_finite():
        return {"scale": 0, "value": str(number)}  # Debezium never sends it: differences.py
    scale = max(0, -int(Decimal(digits(number)).as_tuple().exponent))  # trailing zeros are stripped
    return {"scale": scale, "value": base64_text(unscaled(number, scale))}


def unscaled(number: Decimal, scale: int) -> bytes:
    """The unscaled integer as Java's ``BigInteger.toByteArray``: big endian, the shortest two's complement."""
    value = int(_WIDE.scaleb(number, scale))
    length = (value if value >= 0 else ~value).bit_length() // 8 + 1
    return value.to_bytes(length, "big", signed=True)


def real(value: str) -> float:
    """The nearest value of 32 bits."""
    return float(struct.unpack("f", struct.pack("f", float(value)))[0])


REAL = Form(real, bare=lambda value: float(str(np.float32(value))))  # JSON has the shortest digits

# -- text and bytes ---------------------------------------------------------------------------------------------------


def bytes_form(read: Callable[[str], bytes]) -> Form:
    """Bytes, which are base64 in JSON without schemas."""
    return Form(read, bare=base64_text)


def binary_form(of: Variant) -> Form:
    """Binary values, hexadecimal in the dump, as ``binary.handling.mode`` writes them."""
    if of.binary == "bytes":
        return bytes_form(_unhex)
    encode = _BINARY_TEXTS[of.binary]
    return Form(lambda value: encode(_unhex(value)))


def _url_safe(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode()


_BINARY_TEXTS: Mapping[str, Callable[[bytes], str]] = {
    "hex": bytes.hex,
    "base64": base64_text,
    "base64-url-safe": _url_safe,
}


def _unhex(value: str) -> bytes:
    return bytes.fromhex(value.removeprefix("\\x"))


def _hstore(of: Variant) -> Form:
    """The text is read before it is compared, because the order of the keys in JSON is that of a Java hash map."""
    return Form(text.hstore, seen=same if of.hstore == "map" else lambda value: value and json.loads(value))


def _inet(value: str) -> str:
    """The dump's cast to text adds the full mask that the type's own output omits."""
    return value.removesuffix("/128" if ":" in value else "/32")


# -- geometry ---------------------------------------------------------------------------------------------------------


def _point(point: tuple[float, float]) -> dict[str, Any]:
    return {"x": point[0], "y": point[1], "wkb": text.point_wkb(point), "srid": None}


def _line(value: str) -> dict[str, Any]:
    return dict(zip("abc", text.numbers(value), strict=True))


def _circle(value: str) -> dict[str, Any]:
    x, y, radius = text.numbers(value)
    return {"center": _point((x, y)), "radius": radius}


def _geometry(wkb: bytes, geometry_type: str, **extensions: str) -> dict[str, Any]:
    return {"wkb": wkb, "srid": None, "extensions": {"type": geometry_type, **extensions}}


def _box(value: str) -> dict[str, Any]:
    (right, top), (left, bottom) = text.points(value)
    return _geometry(text.ring_wkb([(right, top), (right, bottom), (left, bottom), (left, top), (right, top)]), "box")


def _path(value: str) -> dict[str, Any]:
    closed = "true" if value.startswith("(") else "false"
    return _geometry(text.line_wkb(text.points(value)), "path", closed=closed)


def encoded(value: Any) -> Any:
    """A struct as JSON writes it: bytes in base64, at any depth."""
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, dict):
        return without_nulls({name: encoded(item) for name, item in value.items()})
    return value


_MODAL: Mapping[str, Callable[[Variant], Form]] = {"bytea": binary_form, "hstore": _hstore}

_PLAIN: Mapping[str, Form] = {
    "boolean": Form(lambda value: value in ("true", "t")),  # inside arrays t and f
    **{type_name: Form(int) for type_name in ("smallint", "integer", "bigint", "oid")},
    "real": REAL,
    "double precision": Form(float),
    "inet": Form(_inet),
    "point": Form(lambda value: _point(text.points(value)[0]), bare=encoded),
    "line": Form(_line),
    "circle": Form(_circle, bare=encoded),
    "lseg": Form(lambda value: _geometry(text.line_wkb(text.points(value)), "lseg"), bare=encoded),
    "box": Form(_box, bare=encoded),
    "path": Form(_path, bare=encoded),
    "polygon": Form(lambda value: _geometry(text.ring_wkb(text.points(value)), "polygon"), bare=encoded),
}
