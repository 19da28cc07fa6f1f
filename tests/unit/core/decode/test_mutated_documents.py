"""The result of a document does not depend on the documents before it, also if it is malformed."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.records.envelopes import key, whole_change

from headrace.converters.conversion import converting_decoder
from headrace.core.decode.codec import Codec
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.decode.flattened import FlatCodec, MetadataNames
from headrace.core.decode.json_converter import FixedSchema, JsonConverter, JsonData
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.transforms.decoder import TransformingDecoder
from headrace.transforms.registry import chain
from headrace_dev.memory.feed import MemoryRecord

TOPIC = "shop.public.items"
SCHEMA = b'{"type":"int32"}'
GOOD = b'{"schema":' + SCHEMA + b',"payload":123}'
TAILS = [b"123", b"123]", b"123}x", b"123} ", b"123}\n", b"123 }", b"123 } ", b"1,2}", b'1,"payload":2}', b"}", b""]
PARTS = [b"}", b"]", b",", b" ", b"\n", b'"payload":2', b'"schema":' + SCHEMA, b"1", b"{", b'"', b":", b"null", b"{}"]


def outcome(converter: JsonData, document: bytes) -> SchemaAndValue | None:
    """Return the value of a document, or None if the converter refuses it."""
    try:
        return converter.to_connect_data(document)
    except BadRecord:
        return None


def warmed() -> JsonData:
    converter = JsonData(True)
    converter.to_connect_data(GOOD)
    return converter


def of_two_schemas() -> JsonData:
    """Return a converter that has last read a document with another schema."""
    converter = warmed()
    converter.to_connect_data(b'{"schema":{"type":"string"},"payload":"a"}')
    return converter


mutations = st.tuples(st.integers(0, len(GOOD)), st.integers(0, 3), st.lists(st.sampled_from(PARTS), max_size=3))


@given(st.lists(mutations, min_size=1, max_size=2))
@example([(len(GOOD) - 1, 1, [])])
@example([(len(GOOD) - 1, 0, [b",", b'"payload":2'])])
@example([(len(GOOD) - 1, 0, [b",", b'"schema":' + SCHEMA])])
def test_a_known_schema_does_not_change_the_result(changes: list[tuple[int, int, list[bytes]]]) -> None:
    """A converter reads each document as if it were its first one, also if the feed divided it at the fetch."""
    document = GOOD
    for place, taken, parts in changes:
        document = document[:place] + b"".join(parts) + document[place + taken :]
    fresh = outcome(JsonData(True), document)
    assert outcome(warmed(), document) == fresh
    assert outcome(of_two_schemas(), document) == fresh
    divider = JsonConverter(True)
    divider.divide(GOOD)
    divided = divider.divide(document)
    assert divided is not None
    assert outcome(JsonData(True), divided) == fresh  # type: ignore[arg-type] # as records hold them


@pytest.mark.parametrize("tail", TAILS)
def test_a_document_with_another_end_is_read_like_a_first_document(tail: bytes) -> None:
    """A document that is cut off, or has text after its end, gives the result of a new converter."""
    document = GOOD[: -len(b"123}")] + tail
    assert outcome(warmed(), document) == outcome(JsonData(True), document)


@pytest.mark.parametrize("payload", [b'1,"payload":2', b"1}", b"1,2", b"", b'1,"schema":null'])
def test_a_payload_of_a_fixed_schema_is_one_value(payload: bytes) -> None:
    """A payload with further members cannot change the document that the converter builds with the fixed schema."""
    with pytest.raises(BadRecord):
        FixedSchema(SCHEMA).to_connect_data(payload)


def test_a_fixed_schema_is_one_object() -> None:
    """A converter with a fixed schema returns the same schema object for each payload."""
    converter = FixedSchema(SCHEMA)
    assert converter.to_connect_data(b"1").schema is converter.to_connect_data(b"2").schema


ROW = json.dumps({"id": 1}).encode()
ENVELOPE = json.dumps({"op": "c", "source": {"name": "a"}, "after": {"id": 1}}).encode()


@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("bad", [b"", b"%b,%b"])
@pytest.mark.parametrize("before", [0, 3])
def test_each_document_is_one_value(flat: bool, bad: bytes, before: int) -> None:
    """The codec decodes many documents at once, joined by commas; it refuses a document with a top-level comma."""
    codec = FlatCodec(None, None, ("id",), MetadataNames()) if flat else Codec(None, None, ("id",))
    good = ROW if flat else ENVELOPE
    codec.decode_all([good])
    document = bad and bad % (good, good)
    with pytest.raises(msgspec.DecodeError):
        codec.decode(document)
    with pytest.raises(msgspec.DecodeError):
        codec.decode_all([good] * before + [document])


KEY, CHANGE = key({"id": 1}), whole_change("c", None, {"id": 1, "name": "new"}, 100)
SCHEMALESS = EnvelopeOptions(key_schemas=False, value_schemas=False)
UNWRAP = {"transforms": "a", "transforms.a.type": "io.debezium.transforms.ExtractNewRecordState"}
TOKENS = [
    b"null",
    b"{}",
    b'["x"]',
    b"1",
    b"1.5",
    b"true",
    b"1" * 20,
    b"1" * 5000,
    b"1e9999999999",
    b"10000000000000000",
]
TOKENS += [b"-1", b'"\\ud800"', b'"\xff"', b'"op"', b'"t"', b"[" * 500 + b"]" * 500, b"[" * 100_000 + b"]" * 100_000]

edits = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 4), st.sampled_from([*TOKENS, *PARTS, b"\xff", b""])),
    min_size=1,
    max_size=3,
)


def edited(document: bytes, changes: list[tuple[int, int, bytes]]) -> bytes:
    """Return the document with the value after a colon replaced, or with other bytes at some offset."""
    for place, taken, token in changes:
        at = place % (len(document) + 1)
        colon = document.find(b":", at) + 1
        if taken == 4 and colon:
            end = min(found for mark in b",}\n" if (found := (document + b"\n").find(mark, colon)) >= 0)
            document = document[:colon] + token + document[end:]
        else:
            document = document[:at] + token + document[at + taken :]
    return document


@settings(max_examples=80)
@given(edits, st.booleans(), st.booleans(), st.booleans())
def test_an_edited_document_is_a_row_or_a_bad_record(
    changes: list[tuple[int, int, bytes]], of_key: bool, schemas: bool, unwrapped: bool
) -> None:
    """The decoder reads an edited document or refuses it alone, and raises no error that stops the task."""
    good_key, good = (KEY, CHANGE) if schemas else (_payload(KEY), _payload(CHANGE))
    bad_key, bad = (edited(good_key, changes), good) if of_key else (good_key, edited(good, changes))
    options = EnvelopeOptions() if schemas else SCHEMALESS
    decoder = TransformingDecoder(TOPIC, options, chain(UNWRAP)) if unwrapped else converting_decoder(TOPIC, options)
    divide = JsonConverter(schemas).divide
    records = [
        MemoryRecord(TOPIC, 0, offset, 0, each_key, divide(each))
        for offset, (each_key, each) in enumerate([(good_key, good), (bad_key, bad), (bad_key, None)])
    ]
    out = decoder.decode(records)
    assert {each.index for each in out.errant} <= {1, 2}


def _payload(document: bytes) -> bytes:
    return json.dumps(json.loads(document)["payload"]).encode()
