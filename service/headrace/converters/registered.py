"""Documents with the id of a schema in a registry: read the id, fetch the schema (``connect.md`` section 13)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import methodcaller
from urllib.parse import quote

import msgspec
from cachetools import LRUCache

from headrace.converters.conversion import BlockReader, Headers
from headrace.core.decode.payload import read_json
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord


class IdKind(StrEnum):
    """What an id identifies, with the registries' names."""

    ID = "id"
    GUID = "guid"
    GLOBAL_ID = "globalId"
    CONTENT_ID = "contentId"
    CONTENT_HASH = "contentHash"
    VERSION = "version"
    """A version of an artifact in a group: the value is all three, quoted as in a URL and separated by slashes."""


@dataclass(frozen=True, slots=True)
class SchemaId:
    """The identification of a schema in a document.

    Confluent's ids are unique within a context of the registry; ``subject``, if the topic determines it, selects the
    context.
    """

    kind: IdKind
    value: int | str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}" + (f" of subject {self.subject}" if self.subject else "")


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the registry; ``references`` are the schemas that it imports, by the name that it imports them as."""

    text: str
    schema_type: str = "AVRO"
    references: Mapping[str, RegisteredSchema] = field(default_factory=dict)

    def require_type(self, schema_type: str, name: str) -> None:
        """Raise BadRecord if the schema is of another type. ``name`` is that of the type in messages."""
        if self.schema_type.upper() != schema_type:
            raise BadRecord(
                f"the schema with the record's id is of type {self.schema_type} in the registry, not {name}"
            )


@dataclass(frozen=True, slots=True)
class Framing:
    """How documents identify their schema. ``headers`` may contain its id, which takes precedence over a prefix.

    ``split`` splits a document into the id of its schema and its payload; it raises BadRecord. ``suffix``, appended to
    the topic's name, is the subject of the topic's schemas (Confluent's ``TopicNameStrategy``).
    """

    headers: frozenset[str]
    split: Callable[[bytes, Headers], tuple[SchemaId, bytes]]
    suffix: str = ""


Read = Callable[[bytes], SchemaAndValue]
"""Reads a payload of one schema. Raises BadRecord."""

SchemaOf = Callable[[SchemaId], RegisteredSchema]
"""Returns the schema with an id, without I/O. Raises BadRecord if there is none.

It may raise another error if the schema has to be fetched first. Then all records of the chunk are decoded again.
"""


_NO_FRAME = (
    "Unknown magic byte: the bytes do not begin with the id of a schema; check that this converter wrote the records, "
    "and whether it writes ids to headers"
)


class RegistryConverter:
    """A ``BlockConverter`` and ``TopicConverter`` of documents that contain the id of their schema.

    ``schema_of`` returns a schema and ``compile`` makes its reader, once for each id; some are a ``BlockReader``.
    """

    def __init__(
        self, schema_of: SchemaOf, framing: Framing, compile: Callable[[RegisteredSchema], Read], cache_size: int = 1000
    ) -> None:
        self._schema_of = schema_of
        self._framing = framing
        self._compile = compile
        self._readers: LRUCache[SchemaId, Read] = LRUCache(cache_size)
        self._subject = ""
        self._prefix = b""
        self._reader: Read | None = None
        self.reads_blocks = True

    def of_topic(self, topic: str) -> RegistryConverter:
        """See ``TopicConverter``; all topics share one cache of readers."""
        converter = copy(self)
        converter._prefix, converter._reader, converter.reads_blocks = b"", None, True
        converter._subject = self._framing.suffix and f"{topic}{self._framing.suffix}"
        return converter

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        """The data of one document. Raises BadRecord, and what ``schema_of`` raises."""
        prefix, names = self._prefix, self._framing.headers
        if self._reader is not None and document.startswith(prefix) and names.isdisjoint(dict(headers)):
            return self._reader(document[len(prefix) :])  # the usual case: the schema of the last document
        schema_id, payload = self._framing.split(document, headers)
        if self._subject and schema_id.kind is IdKind.ID:
            schema_id = replace(schema_id, subject=self._subject)
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = self._readers[schema_id] = self._compile(self._schema_of(schema_id))
        has_prefix = len(payload) < len(document) and document.endswith(payload)
        self.reads_blocks = has_prefix and isinstance(reader, BlockReader) and reader.reads_blocks
        if has_prefix:
            self._prefix, self._reader = document[: len(document) - len(payload)], reader
        return reader(payload)

    def reader_of(self, documents: Sequence[bytes], headers: Set[str]) -> tuple[BlockReader, int] | None:
        """See ``BlockConverter``."""
        prefix, reader = self._prefix, self._reader
        if not isinstance(reader, BlockReader) or not reader.reads_blocks:
            return None
        if not all(map(methodcaller("startswith", prefix), documents)) or not self._framing.headers.isdisjoint(headers):
            return None
        return reader, len(prefix)


def confluent_framing(side: str, by_topic: bool = True) -> Framing:
    """Confluent's formats for keys or values: an id of four bytes or a GUID, before the document or in a header.

    ``by_topic`` is whether the topic determines the subject of its schemas; otherwise the record's type does.
    """
    header = f"__{side}_schema_id"

    def framing(document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        for name, value in headers:
            if name == header and value:
                schema_id, message_indexes = _confluent_id(value)  # only Protobuf has indexes after the id
                return schema_id, message_indexes + document
        return _confluent_id(document)

    return Framing(frozenset({header}), framing, f"-{side}" if by_topic else "")


def _confluent_id(document: bytes) -> tuple[SchemaId, bytes]:
    if document[:1] == b"\x00" and len(document) >= 5:
        return SchemaId(IdKind.ID, int.from_bytes(document[1:5], "big")), document[5:]
    if document[:1] == b"\x01" and len(document) >= 17:
        return SchemaId(IdKind.GUID, str(uuid.UUID(bytes=document[1:17]))), document[17:]
    raise BadRecord(_NO_FRAME)


def apicurio_framing(side: str, use_id: IdKind | None = None) -> Framing:
    """Apicurio's formats: an id in headers, else before the document: eight bytes if the first four of them are zero.

    ``use_id`` is the kind of ids before documents. The default is global ids for eight bytes, as Apicurio 2 writes
    them, and content ids for four bytes, as Apicurio 3 writes them.
    """
    kinds = {f"apicurio.{side}.{kind}": kind for kind in (IdKind.GLOBAL_ID, IdKind.CONTENT_ID)}
    content_hash, encoding = f"apicurio.{side}.{IdKind.CONTENT_HASH}", f"apicurio.{side}.encoding"
    artifact = tuple(f"apicurio.{side}.{part}" for part in ("groupId", "artifactId", "version"))
    message = "apicurio.protobuf.type.key" if side == "key" else "apicurio.protobuf.type"

    def framing(document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        by_name = dict(headers)
        if by_name.get(encoding, b"BINARY").upper() == b"JSON":
            raise BadRecord("the document is in Avro's JSON encoding; set apicurio.registry.avro.encoding=BINARY")
        for name, kind in kinds.items():
            if by_name.get(name):
                schema_id = SchemaId(kind, int.from_bytes(by_name[name], "big"))
                return schema_id, _with_message_name(document, by_name.get(message))
        if by_name.get(content_hash):
            schema_id = SchemaId(IdKind.CONTENT_HASH, _text(by_name[content_hash]))
            return schema_id, _with_message_name(document, by_name.get(message))
        if by_name.get(artifact[1]):
            group, name, version = (_text(by_name.get(part, b"")) for part in artifact)
            if not version:
                raise BadRecord(f"the headers contain the schema's artifact ({name}) but not its version")
            path = "/".join(quote(part, safe="") for part in (group or "default", name, version))
            schema_id = SchemaId(IdKind.VERSION, path)
            return schema_id, _with_message_name(document, by_name.get(message))
        return split_prefix(document)

    def split_prefix(document: bytes) -> tuple[SchemaId, bytes]:
        if document[:1] != b"\x00" or len(document) < 5:
            raise BadRecord(_NO_FRAME)
        if document[1:5] == bytes(4) and len(document) >= 9:
            return SchemaId(use_id or IdKind.GLOBAL_ID, int.from_bytes(document[5:9], "big")), document[9:]
        return SchemaId(use_id or IdKind.CONTENT_ID, int.from_bytes(document[1:5], "big")), document[5:]

    return Framing(frozenset((*kinds, content_hash, artifact[1], encoding)), framing)


class _Wrapped(msgspec.Struct):
    schema_id: int = msgspec.field(name="schemaId")
    payload: msgspec.Raw


_wrapped = msgspec.json.Decoder(_Wrapped)


def wrapped_framing(side: str, use_id: IdKind) -> Framing:
    """The format of Apicurio's ``ExtJsonConverter``: a JSON object of id and payload; ``use_id`` is the kind of the id.

    Documents that are not JSON objects are read with an id before them, which this converter can write as well.
    """
    before = apicurio_framing(side, use_id)

    def framing(document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        if document[:1] != b"{":
            return before.split(document, headers)
        try:
            wrapped = read_json(_wrapped, document)
        except msgspec.DecodeError as error:
            raise BadRecord(
                "the document is not a JSON object with schemaId and payload, which ExtJsonConverter writes"
            ) from error
        return SchemaId(use_id, wrapped.schema_id), bytes(wrapped.payload)

    return Framing(before.headers, framing)


def _text(header: bytes) -> str:
    return header.decode(errors="replace")


def _with_message_name(document: bytes, message: bytes | None) -> bytes:
    """Add the message's name before a Protobuf document, if Apicurio 2 has written it to a header only."""
    if not message or len(message) > 125:
        return document
    name = bytes((len(message) + 2, 0x0A, len(message))) + message
    return document if document.startswith(name) else name + document
