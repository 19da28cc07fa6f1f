"""Decode JsonConverter's documents to typed values, by schema, or to Connect data for transforms.

With ``schemas.enable`` every document carries its schema, byte for byte the same from one record to the next. So the
schema part is read once, cached as the document's prefix, and afterwards recognized by comparing bytes; only the
payload is decoded, by a msgspec type that was compiled from the schema and names just the fields that are used.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any, TypedDict

import msgspec
from cachetools import LRUCache

from headrace.core.decode.payload import InternedSchemas, Payload, PayloadDecoder, read_json
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema, schema_from_json

ENVELOPE_ADVICE = (
    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain additional fields. '
    "If you are trying to deserialize plain JSON data, set schemas.enable=false in your converter configuration."
)
EMBEDDED_SCHEMA_ADVICE = (
    'the document has exactly the fields "schema" and "payload", which JsonConverter writes with schemas.enable=true '
    "(Debezium's default), and this converter has schemas.enable=false; set key.converter.schemas.enable=true for keys "
    "or value.converter.schemas.enable=true for values"
)


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    schema: msgspec.Raw
    payload: msgspec.Raw


_document = msgspec.json.Decoder(_Document)
_anything = msgspec.json.Decoder()
_like_a_document = re.compile(rb'\s*\{\s*"(?:schema|payload)"').match


@dataclass(frozen=True, slots=True)
class _SchemaPart:
    """A schema and the bytes before the payload in every document with this schema."""

    schema: Schema | None
    prefix: bytes
    length: int


class Document(msgspec.Struct, frozen=True, gc=False):
    """A document without its schema part, which other documents share. ``bytes`` returns the complete document."""

    schema_part: _SchemaPart
    payload: bytes

    def __bytes__(self) -> bytes:
        return self.schema_part.prefix + self.payload + b"}"

    def __len__(self) -> int:
        """The bytes that only this document holds."""
        return len(self.payload)


def document_bytes(document: bytes | Document | None) -> bytes | None:
    """Return the document as it was in Kafka."""
    return bytes(document) if isinstance(document, Document) else document


class JsonConverter:
    """Split documents into schema and payload. Not thread-safe.

    It caches the last ``cache_size`` schemas: one topic has a handful, a consumer a handful for each of its topics.
    """

    def __init__(self, schemas_enable: bool, cache_size: int = 64) -> None:
        self._schemas_enable = schemas_enable
        self._cache_size = cache_size
        self._schema_parts: list[_SchemaPart] = []  # most recent first
        self._newest: _SchemaPart | None = None
        self._by_text: LRUCache[bytes, Schema] = LRUCache(cache_size)
        self._interned = InternedSchemas(cache_size)

    def divide(self, document: bytes | None) -> Document | bytes | None:
        """Return the document without its schema part, if that repeats; otherwise the document itself.

        The fetch of records calls it, so that the queue has only the payloads of most documents.
        """
        newest = self._newest
        if newest is None or document is None or not document.startswith(newest.prefix):
            # The document has another schema than the last one, which is cached if the document has its usual layout.
            if document is None or not self._schemas_enable:
                return document
            try:
                self._split(document)
            except BadRecord:
                return document  # reported when it is decoded
            newest = self._newest
            if newest is None or not document.startswith(newest.prefix):
                return document
        if document[-1:] != b"}":
            return document
        return Document(newest, document[newest.length : -1])

    def split(self, document: bytes | Document | SchemaAndValue) -> tuple[Schema | None, Payload]:
        """The schema (None for schemaless) and the payload; Connect data contains its schema. Raises BadRecord."""
        if isinstance(document, Document):
            return document.schema_part.schema, document.payload
        if isinstance(document, SchemaAndValue):
            return self.intern(document.schema), document
        return self._split(document)

    def intern(self, schema: Schema | None) -> Schema | None:
        """The one object for equal schemas of Connect data."""
        return self._interned.intern(schema)

    def _split(self, document: bytes) -> tuple[Schema | None, bytes]:
        if not self._schemas_enable:
            if _like_a_document(document) and _embeds_schema(document):
                raise BadRecord(EMBEDDED_SCHEMA_ADVICE)
            return None, document
        newest = self._newest
        if document[-1:] != b"}":
            return self._split_unseen(document)
        if newest is not None and document.startswith(newest.prefix):
            return newest.schema, document[newest.length : -1]
        for position, schema_part in enumerate(self._schema_parts):
            if document.startswith(schema_part.prefix):
                self._schema_parts.insert(0, self._schema_parts.pop(position))  # a topic changes its schema rarely
                self._newest = schema_part
                return schema_part.schema, document[schema_part.length : -1]
        return self._split_unseen(document)

    def split_alike(
        self, documents: Sequence[bytes | Document | SchemaAndValue | None]
    ) -> tuple[Schema | None, list[Payload | None]] | None:
        """Return the schema that all documents share, and their payloads; None if each has to be split.

        A tombstone (None) has no payload, and fits any schema.
        """
        first = next((document for document in documents if document is not None), None)
        if not self._schemas_enable and not isinstance(first, SchemaAndValue):
            plain: list[bytes | None] = [document_bytes(document) for document in documents]  # type: ignore[arg-type] # all are of one form
            if any(map(_like_a_document, filter(None, plain))):
                return None
            return None, [*plain]
        if not isinstance(first, Document):
            return None
        shared = first.schema_part
        if False in [other is None or (type(other) is Document and other.schema_part is shared) for other in documents]:
            return None
        return shared.schema, [None if document is None else document.payload for document in documents]  # type: ignore[union-attr] # as was just checked

    def _split_unseen(self, document: bytes) -> tuple[Schema | None, bytes]:
        try:
            parts = read_json(_document, document)
            text, payload = bytes(parts.schema), bytes(parts.payload)
            schema = self._schema(text)
        except msgspec.ValidationError as error:
            raise BadRecord(ENVELOPE_ADVICE) from error
        except msgspec.DecodeError as error:
            # With the position but not the text: a message must not contain data.
            problem = f"{error} ({len(document)} bytes)"
            raise BadRecord(
                f"Converting byte[] to Kafka Connect data failed due to serialization error: {problem}"
            ) from error
        if _bare(document) != _bare(text) + _bare(payload) + _ENVELOPE:
            raise BadRecord(ENVELOPE_ADVICE)  # schema or payload is repeated: which one counts would be undefined
        prefix = b'{"schema":' + text + b',"payload":'
        if document == prefix + payload + b"}":  # JsonConverter's own layout, without spaces
            self._newest = _SchemaPart(schema, prefix, len(prefix))
            self._schema_parts.insert(0, self._newest)
            del self._schema_parts[self._cache_size :]
        return schema, payload

    def _schema(self, text: bytes) -> Schema | None:
        """The schema of a text; the same object for the same text, regardless of the layout of the document."""
        if text not in self._by_text:
            described = read_json(_anything, text)
            if described is None:
                return None
            try:
                self._by_text[text] = schema_from_json(described)
            except (KeyError, TypeError, AttributeError) as error:
                raise BadRecord("the embedded schema is not a Connect schema") from error
        return self._by_text[text]


def _embeds_schema(document: bytes) -> bool:
    """Return whether a document has exactly a schema and a payload.

    A row may have columns of these names: its ``schema`` is a text, and that of a document an object, or null beside an
    object.
    """
    try:
        parts = read_json(_document, document)
    except msgspec.DecodeError:
        return False  # reported when it is decoded
    schema, payload = bytes(parts.schema), bytes(parts.payload)
    return schema.startswith(b"{") or (schema == b"null" and payload.startswith(b"{"))


_ENVELOPE = len(b'{"schema":,"payload":}')


def _bare(document: bytes) -> int:
    """Return the bytes of a document without white space, also within its texts."""
    return len(document.translate(None, b" \t\r\n"))


def parse_plain(document: Payload) -> Any:
    """Decode a JSON document, or Connect data, to plain Python values. Raises BadRecord."""
    if isinstance(document, SchemaAndValue):
        return document.value
    try:
        return read_json(_anything, document)
    except msgspec.DecodeError as error:
        raise BadRecord(
            f"Converting byte[] to Kafka Connect data failed due to serialization error: {error}"
        ) from error


# -- types -------------------------------------------------------------------------------------------------


def json_type(schema: Schema, *, numeric_decimals: bool = False) -> Any:
    """Return the Python type that msgspec decodes a payload of this schema to: Connect values, with base64 decoded.

    Any value may be null. ``numeric_decimals`` reads Decimals written as JSON numbers (``decimal.format=NUMERIC``),
    exactly.
    """
    return _value_type(schema, numeric_decimals) | None


def _value_type(schema: Schema, numeric_decimals: bool) -> Any:
    if schema.type == "array" and schema.items is not None:
        items = json_type(schema.items, numeric_decimals=numeric_decimals)
        return list[items]  # type: ignore[valid-type] # built at run time
    if schema.type == "map" and schema.keys is not None and schema.values is not None:
        key = json_type(schema.keys, numeric_decimals=numeric_decimals)
        value = json_type(schema.values, numeric_decimals=numeric_decimals)
        if schema.keys.type == "string":  # only these make a JSON object; other maps are lists of pairs
            return dict[str, value]  # type: ignore[valid-type] # built at run time
        return list[tuple[key, value]]  # type: ignore[valid-type] # built at run time
    if schema.type == "struct":
        members = {m.name: json_type(m.schema, numeric_decimals=numeric_decimals) for m in schema.fields}
        # msgspec finds a member by the UTF-8 form of its name. Encoding the names makes Python cache this form in them.
        msgspec.json.encode(list(members))
        return TypedDict("Struct", members, total=False)  # type: ignore[operator] # built at run time
    if schema.name == DECIMAL and numeric_decimals:
        return Decimal
    return _SCALARS[schema.type]


_SCALARS: dict[str, Any] = {
    "boolean": bool,
    "int8": int,
    "int16": int,
    "int32": int,
    "int64": int,
    "float": float | str,
    "double": float | str,
    "string": str,
    "bytes": bytes,
}


_UNREADABLE = re.compile(r'["\\\x00-\x1f]')
_SHOWN = 200


def row_type(
    schema: Schema, names: Sequence[str], *, numeric_decimals: bool = False, strict: bool = False
) -> type[msgspec.Struct]:
    """Return a msgspec struct for the fields ``names`` of a struct schema, in this order for ``astuple``.

    With ``strict`` a field that its schema requires has to be there and not null, unless it has a default. Raises
    BadRecord for names that msgspec cannot decode.
    """
    if unreadable := next(filter(_UNREADABLE.search, names), None):
        raise BadRecord(
            f"the name of the column {unreadable[:_SHOWN]!r} has a quote, a backslash or a control character, which is "
            "not supported; exclude the column at the source (column.exclude.list)"
        )
    members: list[Any] = []
    for index, name in enumerate(names):
        field = schema.field(name)
        if field is None:
            raise BadRecord(f"the schema has no field {name!r}")
        if strict and not field.optional and field.default is None:
            members.append((f"f{index}", _value_type(field, numeric_decimals)))
        else:
            members.append((f"f{index}", json_type(field, numeric_decimals=numeric_decimals), None))
    rename = {f"f{index}": name for index, name in enumerate(names)}
    return msgspec.defstruct("Row", members, rename=rename, kw_only=True, gc=False)


MOST_DIGITS = 4_000
"""The limit on digits of a number: databases have far fewer, and a short JSON number may have any number of zeros."""

_Decoders = tuple[Schema, PayloadDecoder[Any], PayloadDecoder[Any]]


class JsonData:
    """Decode keys or values that JsonConverter wrote. Not thread-safe. It caches the decoders of the last schemas."""

    def __init__(self, schemas_enable: bool, cache_size: int = 64) -> None:
        self._converter = JsonConverter(schemas_enable, cache_size)
        # By the id of the schema: an entry holds its schema, so that no other object gets this id.
        self._decoders: LRUCache[int, _Decoders] = LRUCache(cache_size)

    def to_connect_data(self, document: bytes | Document, headers: Sequence[tuple[str, bytes]] = ()) -> SchemaAndValue:
        """A document's schema and value; documents with the same schema text share one object. Raises BadRecord."""
        return self.decode_payload(*self._converter.split(document))

    def decode_payload(self, schema: Schema | None, payload: Payload) -> SchemaAndValue:
        """Decode a payload of a schema, or a plain document. Raises BadRecord."""
        if schema is None:
            return SchemaAndValue(None, parse_plain(payload))
        decoders = self._decoders.get(id(schema))
        if decoders is None:
            numbers = json_type(schema, numeric_decimals=True)
            decoders = schema, PayloadDecoder[Any](json_type(schema)), PayloadDecoder[Any](numbers)
            self._decoders[id(schema)] = decoders
        _, decoder, numeric = decoders
        try:
            return SchemaAndValue(schema, decoder.decode(payload))
        except msgspec.DecodeError as error:
            first = error
        try:
            return SchemaAndValue(schema, _to_unscaled(schema, numeric.decode(payload)))
        except msgspec.DecodeError:
            raise BadRecord(
                f"Converting byte[] to Kafka Connect data failed due to serialization error: {first}"
            ) from first


class FixedSchema:
    """A ``Converter`` of payloads that all have one schema, whose JSON is ``text`` (``schema.content``)."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._data = JsonData(True)

    def to_connect_data(self, document: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> SchemaAndValue:
        """The data of one payload. Raises BadRecord."""
        return self._data.decode_payload(self._schema, document)

    @cached_property
    def _schema(self) -> Schema | None:
        return JsonConverter(True).split(b'{"schema":' + self._text + b',"payload":null}')[0]


def _to_unscaled(schema: Schema, value: Any) -> object:
    """Convert the Decimals of a value, which were numbers in JSON, to Connect's form."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return unscaled_bytes(value, int(schema.parameter("scale") or 0))
    if schema.type == "struct":
        return {
            field.name: _to_unscaled(field.schema, value[field.name]) for field in schema.fields if field.name in value
        }
    if schema.items is not None:
        return [_to_unscaled(schema.items, item) for item in value]
    if schema.keys is not None and schema.values is not None:
        if isinstance(value, Mapping):
            return {key: _to_unscaled(schema.values, member) for key, member in value.items()}
        return [(_to_unscaled(schema.keys, key), _to_unscaled(schema.values, member)) for key, member in value]
    return value


def unscaled_bytes(value: Decimal, scale: int) -> bytes:
    """Return a Decimal in Connect's form: its unscaled value in big-endian two's complement.

    Raises BadRecord for more than ``MOST_DIGITS`` digits, or more decimal places than ``scale``.
    """
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or len(digits) + abs(exponent) + abs(scale) > MOST_DIGITS:
        raise BadRecord(f"a number of schema {DECIMAL} has more than {MOST_DIGITS} digits")
    shift = scale + exponent
    if shift < 0 and any(digits[shift:]):
        raise BadRecord(f"a number has more decimal places than the {scale} of its schema {DECIMAL}")
    unsigned = "".join(map(str, digits)) + "0" * shift if shift >= 0 else "".join(map(str, digits[:shift]))
    number = int(unsigned or "0") * (-1 if sign else 1)
    return number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
