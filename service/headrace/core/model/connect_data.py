"""Kafka Connect's data, a value with its schema: the result of converters, and the input and result of transforms.

With every converter, values have the physical form that JsonConverter's payloads are decoded to
(``core/decode/json_converter.py: json_type``): a struct is a dict by field name, a map with string keys a dict, any
other map a list of pairs, a Decimal its unscaled big-endian bytes; Date, Time and Timestamp are integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.core.model.schema import Schema


@dataclass(frozen=True, slots=True)
class SchemaAndValue:
    """A value with its schema; ``schema`` is None for schemaless data."""

    schema: Schema | None
    value: Any
