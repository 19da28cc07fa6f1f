"""Rules decide which columns may be read again and cached (``reselect.md`` sections 3.4, 5.1 and 8.1)."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from headrace.core.model.catalog import (
    CatalogColumn,
    CatalogTable,
    Dialect,
    HandlingModes,
    KeyColumn,
    SqlType,
    avro_name,
)
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema
from headrace.core.reselect.options import ReselectOptions
from headrace.core.reselect.rules import ColumnRule, table_rules

TABLE = TableId("shop", "inventory", "public", "orders")
OPTIONS = ReselectOptions(cache_enabled=True)
TEXT = SqlType(25, "pg_catalog", "text")
ID, BIG = Schema("int32"), Schema("string", optional=True)


def rule(
    schema: Schema = BIG,
    column: CatalogColumn | None = None,
    key: SqlType = TEXT,
    key_schema: Schema = ID,
    known: bool = True,
    may_cache: bool = True,
    deterministic: bool = True,
) -> ColumnRule:
    columns = (Column("id", key_schema, pa.nulls(0)), Column("big", schema, pa.nulls(0)))
    big = column or CatalogColumn("big", 2, TEXT, attstorage="x")
    identity = (KeyColumn("id", key, deterministic=deterministic),)
    catalog = CatalogTable(TABLE, "r", "d", (CatalogColumn("id", 1, key), big), identity) if known else None
    return table_rules(TABLE, columns, ("id",), OPTIONS, catalog, has_source=True, may_cache=may_cache).column("big")


def test_column_that_events_may_omit() -> None:
    """A column that events may omit is readable, cacheable, and reselected when null."""
    assert (rule().readable, rule().cacheable, rule().nulls, rule().nullable) == (True, True, True, True)


@pytest.mark.parametrize("lob_enabled", [True, False])
def test_large_object_of_oracle_is_cached_only_with_lob_enabled(lob_enabled: bool) -> None:
    """S1b, S20: a CLOB is cached only with ``lob.enabled``, since without it a change of a CLOB sends no event."""
    clob = SqlType(0, "SYS", "CLOB")
    big = CatalogColumn("big", 2, clob, attlen=-1, attstorage="x")
    number = CatalogColumn("id", 1, SqlType(0, "SYS", "NUMBER"))
    identity = (KeyColumn("id", number.type),)
    catalog = CatalogTable(TABLE, "r", "d", (number, big), identity, dialect=Dialect.ORACLE)
    options = ReselectOptions(cache_enabled=True, modes=HandlingModes(lob_enabled=lob_enabled))
    columns = (Column("id", ID, pa.nulls(0)), Column("big", BIG, pa.nulls(0)))
    rules = table_rules(TABLE, columns, ("id",), options, catalog, has_source=True)
    assert (rules.column("big").readable, rules.column("big").cacheable) == (True, lob_enabled)
    assert rules.serves_nulls


def test_masked_column_is_neither_read_nor_cached() -> None:
    """N10: a masked column is neither read nor cached, because a reselect would return the real value."""
    masked = rule(replace(BIG, parameters=(("masked", "true"),)))
    assert (masked.readable, masked.cacheable) == (False, False)


def test_truncated_column_is_read_but_not_cached() -> None:
    """A truncated column is read and not cached, because its placeholder may be too short to recognize."""
    cut = rule(replace(BIG, parameters=(("truncateLength", "10"),)))
    assert (cut.readable, cut.cacheable) == (True, False)


def test_column_that_is_not_in_the_catalog_is_not_read() -> None:
    """A column that the catalog does not contain, because it was dropped, is not read."""
    assert not rule(column=CatalogColumn("other", 2, TEXT, attstorage="x")).readable


@pytest.mark.parametrize("storage", [("p", -1), ("x", 8)])
def test_columns_stored_in_line_are_not_cached(storage: tuple[str, int]) -> None:
    """A column that PostgreSQL always stores in the row is not cached, because events never omit it."""
    assert not rule(column=CatalogColumn("big", 2, TEXT, attstorage=storage[0], attlen=storage[1])).cacheable


@pytest.mark.parametrize("key", ["citext", "float4", "float8"])
def test_s26_tables_whose_keys_are_not_equal_byte_by_byte_are_not_cached(key: str) -> None:
    """S26: a table whose equal keys may have different texts is read and not cached."""
    assert not rule(key=SqlType(1, "public", key)).cacheable
    assert rule(key=SqlType(1, "public", key)).readable


def test_s26_nondeterministic_collation_and_float_keys_without_catalog() -> None:
    """S26: a nondeterministic collation, or without a catalog a float key in the event's schema, prevents caching."""
    assert not rule(deterministic=False).cacheable
    assert not rule(known=False, key_schema=Schema("double")).cacheable
    assert rule(known=False).cacheable


def test_without_may_cache_a_column_is_read_and_not_cached() -> None:
    """With ``may_cache=False`` no column is cached; which topics get it is tested with the pipeline."""
    found = rule(may_cache=False)
    assert (found.readable, found.cacheable) == (True, False)


def test_fingerprint_follows_schema_and_catalog() -> None:
    """S22: another type, or another column of the same name, changes the fingerprint."""
    again = rule(column=CatalogColumn("big", 3, TEXT, attstorage="x"))
    assert again.fingerprint != rule().fingerprint
    assert rule(replace(BIG, name="io.debezium.data.Json")).fingerprint != rule().fingerprint


@pytest.mark.parametrize(("name", "adjusted"), [("with space", "with_space"), ("1st", "_1st"), ("emoji😀", "emoji__")])
def test_adjusted_names(name: str, adjusted: str) -> None:
    """A name adjusted by ``field.name.adjustment.mode=avro`` finds its column, unless two columns match."""
    assert avro_name(name) == adjusted
    columns = (CatalogColumn(name, 1, TEXT), CatalogColumn("a.b", 2, TEXT), CatalogColumn("a b", 3, TEXT))
    table = CatalogTable(TABLE, "r", "d", columns)
    assert table.column(adjusted) is columns[0]
    assert table.column("a_b") is None
