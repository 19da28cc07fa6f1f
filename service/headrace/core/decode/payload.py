"""A record's key or value without its schema: JSON that is still to be decoded, or Connect data as it is.

JsonConverter's documents stay bytes until a type that was compiled from their schema decodes them, which is what makes
them fast. What other converters give, and what transforms have changed, is Connect data already (``SchemaAndValue``):
the same types take it by ``msgspec.convert``, so that everything behind them sees one form.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import msgspec
from cachetools import LRUCache

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Schema

Payload = bytes | SchemaAndValue
T = TypeVar("T")


class PayloadDecoder(Generic[T]):
    """Decodes payloads, or many of them in one call, as values of the type ``kind``."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind
        self._json: msgspec.json.Decoder[T] = msgspec.json.Decoder(kind)

    def decode(self, document: Payload, *, strict: bool = True) -> T:
        """The value of one payload, or of payloads that ``in_one`` has joined. Raises msgspec.DecodeError.

        Without ``strict``, Connect data that is text may be read as a number or a boolean.
        """
        if isinstance(document, SchemaAndValue):
            return msgspec.convert(document.value, self._kind, strict=strict)  # type: ignore[no-any-return] # known at run time
        return read_json(self._json, document)


def read_json(decoder: msgspec.json.Decoder[T], document: bytes) -> T:
    """What a decoder reads in a document. Raises msgspec.DecodeError, also where msgspec has another error for it."""
    try:
        return decoder.decode(document)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"JSON is malformed: invalid UTF-8 (byte {error.start})") from error
    except RecursionError as error:
        raise msgspec.DecodeError("JSON is nested too deeply") from error


def in_one(payloads: Sequence[Payload]) -> Payload:
    """Payloads of one form as one that holds a list of them."""
    if payloads and isinstance(payloads[0], SchemaAndValue):
        return SchemaAndValue(None, [payload.value for payload in payloads])  # type: ignore[union-attr] # one form
    return b"[" + b",".join(payloads) + b"]"  # type: ignore[arg-type] # one form


def one_each(values: list[T], payloads: Sequence[Payload]) -> list[T]:
    """The values of payloads that ``in_one`` has joined, if each payload is one value.

    Raises msgspec.DecodeError otherwise: an empty payload is none, and one may be two with a comma between them.
    """
    if len(values) != len(payloads):
        raise msgspec.DecodeError("JSON is malformed: a document is not one value")
    return values


class KnownSchemas:
    """One object for schemas that say the same, so that decoders may know them by their identity."""

    def __init__(self, remembered: int) -> None:
        self._same: LRUCache[Schema, Schema] = LRUCache(remembered)
        self._by_id: LRUCache[int, tuple[Schema, Schema]] = LRUCache(remembered)  # holding it keeps its id its own

    def one(self, schema: Schema | None) -> Schema | None:
        """The first schema that was met of those that equal ``schema``."""
        if schema is None:
            return None
        known = self._by_id.get(id(schema))
        if known is None:
            same = self._same.setdefault(schema, schema)
            known = self._by_id[id(schema)] = schema, same
        return known[1]
