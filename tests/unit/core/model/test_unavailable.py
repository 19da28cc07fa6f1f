"""``Placeholder`` recognizes the placeholder in every form that Debezium sends."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.core.model.arrow_columns import FEW, build_array
from headrace.core.model.catalog import CatalogColumn, HandlingModes, SqlType
from headrace.core.model.errors import ConfigError
from headrace.core.model.schema import Schema, schema_from_json
from headrace.core.model.unavailable import DEFAULT_PLACEHOLDER, Placeholder, hides_value

P = "__debezium_unavailable_value"
STRING = Schema("string", optional=True)
JSON = Schema("string", optional=True, name="io.debezium.data.Json")
BYTES = Schema("bytes", optional=True)
UUID_FORM = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
SIGNED = [95, 95, 100, 101, 98, 101, 122, 105, 117, 109, 95, 117, 110, 97, 118, 97, 105, 108, 97, 98, 108, 101, 95]
SIGNED += [118, 97, 108, 117, 101]


def array_of(items: Schema) -> Schema:
    return Schema("array", optional=True, items=items)


def found(schema: Schema, values: pa.Array, placeholder: Placeholder | None = None, **how: Any) -> list[int]:
    """Return the cells that are the placeholder, which are the same ones in a column of more than FEW cells."""
    mask = (placeholder or Placeholder()).mask(schema, values, **how)
    places = [] if mask is None else np.flatnonzero(mask).tolist()
    copies = FEW // max(1, len(values)) + 1
    mask = (placeholder or Placeholder()).mask(schema, pa.concat_arrays([values] * copies), **how)
    repeated = [] if mask is None else np.flatnonzero(mask).tolist()
    assert repeated == [copy * len(values) + place for copy in range(copies) for place in places]
    return places


TEXT_FORMS = [P, base64.b64encode(P.encode()).decode(), P.encode().hex()]


@pytest.mark.parametrize("form", TEXT_FORMS)
def test_text_forms(form: str) -> None:
    """A text cell is the placeholder if it equals one of the text forms completely."""
    assert found(STRING, pa.array(["a", form, None, form + " ", "x" * len(form), form])) == [1, 5]


def test_nothing_found_is_none() -> None:
    """The mask of a column without a placeholder is None, so that callers skip the column."""
    assert Placeholder().mask(STRING, pa.array(["a", None, "x" * 28])) is None
    assert Placeholder().mask(STRING, pa.array([], pa.string())) is None
    assert Placeholder().mask(STRING, pa.nulls(3)) is None


def test_map_text_only_in_json_columns() -> None:
    """The JSON text of the map form is the placeholder in Json columns, and in any column without schemas."""
    values = pa.array([json.dumps({P: P}, separators=(",", ":"))])
    assert found(JSON, values) == [0]
    assert found(STRING, values) == []
    assert found(STRING, values, embedded=False) == [0]


def test_binary_form() -> None:
    """A binary cell is the placeholder if it equals the placeholder's bytes."""
    assert found(BYTES, pa.array([b"x", P.encode(), None], pa.binary())) == [1]


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32()])
def test_lists_of_numbers(kind: pa.DataType) -> None:
    """``int4[]``, ``int8[]`` and ``date[]`` contain the placeholder's bytes as signed numbers, dates as epoch days."""
    rows = [[1], SIGNED, None, [*SIGNED[:-1], 102], [*SIGNED[:-1], None], SIGNED]
    values = pa.array(rows, pa.list_(pa.int32())).cast(pa.list_(kind))
    assert found(array_of(Schema("int32")), values) == [1, 5]
    assert found(array_of(Schema("int32")), values.slice(1, 3)) == [0]


def test_lists_of_texts() -> None:
    """``text[]`` contains the placeholder as one element, ``uuid[]`` its version 3 UUID, ``bytea[]`` its bytes."""
    texts = pa.array([["a", P], [], None, ["a"], [P], ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]])
    assert found(array_of(STRING), texts) == [0, 4, 5]
    assert found(array_of(STRING), texts.slice(3)) == [1, 2]
    assert found(array_of(BYTES), pa.array([[P.encode()], [b"x"]], pa.list_(pa.binary()))) == [0]


def test_maps() -> None:
    """An ``hstore`` in map mode contains one entry from the placeholder to itself."""
    schema = Schema("map", optional=True, keys=STRING, values=STRING)
    values = pa.array(
        [[("a", "b")], [(P, P)], None, [(P, None)], [(P, P), ("a", "b")], []], pa.map_(pa.string(), pa.string())
    )
    assert found(schema, values) == [1]
    assert found(schema, values.slice(1, 2)) == [0]


@pytest.mark.parametrize("kind", [pa.map_(pa.string(), pa.int32()), pa.map_(pa.int64(), pa.string())])
def test_maps_of_anything_but_text_are_never_the_placeholder(kind: pa.DataType) -> None:
    """A map whose keys or values are not text is never the placeholder, and causes no error."""
    number = pa.types.is_integer(kind.key_type)
    values = pa.array([[(1, P) if number else (P, 1)]], kind)
    assert found(Schema("map", optional=True, keys=STRING, values=STRING), values) == []


def test_bytes_that_are_not_text() -> None:
    """``hex:ff00`` is U+FFFD U+0000 in texts, the bytes in binary cells, and signed numbers in lists."""
    placeholder = Placeholder("hex:ff00")
    assert found(STRING, pa.array(["\ufffd\x00", "\ufffd"]), placeholder) == [0]
    assert found(JSON, pa.array(['{"\ufffd\\u0000":"\ufffd\\u0000"}']), placeholder) == [0]
    assert found(BYTES, pa.array([b"\xff\x00"], pa.binary()), placeholder) == [0]
    assert found(array_of(Schema("int32")), pa.array([[-1, 0], [-1, None]], pa.list_(pa.int32())), placeholder) == [0]
    assert found(array_of(STRING), pa.array([["e0e8bfaf-bb06-3956-bb2f-ba789c97b3cc"]]), placeholder) == [0]


def test_invalid_hexadecimal_digits_are_refused() -> None:
    """Invalid hexadecimal digits are a configuration error that names the option."""
    with pytest.raises(ConfigError, match=r"unavailable\.value\.placeholder"):
        Placeholder("hex:f")


def test_n10_truncated_placeholder() -> None:
    """N10: a truncated placeholder is UNCHANGED from 8 characters on, UNKNOWN below, and a value at 0 characters."""
    cells = pa.array([P[:10], P[:5], P])
    cut = {n: Schema("string", parameters=(("truncateLength", str(n)),)) for n in (0, 5, 10, 40)}
    assert found(cut[10], cells) == [0]
    assert found(cut[5], cells) == []
    ambiguous = Placeholder().ambiguous(cut[5], cells)
    assert ambiguous is not None
    assert ambiguous.tolist() == [False, True, False]
    assert Placeholder().ambiguous(cut[0], cells) is None
    assert found(cut[40], cells) == [2]


@pytest.mark.parametrize("value", [*TEXT_FORMS, P.encode(), {P: P}, SIGNED, [P], [UUID_FORM]], ids=repr)
def test_s18_every_form_is_distinguished_from_a_value(value: object) -> None:
    """S18, D4: ``is_form`` recognizes one value of any form, so that a cache can refuse it."""
    assert Placeholder().is_form(value)


@pytest.mark.parametrize("value", ["a", b"a", {P: "a"}, SIGNED[1:], [], None, 1], ids=repr)
def test_s18_real_values_are_no_form(value: object) -> None:
    """S18: a value that only resembles a form is no placeholder."""
    assert not Placeholder().is_form(value)


def recorded_schema(document: dict[str, Any]) -> Schema:
    """Return the schema of a recorded cell, with the members of structs and maps that the fixture omits."""
    text = {"type": "string", "optional": True}
    filled = {"fields": [], "keys": text, "values": text, **document}
    if "items" in document:
        filled["items"] = {"fields": [], "keys": text, "values": text, **document["items"]}
    return schema_from_json(filled)


def wire(parsed: Schema, value: Any) -> pa.Array:
    """Return one recorded cell as a decoded column; JSON contains bytes as base64."""
    if parsed.type == "bytes":
        value = base64.b64decode(value)
    if parsed.items is not None and parsed.items.type == "bytes":
        value = [base64.b64decode(element) for element in value]
    return build_array(parsed, [value])


PLACEHOLDERS = json.loads((Path(__file__).parents[3] / "fixtures/postgres/placeholders.json").read_text())
MODES = {
    "a": HandlingModes(),
    "c1": HandlingModes("base64", "double", "map", "string", "connect"),
    "c2": HandlingModes("hex", "string", "json", "string", "isostring"),
    "c3": HandlingModes("base64-url-safe", time_precision="nanoseconds"),
    "c4": HandlingModes(time_precision="adaptive_time_microseconds"),
    "c5": HandlingModes(time_precision="structured"),
}
TYPES = {
    "t": "text", "vc": "varchar", "vc2": "varchar", "bc": "bpchar", "b": "bytea", "j": "json", "jb": "jsonb",
    "x": "xml", "hs": "hstore", "ci": "citext", "tsv": "tsvector", "lt": "ltree", "num": "numeric", "vb": "varbit",
    "ta": "_text", "va": "_varchar", "va2": "_varchar", "ca": "_bpchar", "i2a": "_int2", "ia": "_int4",
    "la": "_int8", "na": "_numeric", "na2": "_numeric", "f4a": "_float4", "fa": "_float8", "ba": "_bool",
    "bya": "_bytea", "da": "_date", "tma": "_time", "tsa": "_timestamp", "tza": "_timestamptz", "ua": "_uuid",
    "ja": "_json", "jba": "_jsonb", "ina": "_inet", "cia": "_citext", "ea": "_mood", "hsa": "_hstore", "oa": "_oid",
    "po": "polygon", "pth": "path",
}  # fmt: skip
RECORDED = [(column, variant) for column in TYPES for variant in MODES if variant in PLACEHOLDERS[column]]


def column_of(name: str) -> CatalogColumn:
    kind = TYPES[name]
    element = SqlType(2, "pg_catalog", kind[1:]) if kind.startswith("_") else None
    return CatalogColumn(name, 1, SqlType(1, "pg_catalog", kind, element=element), attstorage="e")


@pytest.mark.parametrize(("column", "variant"), RECORDED)
def test_recorded_unchanged_columns(column: str, variant: str) -> None:
    """The recorded cell of an unchanged column is a recognized form, or a null that ``hides_value`` reports."""
    recorded = PLACEHOLDERS[column][variant]
    schema = recorded_schema(recorded["schema"])
    hides = hides_value(schema, column_of(column), MODES[variant])
    assert hides == (recorded["value"] is None)
    if hides:
        assert hides_value(schema, None, MODES[variant])
    else:
        placeholder = Placeholder("hex:ff00" if variant == "c4" else P)
        assert found(schema, wire(schema, recorded["value"]), placeholder) == [0]


@pytest.mark.parametrize("column", [name for name in TYPES if PLACEHOLDERS[name]["b"]["value"] is not None])
def test_recorded_columns_without_schemas(column: str) -> None:
    """Without schemas the forms are recognized in columns of inferred types."""
    value = PLACEHOLDERS[column]["b"]["value"]
    values = pa.array([value, None])
    schema = STRING if isinstance(value, str) else array_of(STRING if isinstance(value[0], str) else Schema("int64"))
    assert found(schema, values, embedded=False) == [0]


@pytest.mark.parametrize(
    ("kind", "typmod", "hides"),
    [("numeric", -1, True), ("numeric", ((10 << 16) | 2) + 4, False), ("varbit", 24, False), ("varbit", -1, True)],
)
def test_short_values_are_never_omitted(kind: str, typmod: int, hides: bool) -> None:
    """A null of a type whose values are always short enough to be stored in the row is a real null."""
    column = CatalogColumn("c", 1, SqlType(1, "pg_catalog", kind), typmod, attstorage="m")
    assert hides_value(Schema("bytes"), column, HandlingModes()) is hides


def test_nulls_of_columns_stored_in_line_are_trusted() -> None:
    """A null is real in fixed-length columns, in columns of plain storage, and in tables with REPLICA IDENTITY FULL."""
    kind = SqlType(1, "pg_catalog", "polygon")
    assert not hides_value(Schema("struct"), CatalogColumn("c", 1, kind, attstorage="p"), HandlingModes())
    assert not hides_value(Schema("struct"), CatalogColumn("c", 1, kind, attlen=16, attstorage="e"), HandlingModes())
    recoverable = CatalogColumn("c", 1, kind, attstorage="e", recoverable=True)
    assert not hides_value(Schema("struct"), recoverable, HandlingModes())


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
@pytest.mark.parametrize("empty", [False, True])
def test_placeholders_are_found_in_any_part_of_a_column(kind: pa.DataType, empty: bool) -> None:
    """A slice of a column, with nulls and empty values, has the placeholders of its own rows; a null is none."""
    placeholder = Placeholder("" if empty else DEFAULT_PLACEHOLDER)
    values = ["x", None, placeholder.text, "", None, placeholder.text]
    column = pa.array(values, pa.string()).cast(kind)
    schema = Schema("bytes" if "binary" in str(kind) else "string")
    for begin in range(len(values)):
        for end in range(begin, len(values) + 1):
            mask = placeholder.mask(schema, column[begin:end])
            expected = [value == placeholder.text for value in values[begin:end]]
            assert (mask.tolist() if mask is not None else [False] * (end - begin)) == expected
