"""Keys in the headers of a key change, in the format of the source worker's ``header.converter``.

JsonConverter writes JSON with or without its schema. Kafka Connect's default, SimpleHeaderConverter, writes a struct as
text that is nearly JSON (``Values.convertToString``): texts have only backslashes and quotes escaped, but not line
feeds; bytes are base64; a Decimal is a number. Connect's dates and times are written without quotes and in the worker's
time zone, and before 1970-01-02 without a date: such a key cannot be parsed, like the texts of other converters. An
event with such a header is handled as if it had none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from headrace.core.decode.json_types import row_type
from headrace.core.model.arrow_columns import build_array
from headrace.core.model.errors import BadRecord
from headrace.core.model.keys import canonical_keys
from headrace.core.model.schema import Field, Schema

_encoder = msgspec.json.Encoder(decimal_format="number")

_UNREADABLE = (ValueError, ArithmeticError, RecursionError, OverflowError, BadRecord)
"""The errors of the libraries for texts that are not a key."""


class HeaderKeys:
    """Parse key documents of headers as keys of one table."""

    def __init__(self, names: Sequence[str], schemas: Sequence[Schema]) -> None:
        self._schemas = schemas
        row = Schema("struct", fields=tuple(map(Field, names, schemas)))
        row_types = (row_type(row, names, numeric_decimals=numeric) for numeric in (False, True))
        self._decoders = [msgspec.json.Decoder[Any](each) for each in row_types]  # decimals as base64, or as numbers

    def texts(self, documents: Mapping[int, bytes]) -> dict[int, str]:
        """Return the canonical text of each document that can be parsed, by its index."""
        rows = {index: row for index, document in documents.items() if (row := self._row(document)) is not None}
        try:
            return self._canonical(rows)
        except _UNREADABLE:  # a value does not fit: convert the rows one by one
            return {index: text for index, row in rows.items() for text in self._alone(row)}

    def _alone(self, row: tuple[Any, ...]) -> list[str]:
        try:
            return list(self._canonical({0: row}).values())
        except _UNREADABLE:
            return []

    def _row(self, document: bytes) -> tuple[Any, ...] | None:
        """The values of the key's columns; None if the document does not have all of them."""
        try:
            payload = _payload(document)
            for decoder in self._decoders:
                try:
                    row: tuple[Any, ...] = msgspec.structs.astuple(decoder.decode(payload))
                except msgspec.ValidationError:
                    continue
                return None if None in row else row
        except _UNREADABLE:
            pass
        return None

    def _canonical(self, rows: Mapping[int, tuple[Any, ...]]) -> dict[int, str]:
        if not rows:
            return {}
        columns = zip(*rows.values(), strict=True)
        arrays = [build_array(schema, values) for schema, values in zip(self._schemas, columns, strict=True)]
        return dict(zip(rows, canonical_keys(arrays).to_pylist(), strict=True))


def _payload(document: bytes) -> bytes:
    """Return the key as JSON without its schema; numbers keep all digits."""
    plain = json.loads(document, strict=False, parse_int=Decimal, parse_float=Decimal, parse_constant=str)
    if isinstance(plain, dict) and plain.keys() == {"schema", "payload"} and isinstance(plain["payload"], dict):
        plain = plain["payload"]
    return _encoder.encode(plain)
