"""Rules for each column of a table: whether it is reselected, and whether it is cached.

Made from the options, the database's catalog (when there is one) and the events' schemas. ``reselect.md`` sections 3.4,
5.1 and 8.1 describe where the cache is off, what is cacheable, and how masked and truncated columns are handled.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from headrace.core.model.catalog import CatalogColumn, CatalogTable, Dialect
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.column_lists import ColumnFilter
from headrace.core.reselect.identity import has_exact_key, row_identity
from headrace.core.reselect.options import ReselectOptions

FIXED_STRUCTS = ("Point", "Line", "Circle")
"""Structs of fixed length, which are never stored out of line."""


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """One column: ``readable`` from the source, ``cacheable``, reselected when null (``nulls``), ``nullable``.

    A null of a ``generated`` column is not the event's (section 2.6): it is read again, or the batch waits for that.
    ``fingerprint`` describes the form of its values; a cached value with another fingerprint is not served.
    """

    readable: bool = False
    cacheable: bool = False
    nulls: bool = False
    nullable: bool = True
    generated: bool = False
    fingerprint: str = ""


NO_RULE = ColumnRule()


_DEFAULTS = ReselectOptions()


@dataclass(frozen=True, slots=True)
class TableRules:
    """The rules of one table. ``serves_nulls`` is False where a cached null contradicts a placeholder (PostgreSQL).

    ``identity`` names the columns by which the source finds a row. ``shape`` changes whenever the events' schema, the
    key or the catalog does: then cached rows mean something else.
    """

    columns: Mapping[str, ColumnRule] = field(default_factory=dict)
    identity: tuple[str, ...] = ()
    shape: str = ""
    has_source: bool = False
    serves_nulls: bool = False
    source_reads: str = _DEFAULTS.source_reads
    unavailable_values: bool = _DEFAULTS.unavailable_values
    unknown_null_mode: str = _DEFAULTS.unknown_null_mode
    unresolved_insert_mode: str = _DEFAULTS.unresolved_insert_mode

    def column(self, name: str) -> ColumnRule:
        """Return the rule of a column; a column without a rule is neither read nor cached."""
        return self.columns.get(name, NO_RULE)

    @property
    def caches(self) -> bool:
        """Whether any column is cached."""
        return any(rule.cacheable for rule in self.columns.values())

    @property
    def fingerprints(self) -> Mapping[str, str]:
        """The fingerprints of the cached columns."""
        return {name: rule.fingerprint for name, rule in self.columns.items() if rule.cacheable}


def table_rules(
    table: TableId,
    columns: tuple[Column, ...],
    key_fields: tuple[str, ...],
    options: ReselectOptions,
    catalog: CatalogTable | None,
    *,
    has_source: bool,
    may_cache: bool = True,
) -> TableRules:
    """Return the rules for a table whose events have ``columns``. ``may_cache`` is False if topics lack events."""
    selected = ColumnFilter(options.columns_include_list, options.columns_exclude_list)
    names = tuple(column.name for column in columns)
    identity = row_identity(table, names, key_fields, options, catalog)
    key = [column for column in columns if column.name in key_fields]
    identified = set(identity.columns) <= set(key_fields) and identity.unique
    cache = options.caches and may_cache and identified and has_exact_key(table, key, catalog)
    has_source = has_source and not options.keeps_history
    rules = {
        column.name: _column_rule(column, options, catalog, has_source, cache)
        for column in columns
        if column.name not in key_fields and selected.matches(table, column.name)
    }
    return TableRules(
        rules,
        identity=identity.asked,
        # Streamed events lack generated columns, which the catalog describes.
        shape=digest((key_fields, _described(columns, catalog), catalog)),
        has_source=has_source,
        serves_nulls=catalog is not None and catalog.dialect is Dialect.ORACLE,
        source_reads=options.source_reads,
        unavailable_values=options.unavailable_values,
        unknown_null_mode=options.unknown_null_mode,
        unresolved_insert_mode=options.unresolved_insert_mode,
    )


def _described(columns: tuple[Column, ...], catalog: CatalogTable | None) -> tuple[tuple[str, Schema], ...]:
    generated = {column.name for column in catalog.columns if column.generated} if catalog is not None else set()
    return tuple((column.name, column.schema) for column in columns if column.name not in generated)


def _column_rule(
    column: Column, options: ReselectOptions, catalog: CatalogTable | None, has_source: bool, cache: bool
) -> ColumnRule:
    known = None if catalog is None else catalog.column(column.name)
    masked = column.schema.parameter("masked") == "true"
    readable = has_source and not masked and (catalog is None or known is not None)
    truncated = column.schema.parameter("truncateLength") is not None
    omittable = may_be_omitted(column.schema) if known is None else known.omittable
    # Without lob.enabled a large object of Oracle changes without an event (section 2.3).
    silent = catalog is not None and catalog.dialect is Dialect.ORACLE and not options.modes.lob_enabled
    generated = known is not None and known.generated
    return ColumnRule(
        readable=readable,
        cacheable=cache and omittable and not (masked or truncated or silent or generated),
        nulls=readable and (generated or (options.null_values and _nullable(column.schema, known))),
        generated=generated,
        nullable=_nullable(column.schema, known),
        fingerprint=digest((column.schema, known)),
    )


@lru_cache(maxsize=4096)
def digest(described: Hashable) -> str:
    """Return a text for a value, the same in every process; equal values have equal texts."""
    return blake2b(repr(described).encode(), digest_size=16).hexdigest()


def _nullable(schema: Schema, column: CatalogColumn | None) -> bool:
    return schema.optional if column is None else not column.not_null


def may_be_omitted(schema: Schema) -> bool:
    """Return whether a type has values of any length, which a source may store out of line, without a catalog."""
    if schema.type == "struct":
        return not (schema.name or "").endswith(FIXED_STRUCTS)
    return schema.type in ("string", "bytes", "array", "map")
