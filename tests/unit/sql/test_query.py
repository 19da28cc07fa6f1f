"""The SELECT is one constant text whatever the rows, and no name or value gets out of its quotes."""

from __future__ import annotations

import numpy as np

from headrace_connectors.sql.query import KeyTerm, array_literal, masks, quoted, select_rows

KEY = [KeyTerm("Id", ("pg_catalog", "int8"), ("pg_catalog", "=")), KeyTerm("order", ("app", "Region"), ("ext", "="))]


def test_statement_of_the_reference() -> None:
    """Keys and masks as arrays, the index's operators, CASE per column, ONLY for plain tables."""
    assert select_rows(("public", "Orders"), KEY, ["payload", "Doc"], only=True) == (
        'SELECT k.ord, CASE WHEN k.need1 & 1 <> 0 THEN t."payload" END, CASE WHEN k.need1 & 2 <> 0 THEN t."Doc" END '
        'FROM unnest($1::"pg_catalog"."int8"[], $2::"app"."Region"[], $3::pg_catalog.int8[]) '
        'WITH ORDINALITY AS k(k1, k2, need1, ord) JOIN ONLY "public"."Orders" AS t '
        'ON t."Id" OPERATOR("pg_catalog".=) k.k1 AND t."order" OPERATOR("ext".=) k.k2'
    )


def test_partitioned_roots_are_read_with_their_partitions() -> None:
    """ONLY would find no row in a root."""
    assert 'JOIN "public"."root" AS t' in select_rows(("public", "root"), KEY[:1], ["a"], only=False)


def test_names_cannot_leave_their_quotes() -> None:
    """A quote in a name is doubled."""
    assert quoted('a"b; DROP', "c.d") == '"a""b; DROP"."c.d"'


def test_array_elements_cannot_leave_theirs() -> None:
    """Quotes, backslashes, commas, braces and the word NULL are content."""
    assert array_literal(['a"b', "c\\d", "e,f{}", "NULL", "", None]) == r'{"a\"b","c\\d","e,f{}","NULL","",NULL}'


def test_masks_hold_62_columns_each() -> None:
    """The 63rd column begins a second mask."""
    needs = np.zeros((2, 63), np.bool_)
    needs[0, [0, 61]] = True
    needs[1, 62] = True
    assert [mask.tolist() for mask in masks(needs)] == [[1 + (1 << 61), 0], [0, 1]]
