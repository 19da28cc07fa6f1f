"""The text of PostgreSQL's batched SELECT is constant for any rows, and names and values are quoted."""

from __future__ import annotations

import numpy as np

from headrace_connectors.sql.query import KeyTerm, array_literal, masks, quoted, select_rows

KEY = [KeyTerm("Id", ("pg_catalog", "int8"), ("pg_catalog", "=")), KeyTerm("order", ("app", "Region"), ("ext", "="))]


def test_select_statement() -> None:
    """The SELECT has keys and masks as arrays, the index's operators, one CASE per column and ONLY for plain tables."""
    assert select_rows(("public", "Orders"), KEY, ["payload", "Doc"], only=True) == (
        'SELECT k.ord, CASE WHEN k.need1 & 1 <> 0 THEN t."payload" END, CASE WHEN k.need1 & 2 <> 0 THEN t."Doc" END '
        'FROM unnest($1::"pg_catalog"."int8"[], $2::"app"."Region"[], $3::pg_catalog.int8[]) '
        'WITH ORDINALITY AS k(k1, k2, need1, ord) JOIN ONLY "public"."Orders" AS t '
        'ON t."Id" OPERATOR("pg_catalog".=) k.k1 AND t."order" OPERATOR("ext".=) k.k2'
    )


def test_partitioned_roots_are_read_with_their_partitions() -> None:
    """The SELECT of a partitioned table has no ONLY, which would exclude its partitions."""
    assert 'JOIN "public"."root" AS t' in select_rows(("public", "root"), KEY[:1], ["a"], only=False)


def test_names_are_escaped() -> None:
    """A quote in a name is doubled."""
    assert quoted('a"b; DROP', "c.d") == '"a""b; DROP"."c.d"'


def test_array_elements_are_escaped() -> None:
    """Quotes and backslashes are escaped; commas, braces and the word NULL are quoted."""
    assert array_literal(['a"b', "c\\d", "e,f{}", "NULL", "", None]) == r'{"a\"b","c\\d","e,f{}","NULL","",NULL}'


def test_masks_hold_62_columns_each() -> None:
    """The 63rd column begins a second mask."""
    needs = np.zeros((2, 63), np.bool_)
    needs[0, [0, 61]] = True
    needs[1, 62] = True
    assert [mask.tolist() for mask in masks(needs)] == [[1 + (1 << 61), 0], [0, 1]]
