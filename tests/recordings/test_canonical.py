"""Checks the comparison itself against the recordings, without a lake: the events equal ``canonical`` of the dump."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest
from recordings.comparison import compared_tables, expectation, problems, records_of, row_key
from recordings.differences import NEVER_TYPED
from recordings.images import key_fields, last_images
from recordings.records import ALL, variant

from headrace.core.model.unavailable import Placeholder

OMITTING = ("public.toast_t", "public.toast_life", "public.toast_full")


def _without(names: Collection[str], row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in row.items() if name not in names}


@pytest.mark.parametrize("name", ALL)
def test_wire_equals_dump(name: str) -> None:
    """The last event of a row equals the dump in every type and mode, or is a named difference."""
    of = variant(name)
    placeholder = Placeholder(of.placeholder)
    found: dict[str, list[str]] = {}
    for table in compared_tables(of):
        records = records_of(table, of)
        fields = key_fields(records, of)
        omitting = table.name in OMITTING
        never = NEVER_TYPED.get(table.name, ()) if of.bare else ()

        def untold(column: str, value: Any, omitting: bool = omitting) -> bool:
            return placeholder.is_form(value) or (omitting and value is None)

        have = {row_key(row, fields): _without(never, row) for row in last_images(records, of)}
        found[table.name] = problems(
            expectation(table, of, fields, typed=not of.bare), have, reselected=True, untold=untold
        )
    assert {table: lines for table, lines in found.items() if lines} == {}
