"""Notes on nulls that a table may lack: those that hide a value, and those that became a column's default."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from headrace.core.decode.envelope import EnvelopeOptions, TopicDecoder
from headrace.core.decode.envelope_columns import DEFAULT_OF_NULLABLE, HIDDEN_NULL
from headrace.core.model.catalog import CatalogColumn, CatalogTable, NoCatalog, SqlType
from headrace.core.model.events import TableId
from headrace.core.model.notes import Note

TEXT = {"type": "string", "optional": True}
ARRAY = {"type": "array", "items": {"type": "int16", "optional": True}, "optional": True}


@dataclass(frozen=True)
class Record:
    """A record as decoders read it."""

    key: bytes
    value: bytes | None
    offset: int
    partition: int = 0
    timestamp: int = 7
    headers: Sequence[tuple[str, bytes]] = ()


class WithArray(NoCatalog):
    """The catalog of a database whose table has an array."""

    def table(self, table: TableId) -> CatalogTable:
        """The array may be stored out of line."""
        small = SqlType(21, "pg_catalog", "int2")
        array = SqlType(1005, "pg_catalog", "_int2", element=small)
        return CatalogTable(table, "r", "d", (CatalogColumn("v", 2, array, attstorage="x"),))


def notes(
    column: dict[str, Any], *events: tuple[str, Any], connector: str = "postgresql", **options: Any
) -> list[Note]:
    """Return the notes on a table with the column ``v``, of which each event has a value."""
    catalog = options.pop("catalog", None)
    row = {"type": "struct", "optional": True, "fields": [{"type": "int64", "field": "id"}, column | {"field": "v"}]}
    names = ("connector", "name", "db", "schema", "table")
    source = {"type": "struct", "fields": [{"type": "string", "optional": True, "field": name} for name in names]}
    fields = [row | {"field": "after"}, source | {"field": "source"}, {"type": "string", "field": "op"}]
    envelope = {"type": "struct", "name": "shop.Envelope", "fields": fields}
    key = {"schema": {"type": "struct", "fields": [{"type": "int64", "field": "id"}]}, "payload": {"id": 1}}
    decoder = TopicDecoder("t", EnvelopeOptions(**options), catalog)
    found = []
    for offset, (op, value) in enumerate(events):
        after = None if op == "d" else {"id": 1, "v": value}
        payload = {"after": after, "op": op, "source": {"connector": connector, "name": "shop", "table": "items"}}
        document = json.dumps({"schema": envelope, "payload": payload}).encode()
        decoded = decoder.decode([Record(json.dumps(key).encode(), document, offset)])
        assert decoded.errant == []
        found += decoded.notes
    return [note for note in found if note.column == "v"]


def test_a_null_that_may_hide_a_value_is_noted_without_a_database() -> None:
    """An update to NULL of an array of PostgreSQL looks as an update that omits it: the note names column and way."""
    assert notes(ARRAY, ("c", [1]), ("u", None), ("u", None)) == [Note(HIDDEN_NULL.text, "v")]
    assert notes(TEXT, ("u", None), connector="oracle") == [Note(HIDDEN_NULL.text, "v")]


@pytest.mark.parametrize("event", [("c", None), ("r", None), ("u", [1]), ("d", None)])
def test_a_null_that_hides_nothing_is_not_noted(event: tuple[str, Any]) -> None:
    """Inserts, snapshot reads and deletes hide no value."""
    assert notes(ARRAY, event) == []


def test_types_whose_nulls_are_values_are_not_noted() -> None:
    """A null of a text is a null in PostgreSQL, and every null is one in MySQL."""
    assert notes(TEXT, ("u", None)) == []
    assert notes(ARRAY, ("u", None), connector="mysql") == []


def test_a_null_that_the_database_resolves_is_not_noted() -> None:
    """The database has the value or the null."""
    assert notes(ARRAY, ("u", None), catalog=WithArray()) == []


def test_a_default_of_a_nullable_column_is_noted_until_a_null_arrives() -> None:
    """The source's converter may have written the default in the place of a null, unless a null has arrived."""
    column = TEXT | {"default": "dx"}
    assert notes(column, ("c", "dx"), ("u", "a")) == [Note(DEFAULT_OF_NULLABLE.text, "v")]
    assert notes(column, ("c", None), ("u", "dx")) == []


@pytest.mark.parametrize("column", [TEXT, {"type": "string", "default": "dx"}])
def test_other_columns_have_no_note(column: dict[str, Any]) -> None:
    """Without a default nothing can be replaced, and a column that accepts no NULL has none."""
    assert notes(column, ("c", "dx"), ("d", None)) == []
