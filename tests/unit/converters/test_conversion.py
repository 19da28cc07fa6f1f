"""Decoding of keys and values by other converters than JsonConverter."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest

from headrace.converters.conversion import Conversion, converting_decoder
from headrace.converters.simple import SIMPLE_CONVERTERS, STRING_CONVERTER, StringConverter
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import Stage
from headrace.core.model.events import Changes, Operation
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain

INTEGER_CONVERTER = "org.apache.kafka.connect.converters.IntegerConverter"


@dataclass
class Record:
    key: bytes | None
    value: bytes | None
    offset: int = 0
    partition: int = 0
    timestamp: int = 7
    headers: list[tuple[str, bytes]] = field(default_factory=list)


def value(row: dict[str, object]) -> bytes:
    """Return a row with its schema, without an envelope."""
    kinds = {int: "int64", str: "string"}
    fields = [{"type": kinds[type(each)], "field": name} for name, each in row.items()]
    schema = {"type": "struct", "name": "t.Value", "fields": fields}
    return json.dumps({"schema": schema, "payload": row}, separators=(",", ":")).encode()


def decoded(conversion: Conversion, *records: Record, **options: object) -> Decoded:
    envelopes = EnvelopeOptions(key_fields=("id",), **options)  # type: ignore[arg-type] # options of EnvelopeOptions
    return converting_decoder("t", envelopes, conversion=conversion).decode(records)


@pytest.mark.parametrize(
    ("converter", "document", "key"),
    [(STRING_CONVERTER, b"42", 42), (INTEGER_CONVERTER, b"\0\0\0\x2a", 42), (STRING_CONVERTER, b"a", "a")],
)
def test_a_primitive_key_is_the_key_column(converter: str, document: bytes, key: object) -> None:
    """A primitive key and the row's key column have the same encoded key, so that a tombstone deletes the row."""
    row = value({"id": key, "name": "x"})
    keys = Conversion(SIMPLE_CONVERTERS[converter]({}))
    out = decoded(keys, Record(document, row), Record(document, None, offset=1))
    assert out.errant == []
    rows = [(operation, text) for piece in out.events if isinstance(piece, Changes)
            for operation, text in zip(piece.operation.tolist(), piece.key.to_pylist(), strict=True)]  # fmt: skip
    assert rows == [(Operation.UPDATE, f"={key}"), (Operation.TOMBSTONE, f"={key}")]


def test_conversion_errors_have_an_index_and_a_stage() -> None:
    """The error has the record's index and converter stage; valid records of the chunk are decoded."""
    conversion = Conversion(SIMPLE_CONVERTERS[INTEGER_CONVERTER]({}))
    row = value({"id": 1})
    one = b"\0\0\0\1"
    out = decoded(conversion, Record(b"?", row), Record(one, b"{", 1), Record(one, row, 2), Record(b"??", None, 3))
    assert [(each.index, each.stage) for each in out.errant] == [
        (0, Stage.KEY_CONVERTER),
        (1, Stage.VALUE_CONVERTER),
        (3, Stage.KEY_CONVERTER),
    ]
    (piece,) = out.events
    assert isinstance(piece, Changes)
    assert piece.version.offset.tolist() == [2]


@pytest.mark.parametrize("conversion", [None, Conversion(value=SIMPLE_CONVERTERS[INTEGER_CONVERTER]({}))])
def test_the_key_error_of_a_record_is_reported_before_its_value_error(conversion: Conversion | None) -> None:
    """A record with an invalid key and value is reported at KEY_CONVERTER, because Connect converts keys first."""
    records = [Record(b"{broken", b"{broken"), Record(b'{"id":1}', b"{broken", 1)]
    plain = EnvelopeOptions(key_schemas=False, value_schemas=False)
    first, second = converting_decoder("t", plain, conversion=conversion).decode(records).errant
    assert (first.index, first.stage) == (0, Stage.KEY_CONVERTER)
    assert (second.index, second.stage) == (1, Stage.VALUE_CONVERTER)


def test_a_value_that_is_no_row_is_a_bad_record() -> None:
    """The error of a value that StringConverter reads as a string recommends JsonConverter."""
    key = b'{"schema":null,"payload":{"id":1}}'
    (errant,) = decoded(Conversion(value=StringConverter()), Record(key, b"text")).errant
    assert errant.stage is Stage.TASK_PUT
    assert "string instead of a row" in str(errant.error)
    assert "set value.converter to the converter with which the source connector writes its values" in str(errant.error)
    assert "JsonConverter" in str(errant.error)


def test_a_key_that_is_read_as_text_is_a_bad_record() -> None:
    """The error of a struct's key that StringConverter reads names the option of the converter."""
    record = Record(b'{"schema":{"type":"struct","fields":[]},"payload":{"id":1}}', value({"id": 1, "name": "a"}))
    decoder = converting_decoder("t", EnvelopeOptions(), conversion=Conversion(key=StringConverter()))
    (errant,) = decoder.decode([record]).errant
    assert "the record's key is of type string, not a struct, so it names no key columns; set key.converter" in str(
        errant.error
    )


def test_hoist_field_makes_rows_of_primitive_values() -> None:
    """Transforms run after the converters: HoistField makes a row of a string value and of a number key."""
    hoist = "org.apache.kafka.connect.transforms.HoistField$"
    transforms = {
        "transforms": "value,key",
        "transforms.value.type": f"{hoist}Value",
        "transforms.value.field": "name",
        "transforms.key.type": f"{hoist}Key",
        "transforms.key.field": "id",
    }
    conversion = Conversion(SIMPLE_CONVERTERS[INTEGER_CONVERTER]({}), StringConverter())
    decoder = TransformingDecoder("t", EnvelopeOptions(), chain(transforms), conversion=conversion)
    out = decoder.decode([Record(b"\0\0\0\1", b"one"), Record(b"?", b"two", 1)])
    assert [(each.index, each.stage) for each in out.errant] == [(1, Stage.KEY_CONVERTER)]
    (piece,) = out.events
    assert isinstance(piece, Changes)
    assert {column.name: column.values.to_pylist() for column in piece.columns} == {"name": ["one"], "id": [1]}
