"""Headers that a transform reads, with the converter that the connector names."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from envelopes import key, whole_change

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.converters.conversion import Conversion, Converter
from headrace.converters.simple import SIMPLE_CONVERTERS, StringConverter
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.json_data import JsonData
from headrace.core.model.errors import Stage
from headrace.core.model.events import Changes
from headrace.runtime.task.conversions import no_registries, open_conversion
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain
from headrace_connectors.memory.feed import MemoryRecord

TOPIC = "shop.public.items"
TRANSFORMS = {
    "transforms": "unwrap,header",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
    "transforms.header.type": "io.debezium.transforms.HeaderToValue",
    "transforms.header.headers": "h",
    "transforms.header.fields": "extra",
    "transforms.header.operation": "copy",
}
INTEGERS = SIMPLE_CONVERTERS["org.apache.kafka.connect.converters.IntegerConverter"]({})


def decoded(header: bytes, converter: Converter | None = None) -> Decoded:
    conversion = Conversion(header=converter)
    decoder = TransformingDecoder(TOPIC, EnvelopeOptions(), chain(TRANSFORMS), conversion=conversion)
    value = whole_change("c", None, {"id": 1, "name": "new"}, 100)
    return decoder.decode([MemoryRecord(TOPIC, 0, 0, 0, key({"id": 1}), value, (("h", header),))])


def extra(header: bytes, converter: Converter | None = None) -> tuple[pa.DataType, Any]:
    """The column that the header becomes."""
    found = decoded(header, converter)
    assert found.errant == []
    (piece,) = found.events
    assert isinstance(piece, Changes)
    (column,) = (each for each in piece.columns if each.name == "extra")
    return column.values.type, column.values.to_pylist()[0]


@pytest.mark.parametrize(
    ("header", "converter", "column"),
    [
        (b"007", None, (pa.int8(), 7)),
        (b"007", StringConverter(), (pa.string(), "007")),
        (b'{"schema":{"type":"string"},"payload":"EU"}', JsonData(True), (pa.string(), "EU")),
        (b"\x00\x00\x00\x07", INTEGERS, (pa.int32(), 7)),
        (b"[1,2]", None, (pa.list_(pa.int8()), [1, 2])),
        (b'{"a":1}', None, (pa.map_(pa.string(), pa.int8()), [("a", 1)])),
    ],
)
def test_a_header_is_read_with_its_converter(
    header: bytes, converter: Converter | None, column: tuple[pa.DataType, Any]
) -> None:
    """SimpleHeaderConverter guesses; the others know."""
    assert extra(header, converter) == column


@pytest.mark.parametrize(
    ("header", "kind"), [(b"2020-01-02", "date32[day]"), (b"9223372036854775808", "decimal128(38, 0)")]
)
def test_what_was_guessed_has_a_type_of_its_own(header: bytes, kind: str) -> None:
    """A logical one, as the table's columns have."""
    found, value = extra(header)
    assert (str(found), str(value)) == (kind, header.decode())


@pytest.mark.parametrize("header", [b'[1,"a"]', b"[]", b'{"a":null}', b"[[]]"])
def test_values_of_no_common_type_are_a_bad_record(header: bytes) -> None:
    """No column holds them."""
    (errant,) = decoded(header).errant
    assert errant.stage is Stage.TRANSFORMATION
    assert "no common type" in str(errant.error)


def test_a_header_that_its_converter_cannot_read_is_told_by_its_stage() -> None:
    """Kafka Connect reads headers in a stage of their own."""
    (errant,) = decoded(b"7", INTEGERS).errant
    assert errant.stage is Stage.HEADER_CONVERTER


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, type(None)),
        ({"header.converter": "org.apache.kafka.connect.storage.SimpleHeaderConverter"}, type(None)),
        ({"header.converter": "String"}, StringConverter),
        ({"header.converter": "JsonConverter", "header.converter.schemas.enable": "false"}, JsonData),
    ],
)
def test_a_connector_names_it(given: dict[str, str], kind: type) -> None:
    """By class or alias; otherwise it is the worker's."""
    own = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
    config = sink_connector_config({**own, **given}, WorkerDefaults({}, "1.0"))
    assert isinstance(open_conversion(config, no_registries).header, kind)
