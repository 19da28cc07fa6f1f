"""The ``after`` schema that Debezium's PostgreSQL connector sends for a table, from the catalog and the handling modes.

For JSON without schemas: events then decode to the same columns as with schemas. A column whose type the connector has
no converter for has no field (``reselect.md`` section 8.2, last row). A generated column is in snapshot reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes, SqlType
from headrace.core.model.schema import Field, Schema

CONNECT = "org.apache.kafka.connect.data"
DEBEZIUM = "io.debezium.data"
TIME = "io.debezium.time"
GEOMETRY = "io.debezium.data.geometry"
DEFAULT_DIGITS = 6

INT8, INT32, INT64 = Schema("int8"), Schema("int32"), Schema("int64")
TEXT = Schema("string", optional=True)


def connect_schema(catalog: CatalogTable, modes: HandlingModes) -> Schema:
    """Return the schema of ``after`` for a table; columns in their order."""
    table = catalog.table
    fields = []
    for column in catalog.columns:
        schema = column_schema(column, modes)
        if schema is not None:
            fields.append(Field(column.name, schema))
    return Schema("struct", True, f"{table.name}.{table.schema}.{table.table}.Value", fields=tuple(fields))


def column_schema(column: CatalogColumn, modes: HandlingModes) -> Schema | None:
    """Return the schema of one column, None if events lack it."""
    kind, typmod = column.type, column.typmod
    while kind.base is not None:
        kind, typmod = kind.base, kind.typmod if typmod < 0 else typmod
    return type_schema(kind, typmod, modes, optional=not column.not_null)


def type_schema(sql_type: SqlType, typmod: int, modes: HandlingModes, optional: bool = True) -> Schema | None:
    """Return the schema of a type, None if the connector has no converter for it."""
    if sql_type.element is not None:
        return _array_schema(sql_type.element, typmod, modes, optional)
    if sql_type.kind == "e":
        allowed = (("allowed", ",".join(sql_type.labels)),)
        return Schema("string", optional, f"{DEBEZIUM}.Enum", 1, allowed)
    if sql_type.name in _FIXED:
        wire, name = _FIXED[sql_type.name]
        return Schema(wire, optional, name, None if name is None else 1)
    make = _BY_MODE.get(sql_type.name)
    return None if make is None else make(typmod, modes, optional)


_NO_ARRAYS = frozenset({"money", "interval", "xml", "tsvector", "bit", "varbit", "name", "vector"})


def _array_schema(element: SqlType, typmod: int, modes: HandlingModes, optional: bool) -> Schema | None:
    if element.base is not None or element.name in _NO_ARRAYS or element.name in _SHAPES:
        return None
    items = type_schema(element, typmod, modes)
    return None if items is None else Schema("array", optional, items=items)


_FIXED: Mapping[str, tuple[str, str | None]] = {
    **dict.fromkeys(("text", "varchar", "bpchar", "char", "name", "citext"), ("string", None)),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "isbn"), ("string", None)),
    **dict.fromkeys(("int4range", "int8range", "numrange"), ("string", None)),
    **dict.fromkeys(("tsrange", "tstzrange", "daterange"), ("string", None)),
    **dict.fromkeys(("json", "jsonb"), ("string", f"{DEBEZIUM}.Json")),
    "xml": ("string", f"{DEBEZIUM}.Xml"),
    "uuid": ("string", f"{DEBEZIUM}.Uuid"),
    "ltree": ("string", f"{DEBEZIUM}.Ltree"),
    "tsvector": ("string", f"{DEBEZIUM}.Tsvector"),
    "bool": ("boolean", None),
    "int2": ("int16", None),
    "int4": ("int32", None),
    "int8": ("int64", None),
    "oid": ("int64", None),
    "float4": ("float", None),
    "float8": ("double", None),
}

Make = Callable[[int, HandlingModes, bool], Schema]


def _hstore(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.hstore == "map":
        return Schema("map", optional, keys=Schema("string"), values=TEXT)
    return Schema("string", optional, f"{DEBEZIUM}.Json", 1)


def _numeric(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.decimal != "precise":
        return Schema("double" if modes.decimal == "double" else "string", optional)
    if typmod < 4:
        members = (Field("scale", INT32), Field("value", Schema("bytes")))
        return Schema("struct", optional, f"{DEBEZIUM}.VariableScaleDecimal", 1, fields=members)
    precision, scale = ((typmod - 4) >> 16) & 0xFFFF, (typmod - 4) & 0x7FF
    return _decimal(scale, (("connect.decimal.precision", str(precision)),), optional)


def _money(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.decimal != "precise":
        return Schema("double" if modes.decimal == "double" else "string", optional)
    return _decimal(modes.money_fraction_digits, (), optional)


def _decimal(scale: int, parameters: tuple[tuple[str, str], ...], optional: bool) -> Schema:
    return Schema("bytes", optional, f"{CONNECT}.Decimal", 1, (*parameters, ("scale", str(scale))))


def _bit(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if typmod == 1:
        return Schema("boolean", optional)
    length = str(typmod if typmod > 0 else 2**31 - 1)
    return Schema("bytes", optional, f"{DEBEZIUM}.Bits", 1, (("length", length),))


def _date(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    mode = modes.time_precision
    if mode == "structured":
        return _structured("StructuredDate", ("year", "month", "day"), (), optional, special=True)
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoDate", 1)
    return Schema("int32", optional, f"{CONNECT if mode == 'connect' else TIME}.Date", 1)


def _time(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    mode, digits = modes.time_precision, typmod if typmod >= 0 else DEFAULT_DIGITS
    if mode == "structured":
        return _structured("StructuredTime", _CLOCK, ("precision",), optional)
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoTime", 1)
    if mode == "connect":
        return Schema("int32", optional, f"{CONNECT}.Time", 1)
    if mode == "nanoseconds":
        return Schema("int64", optional, f"{TIME}.NanoTime", 1)
    if mode == "adaptive" and digits <= 3:
        return Schema("int32", optional, f"{TIME}.Time", 1)
    return Schema("int64", optional, f"{TIME}.MicroTime", 1)


def _timestamp(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    mode, digits = modes.time_precision, typmod if typmod >= 0 else DEFAULT_DIGITS
    if mode == "structured":
        names = ("year", "month", "day", *_CLOCK)
        return _structured("StructuredTimestamp", names, ("precision",), optional, special=True)
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoTimestamp", 1)
    if mode == "connect":
        return Schema("int64", optional, f"{CONNECT}.Timestamp", 1)
    if mode in ("nanoseconds", "microseconds"):
        return Schema("int64", optional, f"{TIME}.{'Nano' if mode == 'nanoseconds' else 'Micro'}Timestamp", 1)
    return Schema("int64", optional, f"{TIME}.{'Timestamp' if digits <= 3 else 'MicroTimestamp'}", 1)


def _timestamptz(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.time_precision != "structured":
        return Schema("string", optional, f"{TIME}.ZonedTimestamp", 1)
    names = ("year", "month", "day", *_CLOCK, "offsetSeconds")
    return _structured("StructuredZonedTimestamp", names, ("precision",), optional, special=True, zone=True)


def _timetz(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.time_precision != "structured":
        return Schema("string", optional, f"{TIME}.ZonedTime", 1)
    return _structured("StructuredZonedTime", (*_CLOCK, "offsetSeconds"), ("precision",), optional)


def _interval(typmod: int, modes: HandlingModes, optional: bool) -> Schema:
    if modes.time_precision == "structured":
        names = ("years", "months", "days", "hours", "minutes", "seconds", "nanos")
        return _structured("StructuredDuration", names, ("precision",), optional)
    if modes.interval == "string":
        return Schema("string", optional, f"{TIME}.Interval", 1)
    return Schema("int64", optional, f"{TIME}.MicroDuration", 1)


_CLOCK = ("hour", "minute", "second", "nanos")
_WIDTHS = dict.fromkeys(("month", "day", "hour", "minute", "second"), "int8") | {"seconds": "int64"}


def _structured(
    name: str, parts: tuple[str, ...], last: tuple[str, ...], optional: bool, special: bool = False, zone: bool = False
) -> Schema:
    texts = (("zoneId",) if zone else ()) + (("specialValue",) if special else ())
    members = [Field(part, Schema(_WIDTHS.get(part, "int32"), True)) for part in parts]
    members += [Field(text, TEXT) for text in texts] + [Field(part, Schema("int32", True)) for part in last]
    return Schema("struct", optional, f"{TIME}.{name}", 1, fields=tuple(members))


_DOUBLE = Schema("double")
_POINT = (
    Field("x", _DOUBLE),
    Field("y", _DOUBLE),
    Field("wkb", Schema("bytes", True)),
    Field("srid", Schema("int32", True)),
)
_EXTENSIONS = Schema("map", True, keys=Schema("string"), values=TEXT)
_GEOMETRY = (Field("wkb", Schema("bytes")), Field("srid", Schema("int32", True)), Field("extensions", _EXTENSIONS))
_CIRCLE = (Field("center", Schema("struct", False, f"{GEOMETRY}.Point", 1, fields=_POINT)), Field("radius", _DOUBLE))
_SHAPES: Mapping[str, tuple[str, tuple[Field, ...]]] = {
    "point": ("Point", _POINT),
    "line": ("Line", tuple(Field(name, _DOUBLE) for name in "abc")),
    "circle": ("Circle", _CIRCLE),
    **dict.fromkeys(("lseg", "box", "path", "polygon"), ("Geometry", _GEOMETRY)),
    "geometry": ("Geometry", _GEOMETRY[:2]),
    "geography": ("Geography", _GEOMETRY[:2]),
}


def _geometry(name: str, members: tuple[Field, ...]) -> Make:
    return lambda typmod, modes, optional: Schema("struct", optional, f"{GEOMETRY}.{name}", 1, fields=members)


_BY_MODE: Mapping[str, Make] = {
    "bytea": lambda typmod, modes, optional: Schema("bytes" if modes.binary == "bytes" else "string", optional),
    "hstore": _hstore,
    "numeric": _numeric,
    "money": _money,
    "bit": _bit,
    "varbit": _bit,
    "date": _date,
    "time": _time,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "timetz": _timetz,
    "interval": _interval,
    **{name: _geometry(*definition) for name, definition in _SHAPES.items()},
}
