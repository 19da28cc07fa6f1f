"""The identity of a row, for reads from the source and for cache entries (``reselect.md`` sections 1.4 and 5.1).

The message key may differ from it: ``message.key.columns`` at the source connector may name any columns, unique or not.
The identity is the primary key in the catalog, or ``reselect.key.columns``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headrace.core.model.catalog import CatalogColumn, CatalogTable
from headrace.core.model.events import Column, TableId
from headrace.core.reselect.column_lists import KeyColumns
from headrace.core.reselect.options import ReselectOptions

FLOATING = frozenset({"float", "double"})
_EXACT = frozenset(
    {"int2", "int4", "int8", "oid", "bool", "uuid", "bytea", "numeric"}
    | {"text", "varchar", "bpchar", "char", "name", "inet", "cidr", "macaddr", "macaddr8"}
    | {"date", "time", "timestamp", "timestamptz"}
    | {"NUMBER", "CHAR", "NCHAR", "VARCHAR2", "NVARCHAR2", "RAW", "DATE", "TIMESTAMP"}
)
"""Key types whose equal values have equal canonical texts, and whose different values have different ones."""
_MILLISECONDS = ("org.apache.kafka.connect.data.Time", "org.apache.kafka.connect.data.Timestamp")


@dataclass(frozen=True, slots=True)
class Identity:
    """``columns`` identify a row, with certainty if ``unique``; ``asked`` are those in a read's condition."""

    columns: tuple[str, ...]
    asked: tuple[str, ...]
    unique: bool


def row_identity(
    table: TableId,
    names: Sequence[str],
    key_fields: tuple[str, ...],
    options: ReselectOptions,
    catalog: CatalogTable | None,
) -> Identity:
    """Return the identity of a table's rows in the events' field names; ``names`` are the events' columns.

    Without a catalog the message key is trusted. ``reselect.use.event.key`` reads by it in any case.
    """
    declared = KeyColumns(options.key_columns).of(table) or _catalog_key(names, catalog)
    known = bool(declared) and set(declared) <= set(names)
    columns = declared if known else key_fields
    asked = key_fields if options.use_event_key and key_fields else columns
    return Identity(columns, asked, unique=known or catalog is None)


def _catalog_key(names: Sequence[str], catalog: CatalogTable | None) -> tuple[str, ...]:
    """The catalog's key in the events' names (``field.name.adjustment.mode`` may have changed them)."""
    if catalog is None:
        return ()
    spelled = {known.name: name for name in names if (known := catalog.column(name)) is not None}
    return tuple(spelled.get(part.name, part.name) for part in catalog.key)


def has_exact_key(table: TableId, key: Sequence[Column], catalog: CatalogTable | None) -> bool:
    """Return whether keys that are equal in the database, and no others, share a canonical text (section 5.1)."""
    if any(column.schema.type in FLOATING for column in key):
        return False
    if catalog is None:
        # MySQL, which has no schemas, compares texts by a collation for which different letters may be equal.
        return bool(table.schema) or not any(column.schema.type == "string" for column in key)
    deterministic = all(part.deterministic for part in catalog.key)
    return deterministic and all(_is_exact(column, catalog.column(column.name)) for column in key)


def _is_exact(column: Column, known: CatalogColumn | None) -> bool:
    if known is None:
        return False
    sql_type = known.type.resolved()
    if sql_type.name == "numeric" and column.schema.type == "string":
        return False  # 1.5 and 1.50 are equal, their texts are not
    if column.schema.name in _MILLISECONDS and not 0 <= known.typmod <= 3:
        return False  # the event has milliseconds only
    return sql_type.name in _EXACT or sql_type.kind == "e"
