"""How documents identify their schemas, and the cache of schemas."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

import pytest

from headrace.converters.conversion import Headers
from headrace.converters.registered import (
    IdKind,
    Read,
    RegisteredSchema,
    RegistryConverter,
    SchemaId,
    apicurio_framing,
    confluent_framing,
)
from headrace.core.decode.column_rows import Struct, Wanted
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, Retriable
from headrace.core.model.schema import Schema

GUID = uuid.UUID("01a1fd14-7474-7aa6-901a-3243b26be8a7")


@pytest.mark.parametrize(
    ("document", "headers", "schema_id", "payload"),
    [
        (b"\0\0\0\1\2xyz", (), SchemaId(IdKind.ID, 258), b"xyz"),
        (b"\1" + GUID.bytes + b"xyz", (), SchemaId(IdKind.GUID, str(GUID)), b"xyz"),
        (b"xyz", (("__value_schema_id", b"\1" + GUID.bytes),), SchemaId(IdKind.GUID, str(GUID)), b"xyz"),
        (b"\0\0\0\0\1xyz", (("__key_schema_id", b"\1" + GUID.bytes),), SchemaId(IdKind.ID, 1), b"xyz"),
        (b"\0\0\0\0\1", (), SchemaId(IdKind.ID, 1), b""),
        (
            b"xyz",
            (("__value_schema_id", b"\1" + GUID.bytes + b"\4\0\2"),),
            SchemaId(IdKind.GUID, str(GUID)),
            b"\4\0\2xyz",
        ),
    ],
)
def test_confluents_schema_ids(document: bytes, headers: Headers, schema_id: SchemaId, payload: bytes) -> None:
    """Headers of the own side precede the prefix of the document (``connect.md`` section 13)."""
    assert confluent_framing("value").split(document, headers) == (schema_id, payload)


EIGHT = (7).to_bytes(8, "big")
VERSION = (
    ("apicurio.value.groupId", b"g"),
    ("apicurio.value.artifactId", b"a/b"),
    ("apicurio.value.version", b"1"),
)


@pytest.mark.parametrize(
    ("document", "headers", "use_id", "schema_id", "payload"),
    [
        (b"\0\0\0\0\7xyz", (), None, SchemaId(IdKind.CONTENT_ID, 7), b"xyz"),
        (b"\0" + EIGHT + b"xyz", (), None, SchemaId(IdKind.GLOBAL_ID, 7), b"xyz"),
        (b"\0" + EIGHT + b"xyz", (), IdKind.CONTENT_ID, SchemaId(IdKind.CONTENT_ID, 7), b"xyz"),
        (b"\0\0\0\0\7xyz", (), IdKind.GLOBAL_ID, SchemaId(IdKind.GLOBAL_ID, 7), b"xyz"),
        (b"xyz", (("apicurio.value.globalId", EIGHT),), None, SchemaId(IdKind.GLOBAL_ID, 7), b"xyz"),
        (b"xyz", (("apicurio.value.contentId", EIGHT),), None, SchemaId(IdKind.CONTENT_ID, 7), b"xyz"),
        (b"\0\0\0\0\7xyz", (("apicurio.key.globalId", EIGHT),), None, SchemaId(IdKind.CONTENT_ID, 7), b"xyz"),
        (b"xyz", (("apicurio.value.contentHash", b"abc"),), None, SchemaId(IdKind.CONTENT_HASH, "abc"), b"xyz"),
        (b"xyz", VERSION, None, SchemaId(IdKind.VERSION, "g/a%2Fb/1"), b"xyz"),
        (b"xyz", VERSION[1:], None, SchemaId(IdKind.VERSION, "default/a%2Fb/1"), b"xyz"),
    ],
)
def test_apicurios_schema_ids(
    document: bytes, headers: Headers, use_id: IdKind | None, schema_id: SchemaId, payload: bytes
) -> None:
    """Schema ids of Apicurio 2 and 3 are read from the prefix of the document or from headers."""
    assert apicurio_framing("value", use_id).split(document, headers) == (schema_id, payload)


@pytest.mark.parametrize("document", [b"", b"{}", b"\0\0", b"\1\2\3", b"plain text"])
def test_documents_without_an_id_are_bad_records(document: bytes) -> None:
    """A document without a magic byte, such as JSON on an Avro topic, raises BadRecord."""
    for framing in (confluent_framing("key"), apicurio_framing("key")):
        with pytest.raises(BadRecord, match="magic byte"):
            framing.split(document, ())


def test_an_artifact_without_a_version_is_refused() -> None:
    """Headers that identify an artifact without its version raise BadRecord, because the latest version may change."""
    with pytest.raises(BadRecord, match="not its version"):
        apicurio_framing("value").split(b"xyz", VERSION[:2])


@pytest.mark.parametrize(
    ("side", "header"), [("value", "apicurio.protobuf.type"), ("key", "apicurio.protobuf.type.key")]
)
def test_a_header_names_the_protobuf_message(side: str, header: str) -> None:
    """Apicurio 2 names the message type in a header; version 3 also writes it before the message."""
    named = b"\x05\x0a\x03Row"
    headers = ((f"apicurio.{side}.globalId", EIGHT), (header, b"Row"))
    for document in (b"xyz", named + b"xyz"):
        assert apicurio_framing(side).split(document, headers) == (SchemaId(IdKind.GLOBAL_ID, 7), named + b"xyz")


def test_avro_as_json_is_refused() -> None:
    """A document whose header declares the encoding JSON raises BadRecord."""
    headers = (("apicurio.value.globalId", EIGHT), ("apicurio.value.encoding", b"JSON"))
    with pytest.raises(BadRecord, match="BINARY"):
        apicurio_framing("value").split(b"{}", headers)


class Registry:
    """A registry with one schema, which can be unavailable."""

    def __init__(self) -> None:
        self.asked: list[SchemaId] = []
        self.up = True

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        self.asked.append(schema_id)
        if not self.up:
            raise Retriable("down")
        if schema_id.value != 1:
            raise BadRecord(f"the schema registry has no schema with {schema_id}")
        return RegisteredSchema("text")


def test_a_schema_is_fetched_once() -> None:
    """The converter fetches a schema once; failed requests are not cached."""
    registry = Registry()
    converter = RegistryConverter(
        registry.fetch, confluent_framing("key"), lambda schema: lambda payload: SchemaAndValue(None, payload)
    )
    registry.up = False
    with pytest.raises(Retriable):
        converter.to_connect_data(b"\0\0\0\0\1a", ())
    registry.up = True
    assert [converter.to_connect_data(b"\0\0\0\0\1" + each, ()).value for each in (b"a", b"b")] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(BadRecord, match="no schema with id 2"):
            converter.to_connect_data(b"\0\0\0\0\2", ())
    assert [each.value for each in registry.asked] == [1, 1, 2, 2]


def test_the_last_schema_is_cached_by_the_prefix() -> None:
    """A document with the prefix of the last one has its schema, unless a header names another schema."""

    class Ids:
        """Every id has a schema that is its own text."""

        def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
            return RegisteredSchema(str(schema_id))

    def compiled(schema: RegisteredSchema) -> Read:
        return lambda payload: SchemaAndValue(None, (schema.text, payload))

    converter = RegistryConverter(Ids().fetch, apicurio_framing("value"), compiled)
    header = (("apicurio.value.globalId", EIGHT),)
    documents = [
        (b"\0\0\0\0\1a", (), ("contentId 1", b"a")),
        (b"\0\0\0\0\1b", (("other", b""),), ("contentId 1", b"b")),
        (b"\0\0\0\0\1c", header, ("globalId 7", b"\0\0\0\0\1c")),
        (b"\0" + EIGHT + b"d", (), ("globalId 7", b"d")),
        (b"\0\0\0\0\2e", (), ("contentId 2", b"e")),
    ]
    assert [converter.to_connect_data(document, headers).value for document, headers, _ in documents] == [
        expected for _, _, expected in documents
    ]


def test_blocks_require_a_reader_of_blocks_and_a_prefix() -> None:
    """A reader without blocks and documents whose header names the schema are read one by one."""
    registry = Registry()
    for reads_blocks, header, supported in ((True, False, True), (False, False, False), (True, True, False)):

        class Reader:
            schema = Schema("bytes")

            def __init__(self, _: RegisteredSchema, reads_blocks: bool = reads_blocks) -> None:
                self.reads_blocks = reads_blocks

            def __call__(self, payload: bytes) -> SchemaAndValue:
                return SchemaAndValue(None, payload)

            def block(self, documents: Sequence[bytes], offset: int, wanted: Wanted) -> Struct:
                raise AssertionError("a block was requested")

        converter = RegistryConverter(registry.fetch, confluent_framing("value"), Reader)
        named = b"\0\0\0\0\1"
        converter.to_connect_data(b"a" if header else named, (("__value_schema_id", named),) if header else ())
        assert converter.reads_blocks is supported
        assert (converter.reader_of([named + b"a"], set()) is not None) is supported
        assert converter.reader_of([named + b"a"], {"__value_schema_id"}) is None
