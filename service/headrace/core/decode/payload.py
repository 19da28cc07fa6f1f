"""A record's key or value without its schema: undecoded JSON, or Connect data.

JsonConverter's documents stay bytes until a type that was compiled from their schema decodes them, which is fast. The
results of other converters and of transforms are Connect data (``SchemaAndValue``). ``msgspec.convert`` converts them
to the same types, so that all decoded values have one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec
from cachetools import LRUCache

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Schema

Payload = bytes | SchemaAndValue
T = TypeVar("T")


class PayloadDecoder(Generic[T]):
    """Decode payloads, or many of them in one call, to values of ``value_type``."""

    def __init__(self, value_type: type[T]) -> None:
        self._value_type = value_type
        self._json: msgspec.json.Decoder[T] = msgspec.json.Decoder(value_type)

    def decode(self, document: Payload, *, strict: bool = True) -> T:
        """Decode one payload, or payloads that ``in_one`` has joined. Raises msgspec.DecodeError.

        Without ``strict``, text in Connect data may be converted to a number or a boolean.
        """
        if isinstance(document, SchemaAndValue):
            return msgspec.convert(document.value, self._value_type, strict=strict)
        return read_json(self._json, document)


def read_json(decoder: msgspec.json.Decoder[T], document: bytes) -> T:
    """Decode a document. Raises msgspec.DecodeError, also where msgspec raises another error."""
    try:
        return decoder.decode(document)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: invalid UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error


def in_one(payloads: Sequence[Payload]) -> Payload:
    """Join payloads of one form to one payload that is a list of them."""
    if payloads and isinstance(payloads[0], SchemaAndValue):
        return SchemaAndValue(None, [payload.value for payload in payloads])  # type: ignore[union-attr] # one form
    return b"[" + b",".join(payloads) + b"]"  # type: ignore[arg-type] # one form


def one_each(values: list[T], payloads: Sequence[Payload]) -> list[T]:
    """Return the values of payloads that ``in_one`` has joined, if each payload is one value.

    Raises msgspec.DecodeError otherwise: an empty payload has no value, and a comma could separate two.
    """
    if len(values) != len(payloads):
        raise msgspec.DecodeError("JSON is malformed: a document is not one value")
    return values


class InternedSchemas:
    """One object for equal schemas, so that decoders can identify them by their identity."""

    def __init__(self, cache_size: int) -> None:
        self._first: LRUCache[Schema, Schema] = LRUCache(cache_size)
        self._by_id: LRUCache[int, tuple[Schema, Schema]] = LRUCache(
            cache_size
        )  # holds it, so that its id stays unique

    def intern(self, schema: Schema | None) -> Schema | None:
        """Return the first of all equal schemas."""
        if schema is None:
            return None
        entry = self._by_id.get(id(schema))
        if entry is None:
            first = self._first.setdefault(schema, schema)
            entry = self._by_id[id(schema)] = schema, first
        return entry[1]
