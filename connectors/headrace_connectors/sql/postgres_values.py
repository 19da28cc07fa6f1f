"""PostgreSQL's text as the Connect value that Debezium would have sent (``reselect.md`` section 8).

The event's own schema decides the target: its logical name and parameters identify the decimal, time, hstore and
interval modes. The handling modes and the catalog supply what a schema does not contain (the text form of ``bytea``,
the digits of a ``timestamptz``). Observed on Debezium 3.7.0.Final; section 11 of the page lists its peculiar values.

``reader`` selects the conversion of a column once. The conversion is called per value, and raises ValueError for a text
that the target cannot contain.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from headrace.core.model.catalog import CatalogColumn, HandlingModes
from headrace.core.model.schema import Schema
from headrace_connectors.sql import postgres_shapes, postgres_times
from headrace_connectors.sql.cells import Reader, bytes_writer, truncating
from headrace_connectors.sql.postgres_target import NEGATIVE_INFINITY, POSITIVE_INFINITY, Choice, Target, always
from headrace_connectors.sql.postgres_text import java_order, parse_array, parse_bits, parse_bytea, parse_hstore

NUMERIC_SPECIALS = {"NaN": "NAN", "Infinity": POSITIVE_INFINITY, "-Infinity": NEGATIVE_INFINITY}


def reader(schema: Schema, column: CatalogColumn, modes: HandlingModes) -> Reader:
    """Return the conversion for a column with the event schema ``schema``."""
    kind, typmod = column.type, column.typmod
    while kind.base is not None:
        kind, typmod = kind.base, kind.typmod if typmod < 0 else typmod
    read = _reader(Target(schema, kind, typmod, modes))
    return truncating(read, schema)


def _reader(target: Target) -> Reader:
    schema = target.schema
    if schema.type == "array" and target.kind.element is not None:
        return _array_reader(target)
    if target.semantic in _BY_SEMANTIC:
        return _BY_SEMANTIC[target.semantic](target)
    if target.kind.name in _BY_KIND:
        return _BY_KIND[target.kind.name](target)
    if schema.type in _BY_TYPE:
        return _BY_TYPE[schema.type]
    if target.kind.name in _TEXTS or target.kind.kind == "e":
        return str
    return _unknown_reader(target)


def _array_reader(target: Target) -> Reader:
    declared, items_schema = target.kind.element, target.schema.items
    if declared is None or items_schema is None:
        raise ValueError("an array without the type of its elements")
    element, typmod = declared, target.typmod
    while element.base is not None:
        element, typmod = element.base, element.typmod if typmod < 0 else typmod
    items = Target(items_schema, element, typmod, target.modes, element=True)
    read = _unknown_reader(items) if declared.base is not None else _reader(items)
    precise = items.semantic in ("Decimal", "VariableScaleDecimal")

    def read_all(text: str) -> list[Any] | None:
        texts = parse_array(text)
        if precise and any(part in NUMERIC_SPECIALS for part in texts):
            return None  # the connector cannot write them: the complete array is null
        return [None if part is None else read(part) for part in texts]

    return read_all


_TEXTS = frozenset(
    {"text", "varchar", "bpchar", "char", "name", "citext", "json", "jsonb", "xml", "uuid", "ltree", "tsvector"}
    | {"inet", "cidr", "macaddr", "macaddr8", "isbn", "int4range", "int8range", "numrange"}
    | {"tsrange", "tstzrange", "daterange"}
)


def _unknown_reader(target: Target) -> Reader:
    """``include.unknown.datatypes``: the text's bytes, written like ``bytea``."""
    write = bytes_writer(target.schema, target.modes)
    return lambda text: write(text.encode())


def _bytes_reader(target: Target) -> Reader:
    write = bytes_writer(target.schema, target.modes)
    return lambda text: write(parse_bytea(text))


def _number_reader(target: Target) -> Reader:
    """``numeric`` and ``money`` by decimal mode."""
    clean = _money if target.kind.name == "money" else str
    if target.schema.type in ("double", "float"):
        return lambda text: float(clean(text))
    if target.schema.type == "string":
        negative_scale = target.typmod >= 4 and (target.typmod - 4) & 0x400 != 0
        zeros = "." + "0" * 2046 if negative_scale else ""  # Debezium reads the scale's eleven bits as about 2046
        return lambda text: NUMERIC_SPECIALS.get(text) or clean(text) + zeros
    if target.semantic == "VariableScaleDecimal":
        return lambda text: None if text in NUMERIC_SPECIALS else {"scale": 0, "value": Decimal(clean(text))}
    return lambda text: None if text in NUMERIC_SPECIALS else Decimal(clean(text))


def _money(text: str) -> str:
    """``-$1,234.56`` under ``lc_monetary=C``."""
    negative = "-" in text or "(" in text
    return ("-" if negative else "") + "".join(letter for letter in text if letter.isdigit() or letter == ".")


def _boolean(text: str) -> bool:
    if text not in ("t", "f", "1", "0"):
        raise ValueError("not a boolean or a bit")
    return text in ("t", "1")


def _hstore_reader(target: Target) -> Reader:
    if target.schema.type == "map":
        return lambda text: java_order(parse_hstore(text))
    return lambda text: json.dumps(java_order(parse_hstore(text)), ensure_ascii=False, separators=(",", ":"))


_BY_SEMANTIC: Mapping[str, Choice] = {
    "Decimal": _number_reader,
    "VariableScaleDecimal": _number_reader,
    "Bits": always(parse_bits),
    "Json": lambda target: _hstore_reader(target) if target.kind.name == "hstore" else str,
    **postgres_times.BY_SEMANTIC,
    **postgres_shapes.BY_SEMANTIC,
}
_BY_KIND: Mapping[str, Choice] = {
    "numeric": _number_reader,
    "money": _number_reader,
    "bytea": _bytes_reader,
    "hstore": _hstore_reader,
    **postgres_times.BY_KIND,
}
_BY_TYPE: Mapping[str, Reader] = {
    "boolean": _boolean,
    "int8": int,
    "int16": int,
    "int32": int,
    "int64": int,
    "float": float,
    "double": float,
}
