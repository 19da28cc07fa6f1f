"""A reselected value equals the value in the event, for every type and handling mode.

The recorded database is loaded from its dump; each row's last event is compared with what reselect reads for it. Cells
that the event omits are not compared; PECULIAR names every other difference with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from recordings.comparison import compared_tables
from recordings.database import load
from recordings.images import connect_value, key_fields, key_text
from recordings.records import DumpedTable, Variant, recording, topic_of, variant

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.catalog import CatalogTable, HandlingModes
from headrace.core.model.errors import BadRecord
from headrace.core.model.events import Column, TableId
from headrace.core.model.schema import Schema, schema_from_json
from headrace.core.model.unavailable import Placeholder
from headrace.core.reselect.options import DatabaseOptions, ReselectOptions
from headrace.core.reselect.rows import UNREADABLE, RowRequest
from headrace_connectors.sql import PostgresRowSource
from headrace_dev.postgres import Postgres

pytestmark = pytest.mark.stack

WITH_SCHEMAS = ("a", "c1", "c2", "c3", "c4", "c5")

PECULIAR = {
    ("public.all_types", "c_name"): "columns of type name stream as null",
    ("public.all_types", "c_date"): "snapshots take dates through java.sql.Date",
    ("public.all_types", "c_ts6"): "MicroTimestamp wraps around after the year 294247",
    ("public.array_types", "a_enum"): "one null element makes the whole enum[] null",
    ("public.array_types", "a_ltree"): "one null element makes the whole ltree[] null",
    ("public.array_types", "a_dom"): "one null element makes the whole array of a domain null",
    ("public.array_types", "a_numeric"): "NaN in a numeric[] makes it null in every mode",
    ("public.array_types", "a_bit"): "bit[] is always null",
    ("public.array_types", "a_int4_2d"): "arrays of several dimensions are written as nulls",
    ("public.array_types", "a_text_2d"): "arrays of several dimensions are written as Java addresses",
}
STRUCTURED_KEYS = ("public.key_date_enum", "public.key_tstz", "public.part_t")
"""Tables whose key is a struct in variant c5: rows are not found again by those."""
INEXACT_KEYS = ("public.key_num",)
"""Tables whose key, a numeric without scale, travels as a double in variant c1."""


@dataclass(frozen=True, slots=True)
class Image:
    """The last event of a row: its schema and its cells as JSON."""

    schema: Schema
    cells: dict[str, Any]

    def array(self, name: str) -> pa.Array | None:
        """One cell as a column, None if no lake column can contain it."""
        schema = self.schema.field(name)
        assert schema is not None
        try:
            return build_array(schema, [connect_value(schema, self.cells[name])])
        except BadRecord:
            return None


@pytest.fixture(scope="module")
def inventory(contrib_postgres: Postgres) -> DatabaseOptions:
    """The recorded database in its end state."""
    contrib_postgres.create_database("inventory_read")
    with contrib_postgres.connect("inventory_read") as connection:
        load(connection, variant("a"))
    return DatabaseOptions("127.0.0.1", contrib_postgres.port, "postgres", "", "inventory_read")


@pytest.mark.parametrize("name", WITH_SCHEMAS)
def test_read_value_equals_event_value(name: str, inventory: DatabaseOptions) -> None:
    """Each value of a row's last event equals the one that reselect reads, or is a named difference."""
    of = variant(name)
    modes = HandlingModes(of.binary, of.decimals, of.hstore, of.intervals, of.times)
    source = PostgresRowSource(ReselectOptions(database=inventory, modes=modes, visibility_check=False))
    try:
        differing = {place for table in _tables(of) for place in _differences(source, table, of)}
    finally:
        source.close()
    assert differing - set(PECULIAR) == set()


@pytest.mark.parametrize("name", [name for name in WITH_SCHEMAS if name not in ("c3", "c4")])
def test_schema_from_the_catalog_is_the_events(name: str, inventory: DatabaseOptions) -> None:
    """Without schemas in the events, the catalog has the same columns and semantic types (c3, c4: other names)."""
    of = variant(name)
    modes = HandlingModes(of.binary, of.decimals, of.hstore, of.intervals, of.times)
    source = PostgresRowSource(ReselectOptions(database=inventory, modes=modes))
    differing = {}
    try:
        for table in compared_tables(of):
            images = _last_images(table, of)
            catalog = source.catalog(TableId(of.prefix, "inventory", table.schema, table.table))
            if images and catalog is not None:
                made = source.schema(catalog)
                streamed = [each for each in made.fields if not _generated(catalog, each.name)]
                differing |= _other_fields(table.name, images[-1].schema, replace(made, fields=tuple(streamed)))
    finally:
        source.close()
    assert differing == {("public.array_types", "a_bit"): "an array that the connector declares as one bit string"}


def _generated(catalog: CatalogTable, name: str) -> bool:
    """Return whether only snapshot reads have a column."""
    return any(column.generated for column in catalog.columns if column.name == name)


def _other_fields(table: str, sent: Schema, made: Schema) -> dict[tuple[str, str], str]:
    names = {member.name: None for schema in (sent, made) for member in schema.fields}
    different = [name for name in names if _essence(sent.field(name)) != _essence(made.field(name))]
    reasons = {"a_bit": "an array that the connector declares as one bit string"}
    return {(table, name): reasons.get(name, f"{sent.field(name)} | {made.field(name)}") for name in different}


def _essence(schema: Schema | None) -> Any:
    """The parts of a schema that determine the lake column and its values."""
    if schema is None:
        return None
    nested = tuple((member.name, _essence(member.schema)) for member in schema.fields)
    parameters = tuple(pair for pair in schema.parameters if not pair[0].startswith("__debezium"))
    return schema.type, schema.name, parameters, nested, _essence(schema.items), _essence(schema.values)


def _tables(of: Variant) -> Iterator[DumpedTable]:
    omitted = {"c5": STRUCTURED_KEYS, "c1": INEXACT_KEYS}.get(of.name, ())
    return (table for table in compared_tables(of) if table.name not in omitted)


def _differences(source: PostgresRowSource, table: DumpedTable, of: Variant) -> Iterator[tuple[str, str]]:
    images = _last_images(table, of)
    if not images:
        return
    request = _request(table, of, images)
    catalog = source.catalog(request.table)
    assert catalog is not None
    answer = source.fetch(catalog, request)
    assert answer.found.all(), f"{table.name}: rows are not found by their keys"
    for number, column in enumerate(request.columns):
        values = answer.of_found(number)
        if not all(_equal(image, column, value, of) for image, value in zip(images, values, strict=True)):
            yield table.name, column.name


def _equal(image: Image, column: Column, value: Any, of: Variant) -> bool:
    sent = image.cells[column.name]
    if Placeholder(of.placeholder).is_form(connect_value(column.schema, sent)):
        return True
    if sent is None and column.name not in ("c_name",) and image.cells.get("n") is not None:
        return True  # a toast table: a null may hide an unchanged value
    carried = image.array(column.name)
    if value is UNREADABLE:
        return False
    try:
        read = build_array(column.schema, [value])
    except BadRecord:
        return carried is None
    return carried is not None and (read.equals(carried) or _both_nan(read, carried))


def _both_nan(left: pa.Array, right: pa.Array) -> bool:
    return str(left) == str(right) and "nan" in str(left)


def _request(table: DumpedTable, of: Variant, images: Sequence[Image]) -> RowRequest:
    schema = images[-1].schema
    names = key_fields(recording(of.name)[topic_of(table, of)], of)
    key = tuple(Column(name, _field(schema, name), _key_values(images, name)) for name in names)
    columns = tuple(Column(member.name, member.schema, pa.nulls(0)) for member in schema.fields)
    needs = np.ones((len(images), len(columns)), np.bool_)
    identity = TableId(of.prefix, "inventory", table.schema, table.table)
    return RowRequest(identity, key, columns, needs, np.full(len(images), -1, np.int64))


def _key_values(images: Sequence[Image], name: str) -> pa.Array:
    return pa.concat_arrays([image.array(name) for image in images])


def _field(schema: Schema, name: str) -> Schema:
    found = schema.field(name)
    assert found is not None
    return found


def _last_images(table: DumpedTable, of: Variant) -> Sequence[Image]:
    rows: dict[str, Image] = {}
    for record in recording(of.name)[topic_of(table, of)]:
        if record.value is None:
            continue
        document = json.loads(record.value)
        payload = document["payload"]
        if payload["op"] == "t":
            rows.clear()
        elif payload["op"] == "d":
            rows.pop(key_text(record, of), None)
        elif payload["op"] in "rcu":
            after = schema_from_json(document["schema"]).field("after")
            assert after is not None
            rows[key_text(record, of)] = Image(after, payload["after"])
    return list(rows.values())
