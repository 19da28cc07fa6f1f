"""Convert JsonConverter's documents to Connect data, for transforms.

Without transforms, ``core/decode/json_types.py`` decodes documents without this intermediate form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import msgspec
from cachetools import LRUCache

from headrace.core.decode.json_types import Document, JsonConverter, json_type, parse_plain
from headrace.core.decode.payload import Payload, PayloadDecoder
from headrace.core.model.arrow_columns import DECIMAL
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema

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
        return self.decoded(*self._converter.split(document))

    def decoded(self, schema: Schema | None, payload: Payload) -> SchemaAndValue:
        """Decode a payload of a schema, or a plain document. Raises BadRecord."""
        if schema is None:
            return SchemaAndValue(None, parse_plain(payload))
        _, decoder, numeric = self._decoders_of(schema)
        try:
            return SchemaAndValue(schema, decoder.decode(payload))
        except msgspec.DecodeError as error:
            first = error
        try:
            return SchemaAndValue(schema, _unscaled(schema, numeric.decode(payload)))
        except msgspec.DecodeError:
            raise BadRecord(
                f"Converting byte[] to Kafka Connect data failed due to serialization error: {first}"
            ) from first

    def _decoders_of(self, schema: Schema) -> _Decoders:
        known = self._decoders.get(id(schema))
        if known is None:
            numeric = json_type(schema, numeric_decimals=True)
            known = schema, PayloadDecoder[Any](json_type(schema)), PayloadDecoder[Any](numeric)
            self._decoders[id(schema)] = known
        return known


class FixedSchema:
    """A ``Converter`` of payloads that all have one schema, whose JSON is ``text`` (``schema.content``)."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._data = JsonData(True)

    def to_connect_data(self, document: bytes, headers: Sequence[tuple[str, bytes]] = ()) -> SchemaAndValue:
        """The data of one payload. Raises BadRecord."""
        return self._data.decoded(self._schema, document)

    @cached_property
    def _schema(self) -> Schema | None:
        return JsonConverter(True).split(b'{"schema":' + self._text + b',"payload":null}')[0]


def _unscaled(schema: Schema, value: Any) -> Any:
    """Convert the Decimals of a value, which were numbers in JSON, to Connect's form."""
    if value is None:
        return None
    if isinstance(value, Decimal):
        return unscaled_bytes(value, int(schema.parameter("scale") or 0))
    if schema.type == "struct":
        return {each.name: _unscaled(each.schema, value[each.name]) for each in schema.fields if each.name in value}
    if schema.items is not None:
        return [_unscaled(schema.items, item) for item in value]
    if schema.keys is not None and schema.values is not None:
        return _unscaled_map(schema.keys, schema.values, value)
    return value


def _unscaled_map(keys: Schema, values: Schema, value: Mapping[str, Any] | Sequence[tuple[Any, Any]]) -> Any:
    if isinstance(value, Mapping):
        return {key: _unscaled(values, each) for key, each in value.items()}
    return [(_unscaled(keys, key), _unscaled(values, each)) for key, each in value]


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
