"""The ``after`` schema that Debezium's Oracle connector sends for a table, from the catalog and the handling modes.

For JSON without schemas: events then decode to the same columns as with schemas (``reselect.md`` section 8.2, "Oracle
in short"; ``OracleValueConverters.schemaBuilder`` of Debezium 3.6.1). A column whose type the connector has no
converter for has no field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.core.model.catalog import CatalogColumn, CatalogTable, HandlingModes
from headrace.core.model.schema import Field, Schema

CONNECT = "org.apache.kafka.connect.data"
DEBEZIUM = "io.debezium.data"
TIME = "io.debezium.time"
INTEGER_WIDTHS = ((3, "int8"), (5, "int16"), (10, "int32"), (19, "int64"))
"""The integer type for numbers with fewer digits than the first entry."""


def connect_schema(catalog: CatalogTable, modes: HandlingModes) -> Schema:
    """Return the schema of ``after`` for a table; columns in their order."""
    table = catalog.table
    made = [(column.name, column_schema(column, modes)) for column in catalog.columns if not column.generated]
    fields = tuple(Field(name, schema) for name, schema in made if schema is not None)
    return Schema("struct", True, f"{table.name}.{table.schema}.{table.table}.Value", fields=fields)


def column_schema(column: CatalogColumn, modes: HandlingModes) -> Schema | None:
    """Return the schema of one column, None if events lack it."""
    make = _BY_KIND.get(column.type.name)
    return None if make is None else make(column, modes, not column.not_null)


def _number(column: CatalogColumn, modes: HandlingModes, optional: bool) -> Schema:
    scale, precision = column.scale, column.precision
    if column.type.name == "FLOAT" or scale is None or precision is None:
        return _variable_scale(modes, optional)
    if scale == 0 and modes.decimal != "precise":  # since DBZ-7882
        return _inexact(modes, optional)
    digits = precision - scale
    if scale <= 0 and digits < INTEGER_WIDTHS[-1][0]:
        return Schema(next(kind for limit, kind in INTEGER_WIDTHS if digits < limit), optional)
    if modes.decimal != "precise":
        return _inexact(modes, optional)
    parameters = (("connect.decimal.precision", str(precision)), ("scale", str(scale)))
    return Schema("bytes", optional, f"{CONNECT}.Decimal", 1, parameters)


def _variable_scale(modes: HandlingModes, optional: bool) -> Schema:
    if modes.decimal != "precise":
        return _inexact(modes, optional)
    members = (Field("scale", Schema("int32")), Field("value", Schema("bytes")))
    return Schema("struct", optional, f"{DEBEZIUM}.VariableScaleDecimal", 1, fields=members)


def _inexact(modes: HandlingModes, optional: bool) -> Schema:
    return Schema("double" if modes.decimal == "double" else "string", optional)


def _timestamp(column: CatalogColumn, modes: HandlingModes, optional: bool) -> Schema | None:
    mode, digits = modes.time_precision, column.scale or 0
    if mode == "structured":
        return None
    if mode == "isostring":
        return Schema("string", optional, f"{TIME}.IsoTimestamp", 1)
    if mode == "connect":
        return Schema("int64", optional, f"{CONNECT}.Timestamp", 1)
    if mode in ("microseconds", "nanoseconds"):
        return Schema("int64", optional, f"{TIME}.{'Micro' if mode == 'microseconds' else 'Nano'}Timestamp", 1)
    unit = "Timestamp" if digits <= 3 else "MicroTimestamp" if digits <= 6 else "NanoTimestamp"
    return Schema("int64", optional, f"{TIME}.{unit}", 1)


def _interval(column: CatalogColumn, modes: HandlingModes, optional: bool) -> Schema:
    if modes.interval == "string":
        return Schema("string", optional, f"{TIME}.Interval", 1)
    return Schema("int64", optional, f"{TIME}.MicroDuration", 1)


Make = Callable[[CatalogColumn, HandlingModes, bool], "Schema | None"]


def _always(type_name: str, name: str | None = None) -> Make:
    return lambda column, modes, optional: Schema(type_name, optional, name, None if name is None else 1)


_BY_KIND: Mapping[str, Make] = {
    **dict.fromkeys(("NUMBER", "FLOAT"), _number),
    "BINARY_FLOAT": _always("float"),
    "BINARY_DOUBLE": _always("double"),
    **dict.fromkeys(("CHAR", "VARCHAR2", "NCHAR", "NVARCHAR2", "CLOB", "NCLOB", "ROWID"), _always("string")),
    "XMLTYPE": _always("string", f"{DEBEZIUM}.Xml"),
    "JSON": _always("string", f"{DEBEZIUM}.Json"),
    **dict.fromkeys(
        ("RAW", "BLOB"),
        lambda column, modes, optional: Schema("bytes" if modes.binary == "bytes" else "string", optional),
    ),
    **dict.fromkeys(("DATE", "TIMESTAMP"), _timestamp),
    **dict.fromkeys(
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP WITH LOCAL TIME ZONE"), _always("string", f"{TIME}.ZonedTimestamp")
    ),
    **dict.fromkeys(("INTERVAL YEAR TO MONTH", "INTERVAL DAY TO SECOND"), _interval),
}
