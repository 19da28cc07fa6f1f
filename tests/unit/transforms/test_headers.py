"""Headers that a transform reads, converted with the configured header.converter."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from support.records.envelopes import key, whole_change

from headrace.config.validation import WorkerDefaults, sink_connector_config
from headrace.converters.conversion import Conversion, Converter
from headrace.converters.simple import SIMPLE_CONVERTERS, StringConverter
from headrace.core.decode.decoded import Decoded
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.json_converter import JsonData
from headrace.core.model.errors import Stage
from headrace.core.model.events import Changes
from headrace.runtime.task.conversions import no_registries, open_conversion
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain
from headrace_dev.memory.feed import MemoryRecord

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
    """Return the type and the value of the column that the header becomes."""
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
    """SimpleHeaderConverter derives the type from the text; other converters have a fixed type."""
    assert extra(header, converter) == column


@pytest.mark.parametrize(
    ("header", "kind"), [(b"2020-01-02", "date32[day]"), (b"9223372036854775808", "decimal128(38, 0)")]
)
def test_dates_and_decimals_of_headers_have_logical_types(header: bytes, kind: str) -> None:
    """SimpleHeaderConverter reads dates and large integers as the logical types Date and Decimal."""
    found, value = extra(header)
    assert (str(found), str(value)) == (kind, header.decode())


@pytest.mark.parametrize("header", [b'[1,"a"]', b"[]", b'{"a":null}', b"[[]]"])
def test_values_of_no_common_type_are_a_bad_record(header: bytes) -> None:
    """A header whose elements have no common type raises BadRecord, because no column type can hold it."""
    (errant,) = decoded(header).errant
    assert errant.stage is Stage.TRANSFORMATION
    assert "no common type" in str(errant.error)


def test_a_header_conversion_error_has_its_own_stage() -> None:
    """A header that cannot be converted is reported at the stage HEADER_CONVERTER, as in Kafka Connect."""
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
def test_header_converter_is_configured_by_class_or_alias(given: dict[str, str], kind: type) -> None:
    """``header.converter`` is a class name or an alias; by default it is the worker's."""
    own = {"name": "shop", "connector.class": "LakehouseSink", "topics": "a"}
    config = sink_connector_config({**own, **given}, WorkerDefaults({}, "1.0"))
    assert isinstance(open_conversion(config, no_registries).header, kind)
