"""From a connector's configuration to its converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from headrace.config import SinkConnectorConfig
from headrace.config.converter import JSON_CONVERTER, JsonOptions
from headrace.config.registry_converters import (
    APICURIO_AVRO,
    APICURIO_JSON,
    APICURIO_PROTOBUF,
    CONFLUENT_AVRO,
    CONFLUENT_JSON,
    CONFLUENT_PROTOBUF,
    ApicurioOptions,
    SchemaCacheOptions,
    SubjectOptions,
)
from headrace.converters.avro import AvroReader
from headrace.converters.conversion import Conversion, Converter
from headrace.converters.json_schema import connect_json_reader, json_schema_reader
from headrace.converters.protobuf_data import ProtobufOptions
from headrace.converters.registered import (
    Framing,
    IdKind,
    Read,
    RegisteredSchema,
    RegistryConverter,
    apicurio_framing,
    confluent_framing,
    wrapped_framing,
)
from headrace.converters.simple import SIMPLE_CONVERTERS
from headrace.core.connect.typed_options import parse_options
from headrace.core.decode.json_converter import FixedSchema, JsonData
from headrace.core.model.errors import ConfigError, Stage
from headrace.ports import SchemaRegistry
from headrace.runtime.task.chunk_decoder import FetchedSchemas

Compile = Callable[[RegisteredSchema], Read]

_APICURIO = (APICURIO_AVRO, APICURIO_JSON, APICURIO_PROTOBUF)
STAGES = {"key": Stage.KEY_CONVERTER, "value": Stage.VALUE_CONVERTER, "header": Stage.HEADER_CONVERTER}

OpenRegistry = Callable[[str, Mapping[str, str]], SchemaRegistry]
"""Opens a registry: ``confluent`` or ``apicurio``, with a converter's options. Raises ConfigError."""


def no_registries(name: str, options: Mapping[str, str]) -> SchemaRegistry:
    raise ConfigError(f"this worker has no client for schema registries ({name})")


def open_conversion(config: SinkConnectorConfig, open_registry: OpenRegistry) -> Conversion:
    """Return the connector's converters. Raises ConfigError.

    None stands for a JsonConverter of documents that contain their schema or have none: the decoder reads these.
    """
    key, value = (_converter(config, side, open_registry) for side in ("key", "value"))
    name, options = config.converter_classes["header"], config.converters["header"]
    header: Converter | None = None
    if name == JSON_CONVERTER:
        header = _fixed_schema(config, "header") or JsonData(config.schemas_enabled("header"))
    elif name in SIMPLE_CONVERTERS:
        header = SIMPLE_CONVERTERS[name](options)
    return Conversion(key, value, header)


def converter_classes(config: SinkConnectorConfig) -> dict[Stage, str]:
    return {stage: config.converter_classes[side] for side, stage in STAGES.items()}


def _fixed_schema(config: SinkConnectorConfig, side: str) -> Converter | None:
    options = parse_options(JsonOptions, config.converters[side])
    return FixedSchema(options.schema_content.encode()) if options.schemas.enabled and options.schema_content else None


def _converter(config: SinkConnectorConfig, side: str, open_registry: OpenRegistry) -> Converter | None:
    name, options = config.converter_classes[side], config.converters[side]
    if name == JSON_CONVERTER:
        return _fixed_schema(config, side)
    if name in SIMPLE_CONVERTERS:
        return SIMPLE_CONVERTERS[name](options)
    schemas = FetchedSchemas(open_registry("apicurio" if name in _APICURIO else "confluent", options))
    remembered = parse_options(SchemaCacheOptions, options).size
    return RegistryConverter(schemas.get, _framing(name, side, options), _compile(name, options), remembered)


def _compile(name: str, options: Mapping[str, str]) -> Compile:
    """The reader of a registry's schemas."""
    if name in (CONFLUENT_PROTOBUF, APICURIO_PROTOBUF):
        from headrace.converters import protobuf  # here, because its grammar takes half a second and 30 MB

        if name == APICURIO_PROTOBUF:
            return protobuf.named_protobuf_reader
        return partial(protobuf.protobuf_reader, options=parse_options(ProtobufOptions, options))
    return _READERS[name]


_READERS: Mapping[str, Compile] = {
    CONFLUENT_AVRO: AvroReader,
    CONFLUENT_JSON: json_schema_reader,
    APICURIO_AVRO: AvroReader,
    APICURIO_JSON: connect_json_reader,
}


def _framing(name: str, side: str, options: Mapping[str, str]) -> Framing:
    if name not in _APICURIO:
        return confluent_framing(side, by_topic=parse_options(SubjectOptions, options).by_topic(side))
    apicurio = parse_options(ApicurioOptions, options)
    use_id = apicurio.id_kind
    if name == APICURIO_JSON:  # its documents do not indicate the kind: version 2 writes global ids, 3 content ids
        return wrapped_framing(
            side, use_id or (IdKind.CONTENT_ID if any("/v3" in url for url in apicurio.urls) else IdKind.GLOBAL_ID)
        )
    return apicurio_framing(side, use_id)
