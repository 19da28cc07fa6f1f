"""Documents whose schema stands in a registry: how they name it, how it is asked for (``connect.md`` section 13)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import methodcaller
from typing import Protocol
from urllib.parse import quote

import msgspec
from cachetools import LRUCache

from headrace.converters.conversion import BlockReader, Headers
from headrace.core.decode.payload import read_json
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord


class IdKind(StrEnum):
    """What an id counts, in the registries' words."""

    ID = "id"
    GUID = "guid"
    GLOBAL_ID = "globalId"
    CONTENT_ID = "contentId"
    CONTENT_HASH = "contentHash"
    VERSION = "version"
    """Of an artifact in a group: the value is all three, each quoted as in a URL, with slashes between them."""


@dataclass(frozen=True, slots=True)
class SchemaId:
    """How a document names its schema.

    Confluent's ids count within a context of the registry; ``subject`` says which, where the topic names it.
    """

    kind: IdKind
    value: int | str
    subject: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.value}" + (f" of subject {self.subject}" if self.subject else "")


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema as the registry has it; ``references`` are those that it uses, by the name that it uses for them."""

    text: str
    kind: str = "AVRO"
    references: Mapping[str, RegisteredSchema] = field(default_factory=dict)


class SchemaRegistry(Protocol):
    """A registry that schemas are read from. It may block: it is asked in the threads that decode."""

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema:
        """The schema under an id, which never changes.

        Raises BadRecord for an id that the registry does not know, Retriable while it does not answer, and ConfigError
        where it refuses the connector (wrong password, no registry at that address).
        """


@dataclass(frozen=True, slots=True)
class Framing:
    """How documents name their schema. ``headers`` are those that may have its id, which count before any prefix.

    Called, it takes a document apart: the id of its schema, and what the schema describes. Raises BadRecord. ``suffix``
    makes the subject of a topic's schemas of its name, where it does (Confluent's ``TopicNameStrategy``).
    """

    headers: frozenset[str]
    take_apart: Callable[[bytes, Headers], tuple[SchemaId, bytes]]
    suffix: str = ""

    def __call__(self, document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        """The id of a document's schema, and what the schema describes. Raises BadRecord."""
        return self.take_apart(document, headers)


Read = Callable[[bytes], SchemaAndValue]
"""Reads what one schema describes. Raises BadRecord."""


_NO_FRAME = (
    "Unknown magic byte: the bytes do not begin with the id of a schema. Were they written by another converter, or by "
    "one that puts ids into headers?"
)


class RegistryConverter:
    """A ``BlockConverter`` of documents that name their schema, and a ``TopicConverter``.

    ``compile`` makes a reader of a schema, once for each id; some readers are a ``BlockReader``.
    """

    def __init__(
        self,
        registry: SchemaRegistry,
        framing: Framing,
        compile: Callable[[RegisteredSchema], Read],
        remembered: int = 1000,
    ) -> None:
        self._registry = registry
        self._framing = framing
        self._compile = compile
        self._readers: LRUCache[SchemaId, Read] = LRUCache(remembered)
        self._subject = ""
        self._prefix = b""
        self._reader: Read | None = None
        self.reads_blocks = True

    def of_topic(self, topic: str) -> RegistryConverter:
        """As ``TopicConverter`` says; schemas are remembered for all topics together."""
        own = copy(self)
        own._prefix, own._reader, own.reads_blocks = b"", None, True
        own._subject = self._framing.suffix and f"{topic}{self._framing.suffix}"
        return own

    def to_connect_data(self, document: bytes, headers: Headers) -> SchemaAndValue:
        """The data of one document. Raises BadRecord, Retriable or ConfigError."""
        prefix, names = self._prefix, self._framing.headers
        if self._reader is not None and document.startswith(prefix) and names.isdisjoint(dict(headers)):
            return self._reader(document[len(prefix) :])  # as nearly all do: the same schema as the last one's
        schema_id, payload = self._framing(document, headers)
        if self._subject and schema_id.kind is IdKind.ID:
            schema_id = replace(schema_id, subject=self._subject)
        reader = self._readers.get(schema_id)
        if reader is None:
            reader = self._readers[schema_id] = self._compile(self._registry.fetch(schema_id))
        named_before = len(payload) < len(document) and document.endswith(payload)
        self.reads_blocks = named_before and isinstance(reader, BlockReader) and reader.reads_blocks
        if named_before:
            self._prefix, self._reader = document[: len(document) - len(payload)], reader
        return reader(payload)

    def reader_of(self, documents: Sequence[bytes], headers: Set[str]) -> tuple[BlockReader, int] | None:
        """As ``BlockConverter`` says."""
        prefix, reader = self._prefix, self._reader
        if not isinstance(reader, BlockReader) or not reader.reads_blocks:
            return None
        if not all(map(methodcaller("startswith", prefix), documents)) or not self._framing.headers.isdisjoint(headers):
            return None
        return reader, len(prefix)


def confluent_framing(side: str, by_topic: bool = True) -> Framing:
    """Confluent's forms for keys or values: an id of four bytes or a GUID, before the document or in a header.

    ``by_topic`` says that a topic names the subject of its schemas; else the types of its records do.
    """
    header = f"__{side}_schema_id"

    def framing(document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        for name, value in headers:
            if name == header and value:
                schema_id, place = _confluent_id(value)  # in Protobuf, which message of the schema it is follows
                return schema_id, place + document
        return _confluent_id(document)

    return Framing(frozenset({header}), framing, f"-{side}" if by_topic else "")


def _confluent_id(document: bytes) -> tuple[SchemaId, bytes]:
    if document[:1] == b"\x00" and len(document) >= 5:
        return SchemaId(IdKind.ID, int.from_bytes(document[1:5], "big")), document[5:]
    if document[:1] == b"\x01" and len(document) >= 17:
        return SchemaId(IdKind.GUID, str(uuid.UUID(bytes=document[1:17]))), document[17:]
    raise BadRecord(_NO_FRAME)


def apicurio_framing(side: str, use_id: IdKind | None = None) -> Framing:
    """Apicurio's forms: an id in headers, else before the document: eight bytes if the first four of them are zero.

    ``use_id`` says what ids count. Otherwise those of eight bytes are global ids, as Apicurio 2 writes them, and those
    of four are of contents, as Apicurio 3 does.
    """
    kinds = {f"apicurio.{side}.{kind}": kind for kind in (IdKind.GLOBAL_ID, IdKind.CONTENT_ID)}
    content_hash, encoding = f"apicurio.{side}.{IdKind.CONTENT_HASH}", f"apicurio.{side}.encoding"
    artifact = tuple(f"apicurio.{side}.{part}" for part in ("groupId", "artifactId", "version"))
    message = "apicurio.protobuf.type.key" if side == "key" else "apicurio.protobuf.type"

    def framing(document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        told = dict(headers)
        if told.get(encoding, b"BINARY").upper() == b"JSON":
            raise BadRecord("the document is JSON by its Avro schema (apicurio.registry.avro.encoding); BINARY is read")
        for name, kind in kinds.items():
            if told.get(name):
                return SchemaId(kind, int.from_bytes(told[name], "big")), _named(document, told.get(message))
        if told.get(content_hash):
            return SchemaId(IdKind.CONTENT_HASH, _text(told[content_hash])), _named(document, told.get(message))
        if told.get(artifact[1]):
            return _version(*(_text(told.get(part, b"")) for part in artifact)), _named(document, told.get(message))
        return prefixed(document)

    def prefixed(document: bytes) -> tuple[SchemaId, bytes]:
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
    """The form of Apicurio's ``ExtJsonConverter``: a JSON object of id and payload, where ``use_id`` says of which.

    Documents that are none are taken for the form of ids before them, which that converter has as well.
    """
    before = apicurio_framing(side, use_id)

    def framing(document: bytes, headers: Headers) -> tuple[SchemaId, bytes]:
        if document[:1] != b"{":
            return before(document, headers)
        try:
            wrapped = read_json(_wrapped, document)
        except msgspec.DecodeError as error:
            raise BadRecord(
                "the document is no JSON object of schemaId and payload, as ExtJsonConverter's are"
            ) from error
        return SchemaId(use_id, wrapped.schema_id), bytes(wrapped.payload)

    return Framing(before.headers, framing)


def _version(group: str, artifact: str, version: str) -> SchemaId:
    if not version:
        raise BadRecord(f"the headers name a schema by its artifact ({artifact}) without a version, which may change")
    return SchemaId(IdKind.VERSION, "/".join(quote(part, safe="") for part in (group or "default", artifact, version)))


def _text(header: bytes) -> str:
    return header.decode(errors="replace")


def _named(document: bytes, message: bytes | None) -> bytes:
    """A Protobuf document with its message's name before it, where Apicurio 2 has that in a header only."""
    if not message or len(message) > 125:
        return document
    name = bytes((len(message) + 2, 0x0A, len(message))) + message
    return document if document.startswith(name) else name + document
