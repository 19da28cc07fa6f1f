"""The text of Oracle's batched SELECT, parsed by sqlglot."""

from __future__ import annotations

from fake_oracle import sql
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from headrace_connectors.sql.oracle_query import (
    SLOTS,
    KeyBind,
    cell_expression,
    key_bind,
    need_bind,
    select_rows,
    slots_for,
)

NAMES = st.text(st.characters(codec="utf-8", exclude_characters='"\x00'), min_size=1, max_size=20).filter(str.strip)
KINDS = ("NUMBER", "CLOB", "TIMESTAMP WITH TIME ZONE", "DATE", "XMLTYPE", "JSON")


@given(NAMES, NAMES, st.lists(st.tuples(NAMES, st.sampled_from(KINDS)), max_size=4), st.booleans())
def test_names_are_quoted(owner: str, table: str, columns: list[tuple[str, str]], as_of_scn: bool) -> None:
    """Every identifier is quoted, with and without AS OF SCN, and parsed as the same name."""
    key = [KeyBind(name, "NUMBER", "CAST({} AS NUMBER)") for name in (owner, table)]
    cells = [cell_expression(name, kind) for name, kind in columns]
    tree = sql.parse(select_rows((owner, table), key, cells, 1, as_of_scn=as_of_scn))
    (source,) = [node for node in tree.find_all(exp.Table) if node.db]
    assert (source.db, source.name) == (owner, table)
    quoted = {node.name for node in tree.find_all(exp.Identifier) if node.quoted}
    assert quoted == {owner, table, *(name for name, _ in columns)}


def test_every_slot_has_its_binds() -> None:
    """Each slot has a bind for its key and one for each mask of columns; the statement has one for the SCN."""
    cells = [cell_expression(f"C{number}", "NUMBER") for number in range(63)]
    tree = sql.parse(select_rows(("O", "T"), [KeyBind("K", "NUMBER", "CAST({} AS NUMBER)")], cells, 8, as_of_scn=True))
    slots = range(1, 9)
    expected = {key_bind(1, slot) for slot in slots} | {need_bind(n, slot) for n in (1, 2) for slot in slots}
    assert sql.bind_names(tree) == expected | {"scn"}


def test_slots_bound_the_number_of_statements() -> None:
    """Any number of keys is padded to one of four numbers of slots."""
    assert {slots_for(keys) for keys in range(1, 2000)} == set(SLOTS)
