"""Documents that Apicurio's serializers wrote (``tests/fixtures/serializers/record.py``) are read in every form."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.converters.avro import AvroReader
from headrace.converters.json_schema import connect_json_reader, json_schema_reader
from headrace.converters.protobuf import named_protobuf_reader
from headrace.converters.registered import (
    IdKind,
    Read,
    RegisteredSchema,
    RegistryConverter,
    SchemaId,
    apicurio_framing,
    wrapped_framing,
)
from headrace.core.model.errors import BadRecord

RECORDED = json.loads((Path(__file__).parents[2] / "fixtures" / "serializers" / "recorded.json").read_text())
CASES = {case["name"]: case for case in RECORDED["cases"]}
ROW = {"id": 7, "name": "Zange ä", "at": 1709209815250}
READERS: dict[str, Callable[[RegisteredSchema], Read]] = {
    "avro": AvroReader,
    "avro converter": AvroReader,
    "json converter": connect_json_reader,
    "json": lambda registered: json_schema_reader(RegisteredSchema(registered.text, "JSON")),
    "protobuf": named_protobuf_reader,
}
PLAIN = "org.apache.kafka.connect.data.Timestamp"


class Registry:
    """The recorded schemas of the registry."""

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        return RegisteredSchema(RECORDED["schemas"][schema_id.kind][str(schema_id.value)])


def read(name: str) -> Any:
    """Return the Connect data of a recorded case."""
    case = CASES[name]
    kind, _, form = name.partition(", ")
    use_id = IdKind.CONTENT_ID if form == "content ids" else None  # eight bytes do not specify the kind of id
    side = "key" if form.endswith("of a key") else "value"
    framing = apicurio_framing(side, use_id)
    if kind == "json converter":
        framing = wrapped_framing(side, IdKind.GLOBAL_ID)  # with all of its options
    converter = RegistryConverter(Registry().fetch, framing, READERS[kind])
    headers = [(header, base64.b64decode(value)) for header, value in case["headers"]]
    return converter.to_connect_data(base64.b64decode(case["document"]), headers)


@pytest.mark.parametrize("name", [name for name in CASES if name != "avro, as JSON"])
def test_a_row_is_the_same_in_each_form(name: str) -> None:
    """Every form gives the same row; only plain JSON Schema has no Timestamp type."""
    data = read(name)
    assert data.value == ROW
    assert data.schema.field("at").name == (None if name.startswith("json,") else PLAIN)


def test_avro_as_json_is_refused() -> None:
    """A document whose header declares the encoding JSON raises BadRecord."""
    with pytest.raises(BadRecord, match="BINARY"):
        read("avro, as JSON")
