"""Converters: which there are, what they are called, and their options (``connect.md`` sections 11 and 12)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.config.registry_converters import REGISTRY_CONVERTERS
from headrace.converters.simple import (
    BOOLEAN_CONVERTER,
    BYTE_ARRAY_CONVERTER,
    NUMBER_CONVERTERS,
    STRING_CONVERTER,
    StringOptions,
)
from headrace.core.connect.config_def import (
    REQUIRED,
    ConfigDef,
    ConfigKey,
    Importance,
    InvalidValue,
    Type,
    Width,
    any_case,
    at_least,
    one_of,
)
from headrace.core.connect.typed_options import Layout, definition, option, option_group
from headrace.core.decode.envelope import EnvelopeOptions
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import schema_from_json

JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"
SIMPLE_HEADER_CONVERTER = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


def _check_nulls_stay(name: str, value: Any) -> None:
    """Debezium sends a column's default with its schema: reading nulls as defaults would change the source's data."""
    if value:
        raise InvalidValue(
            f"Invalid value true for configuration {name}: a null would become its column's default, and the table "
            "would differ from its source; set it to false, for the source connector's converters as well"
        )


def _check_connect_schema(name: str, value: Any) -> None:
    if not value:
        return
    try:
        schema_from_json(json.loads(value))
    except (ValueError, KeyError, TypeError, AttributeError, BadRecord) as error:
        raise InvalidValue(f"Invalid value for configuration {name}: it is not a schema of Kafka Connect") from error


_TYPE = ConfigDef(
    (
        ConfigKey(
            "converter.type",
            Type.STRING,
            REQUIRED,
            Importance.LOW,
            "Whether the converter reads keys, values or headers. Set by the option that names the converter.",
            validator=one_of("key", "value", "header"),
        ),
    )
)


@dataclass(frozen=True, slots=True)
class SchemasEnabled:
    """Whether documents contain their schemas. Other converters than JsonConverter have none beside them."""

    enabled: bool = option(
        "schemas.enable",
        Type.BOOLEAN,
        EnvelopeOptions().value_schemas,
        "Whether every document contains its schema, as Debezium writes it by default. If false, the "
        "documents are plain JSON, and types come from the table and from inference.",
        Importance.HIGH,
        layout=Layout("Schemas", 0, Width.MEDIUM, "Enable Schemas"),
    )


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """The options of JsonConverter."""

    schemas: SchemasEnabled = option_group(SchemasEnabled)
    cache_size: int = option(
        "schemas.cache.size",
        Type.INT,
        1000,
        "Accepted for compatibility with Kafka Connect, where it bounds the cache of parsed schemas. Headrace "
        "parses a schema text that repeats byte for byte once, and bounds its cache itself.",
        Importance.HIGH,
        at_least(0),
        layout=Layout("Schemas", 1, Width.MEDIUM, "Schema Cache Size"),
    )
    schema_content: str | None = option(
        "schema.content",
        Type.STRING,
        None,
        "The schema of all documents, which then contain none: JSON in the form that JsonConverter writes "
        "before a document. Applies if schemas.enable is true.",
        Importance.HIGH,
        _check_connect_schema,
        layout=Layout("Schemas", 2, Width.MEDIUM, "Schema Content"),
    )
    decimal_format: str = option(
        "decimal.format",
        Type.STRING,
        "BASE64",
        "How decimals are written: BASE64 or NUMERIC. A sink reads both, regardless of this value.",
        Importance.LOW,
        any_case("NUMERIC", "BASE64"),
        layout=Layout("Serialization", 0, Width.MEDIUM, "Decimal Format"),
    )
    replace_nulls: bool = option(
        "replace.null.with.default",
        Type.BOOLEAN,
        False,
        "Kafka Connect's option for reading a null as the default of its field. Only false is accepted: a table "
        "that equals its source keeps its nulls. The source connector's converters need false as well.",
        Importance.LOW,
        _check_nulls_stay,
        layout=Layout("Serialization", 1, Width.MEDIUM, "Replace null with default"),
    )


JSON_CONVERTER_KEYS = _TYPE + definition(JsonOptions)
STRING_CONVERTER_KEYS = _TYPE + definition(StringOptions)

_SIMPLE: dict[str, ConfigDef] = {
    **dict.fromkeys((BOOLEAN_CONVERTER, BYTE_ARRAY_CONVERTER, *NUMBER_CONVERTERS), _TYPE),
    STRING_CONVERTER: STRING_CONVERTER_KEYS,
}

CONVERTERS: dict[str, ConfigDef] = {
    JSON_CONVERTER: JSON_CONVERTER_KEYS,
    **_SIMPLE,
    **{name: _TYPE + options for name, options in REGISTRY_CONVERTERS.items()},
}
"""Key and value converters by class."""

HEADER_CONVERTERS: dict[str, ConfigDef] = {
    SIMPLE_HEADER_CONVERTER: ConfigDef(()),
    JSON_CONVERTER: JSON_CONVERTER_KEYS,
    **_SIMPLE,
}
"""Header converters by class. Those headers that a transform names are read; Debezium's own are known by themselves."""

KNOWN_CONVERTERS = {"key": CONVERTERS, "value": CONVERTERS, "header": HEADER_CONVERTERS}
"""The converters that each option accepts, by the first part of its name."""

OTHER_ENCODINGS = ("serializer.encoding", "deserializer.encoding")
"""Options that StringConverter reads and does not list. The second one applies if ``converter.encoding`` is not set."""

OF_SOME_CONVERTER = frozenset(name for options in CONVERTERS.values() for name in options.names()) | {*OTHER_ENCODINGS}
"""Each converter of Kafka Connect ignores those of others: many files set ``schemas.enable`` for StringConverter."""


def with_types(properties: Mapping[str, str | None]) -> dict[str, str | None]:
    """``properties`` with the type of each converter, which follows from the place where it is configured."""
    return {f"{side}.converter.converter.type": side for side in ("key", "value", "header")} | dict(properties)


def converter_class(name: str, converters: dict[str, ConfigDef]) -> str | None:
    """The full class for a full name, simple name or alias (``JsonConverter``, ``Json``); None if there is no such."""
    if name in converters:
        return name
    for full in converters:
        simple = full.rpartition(".")[2]
        if name in (full, simple, simple.removesuffix("Converter")):
            return full
    return None
