"""The last image of every row in a recording, without any lake; ``canonical.py`` is checked against it.

It is deliberately simple: the last event of a key applies. It uses no positions, folds or merges, and handles no
unavailable cells.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from recordings.canonical import comparable
from recordings.records import RecordedRecord, Variant

from headrace.core.model.arrow_columns import build_array
from headrace.core.model.errors import BadRecord
from headrace.core.model.inferred_types import infer_schema, to_table_type
from headrace.core.model.schema import Schema, schema_from_json

Row = Mapping[str, Any]


def last_images(records: Sequence[RecordedRecord], of: Variant) -> Sequence[Row]:
    """The last images of the rows that exist at the end of the topic, as comparable values.

    A column that an event lacks is null. A row with a value that no lake column can contain is omitted.
    """
    rows: dict[str, tuple[Schema | None, Row]] = {}
    for record in records:
        if record.value is None:
            continue
        schema, envelope = _split(record.value, of)
        if envelope["op"] == "t":
            rows.clear()
        elif envelope["op"] == "d":
            rows.pop(_identity(record, of), None)
        elif envelope["op"] in "rcu":
            rows[_identity(record, of)] = (schema, envelope["after"])
    return _inferred([row for _, row in rows.values()]) if of.bare else _typed(list(rows.values()))


def key_fields(records: Sequence[RecordedRecord], of: Variant) -> tuple[str, ...]:
    """The names of the fields of the record keys."""
    return tuple(json.loads(next(key_text(record, of) for record in records if record.key)))


def key_text(record: RecordedRecord, of: Variant) -> str:
    """The record key's payload as JSON; its schema may change while the row stays the same."""
    document = json.loads(record.key or b"{}")
    return json.dumps(document["payload"] if of.key_schemas else document)


def _identity(record: RecordedRecord, of: Variant) -> str:
    """The key's text with sorted fields: their order changes when a primary key is declared again."""
    return json.dumps(json.loads(key_text(record, of)), sort_keys=True)


def connect_value(schema: Schema, value: Any) -> Any:
    """The Connect value of a JSON value: bytes are decoded from base64, at any depth."""
    if value is None:
        return None
    if schema.type == "bytes":
        return base64.b64decode(value)
    if schema.type == "array" and schema.items:
        return [connect_value(schema.items, item) for item in value]
    if schema.type == "struct":
        return {member.name: connect_value(member.schema, value.get(member.name)) for member in schema.fields}
    return value


def _split(value: bytes, of: Variant) -> tuple[Schema | None, dict[str, Any]]:
    document = json.loads(value)
    if of.bare:
        return None, document
    return schema_from_json(document["schema"]).field("after"), document["payload"]


def _typed(rows: Sequence[tuple[Schema | None, Row]]) -> Sequence[Row]:
    names = {name: None for _, row in rows for name in row}
    images = []
    for schema, row in rows:
        assert schema is not None
        try:
            images.append(names | {name: _cell(schema, name, value) for name, value in row.items()})
        except BadRecord:
            continue
    return images


def _cell(row: Schema, name: str, value: Any) -> Any:
    schema = row.field(name)
    assert schema is not None, f"the schema has no field {name}"
    return comparable(build_array(schema, [connect_value(schema, value)]))[0]


def _inferred(rows: Sequence[Row]) -> Sequence[Row]:
    """Rows without schemas.

    The type of each column is inferred from all of its values; a column without a type is null.
    """
    columns = {}
    for name in {name: None for row in rows for name in row}:
        values = [row.get(name) for row in rows]
        typed = to_table_type(build_array(infer_schema(values), values), None)
        columns[name] = [None] * len(rows) if typed is None else comparable(typed)
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
