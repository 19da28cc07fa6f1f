"""Rules for each column of a table: whether it is reselected, and whether it is cached.

Made from the options, the database's catalog (when there is one) and the events' schemas. ``reselect.md`` sections 3.4,
5.1 and 8.1 describe where the cache is off, what is cacheable, and how masked and truncated columns are handled.

The syntax of the column lists is that of Debezium's ``ReselectColumnsPostProcessor`` (section 3). The message key may
differ from the identity of a row (sections 1.4 and 5.1): ``message.key.columns`` at the source connector may name any
columns, unique or not. The identity is the primary key in the catalog, or ``reselect.key.columns``.

Tests: ``tests/unit/core/reselect/test_reselect_rules.py``.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

from headrace.core.connect.java_patterns import OnlyJava, TooCostly, check_cost, python_pattern
from headrace.core.model.catalog import CatalogColumn, CatalogTable, Dialect
from headrace.core.model.errors import ConfigError
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions


class ColumnFilter:
    """``reselect.columns.include.list`` and ``.exclude.list``: each part a regex over ``schema.table:column``.

    Matching is whole-text and ASCII case-insensitive, as in Debezium (section 3.3). Without lists all columns match.
    """

    def __init__(self, include: str = "", exclude: str = "") -> None:
        if include and exclude:
            raise ConfigError(
                "reselect.columns.include.list and reselect.columns.exclude.list are both set; keep one of them",
                "reselect.columns.exclude.list",
            )
        self._include = _patterns(include, "reselect.columns.include.list")
        self._exclude = _patterns(exclude, "reselect.columns.exclude.list")

    def matches(self, table: TableId, column: str) -> bool:
        """Whether a column is selected. ``table.schema`` is empty for databases without schemas (MySQL)."""
        name = f"{table.schema or table.database}.{table.table}:{column}"
        if self._include:
            return any(pattern.fullmatch(name) for pattern in self._include)
        return not any(pattern.fullmatch(name) for pattern in self._exclude)


class KeyColumns:
    """``reselect.key.columns``: ``schema.table:column,column;…``, in the form of Debezium's ``message.key.columns``.

    The part before the colon is a regex over ``schema.table``, matched like those of the column lists. Raises
    ConfigError for an entry without columns.
    """

    def __init__(self, text: str = "") -> None:
        key = "reselect.key.columns"
        self._entries: list[tuple[re.Pattern[str], tuple[str, ...]]] = []
        for entry in text.split(";"):
            pattern, _, names = entry.strip().rpartition(":")
            columns = tuple(name.strip() for name in names.split(",") if name.strip())
            if pattern.strip() and columns:
                self._entries.append((_compile(pattern.strip(), key), columns))
            elif entry.strip():
                raise ConfigError(f"{key}: {entry.strip()!r} is not schema.table:column,column", key)

    def of(self, table: TableId) -> tuple[str, ...]:
        """The columns that identify a row of ``table``, or none where the list does not name it."""
        name = f"{table.schema or table.database}.{table.table}"
        return next((columns for pattern, columns in self._entries if pattern.fullmatch(name)), ())


def _patterns(text: str, key: str) -> tuple[re.Pattern[str], ...]:
    return tuple(_compile(part, key) for part in _split(text, key))


def _compile(part: str, key: str) -> re.Pattern[str]:
    try:
        pattern = python_pattern(part)
        check_cost(pattern, re.IGNORECASE)
        return re.compile(pattern, re.IGNORECASE | re.ASCII)
    except OnlyJava as error:
        raise ConfigError(f"{key}: {part!r} is not supported: {error}", key) from error
    except TooCostly as error:
        raise ConfigError(f"{key}: {part[:200]!r} may take very long: {error}", key) from error
    except re.error as error:
        raise ConfigError(f"{key}: {part!r} is not a regular expression: {error}", key) from error


def _split(text: str, key: str) -> Iterator[str]:
    r"""Parts between commas; ``\,`` is a comma, every other backslash pair stays as it is."""
    part, letters = "", iter(text)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, None)
            if escaped is None:
                raise ConfigError(f"{key}: the list ends in a lone backslash", key)
            part += "," if escaped == "," else letter + escaped
        elif letter == ",":
            yield from [part.strip()] if part.strip() else []
            part = ""
        else:
            part += letter
    yield from [part.strip()] if part.strip() else []


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
    declared = KeyColumns(options.key_columns).of(table)  # proven: S25
    if not declared and catalog is not None:  # ``field.name.adjustment.mode`` may have changed the events' names
        event_names = {column.name: name for name in names if (column := catalog.column(name)) is not None}
        declared = tuple(event_names.get(part.name, part.name) for part in catalog.key)
    is_declared = bool(declared) and set(declared) <= set(names)
    columns = declared if is_declared else key_fields
    asked = key_fields if options.use_event_key and key_fields else columns
    return Identity(columns, asked, unique=is_declared or catalog is None)


def has_exact_key(table: TableId, key: Sequence[Column], catalog: CatalogTable | None) -> bool:
    """Return whether keys that are equal in the database, and no others, share a canonical text (section 5.1)."""
    if any(column.schema.type in FLOATING for column in key):
        return False
    if catalog is None:
        # MySQL, which has no schemas, compares texts by a collation for which different letters may be equal.
        return bool(table.schema) or not any(column.schema.type == "string" for column in key)
    deterministic = all(part.deterministic for part in catalog.key)
    return deterministic and all(_is_exact(column, catalog.column(column.name)) for column in key)  # proven: S26


def _is_exact(column: Column, catalog_column: CatalogColumn | None) -> bool:
    if catalog_column is None:
        return False
    sql_type = catalog_column.type.base_type()
    if sql_type.name == "numeric" and column.schema.type == "string":
        return False  # 1.5 and 1.50 are equal, their texts are not
    if column.schema.name in _MILLISECONDS and not 0 <= catalog_column.typmod <= 3:
        return False  # the event has milliseconds only
    return sql_type.name in _EXACT or sql_type.kind == "e"


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
        return self.columns.get(name, NO_RULE)

    @property
    def caches(self) -> bool:
        return any(rule.cacheable for rule in self.columns.values())

    @property
    def fingerprints(self) -> Mapping[str, str]:
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
    has_source = has_source and not options.keeps_history  # proven: S14
    rules = {
        column.name: _column_rule(column, options, catalog, has_source, cache)
        for column in columns
        if column.name not in key_fields and selected.matches(table, column.name)
    }
    # Streamed events lack generated columns, which the catalog describes: the shape is the same with and without them.
    generated = {column.name for column in catalog.columns if column.generated} if catalog is not None else set()
    streamed = tuple((column.name, column.schema) for column in columns if column.name not in generated)
    return TableRules(
        rules,
        identity=identity.asked,
        shape=digest((key_fields, streamed, catalog)),
        has_source=has_source,
        serves_nulls=catalog is not None and catalog.dialect is Dialect.ORACLE,
        source_reads=options.source_reads,
        unavailable_values=options.unavailable_values,
        unknown_null_mode=options.unknown_null_mode,
        unresolved_insert_mode=options.unresolved_insert_mode,
    )


def _column_rule(
    column: Column, options: ReselectOptions, catalog: CatalogTable | None, has_source: bool, cache: bool
) -> ColumnRule:
    described = None if catalog is None else catalog.column(column.name)
    masked = column.schema.parameter("masked") == "true"
    readable = has_source and not masked and (catalog is None or described is not None)
    truncated = column.schema.parameter("truncateLength") is not None
    omittable = may_be_omitted(column.schema) if described is None else described.omittable
    # Without lob.enabled a large object of Oracle changes without an event (section 2.3).
    silent = catalog is not None and catalog.dialect is Dialect.ORACLE and not options.modes.lob_enabled
    generated = described is not None and described.generated
    return ColumnRule(
        readable=readable,
        cacheable=cache and omittable and not (masked or truncated or silent or generated),  # proven: S20
        nulls=readable and (generated or (options.null_values and _nullable(column.schema, described))),
        generated=generated,
        nullable=_nullable(column.schema, described),
        fingerprint=digest((column.schema, described)),
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
