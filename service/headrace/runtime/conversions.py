"""From a connector's configuration to its converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.config import SinkConnectorConfig
from headrace.config.converter import JSON_CONVERTER
from headrace.config.registry_converters import APICURIO_AVRO, APICURIO_JSON, CONFLUENT_AVRO, CONFLUENT_JSON
from headrace.core.avro import avro_reader
from headrace.core.conversion import Conversion, Converter
from headrace.core.errors import ConfigError, Stage
from headrace.core.json_data import FixedSchema
from headrace.core.json_schema import connect_json_reader, json_schema_reader
from headrace.core.registered import (
    Framing,
    IdKind,
    Read,
    RegisteredSchema,
    RegistryConverter,
    SchemaRegistry,
    apicurio_framing,
    confluent_framing,
)
from headrace.core.simple_converters import SIMPLE_CONVERTERS

_READERS: Mapping[str, Callable[[RegisteredSchema], Read]] = {
    CONFLUENT_AVRO: avro_reader,
    CONFLUENT_JSON: json_schema_reader,
    APICURIO_AVRO: avro_reader,
    APICURIO_JSON: connect_json_reader,
}
_APICURIO = (APICURIO_AVRO, APICURIO_JSON)
STAGES = {"key": Stage.KEY_CONVERTER, "value": Stage.VALUE_CONVERTER}

OpenRegistry = Callable[[str, Mapping[str, str]], SchemaRegistry]
"""Opens a registry: ``confluent`` or ``apicurio``, with a converter's options. Raises ConfigError."""


def no_registries(name: str, options: Mapping[str, str]) -> SchemaRegistry:
    """What a worker has that was made without schema registries."""
    raise ConfigError(f"this worker has no client for schema registries ({name})")


def open_conversion(config: SinkConnectorConfig, open_registry: OpenRegistry) -> Conversion:
    """The connector's converters, but for JsonConverters of documents that
    carry their schema or have none: those the decoder reads by itself. Raises ConfigError."""
    return Conversion(*(_converter(config, side, open_registry) for side in ("key", "value")))


def converter_classes(config: SinkConnectorConfig) -> dict[Stage, str]:
    """The class of each converter, by its stage."""
    return {stage: config.converter_classes[side] for side, stage in STAGES.items()}


def _converter(config: SinkConnectorConfig, side: str, open_registry: OpenRegistry) -> Converter | None:
    name, options = config.converter_classes[side], config.converters[side]
    if name == JSON_CONVERTER:
        content = options.get("schema.content", "") if config.schemas_enabled(side) else ""
        return FixedSchema(content.encode()) if content else None
    if name in SIMPLE_CONVERTERS:
        return SIMPLE_CONVERTERS[name](options)
    registry = open_registry("apicurio" if name in _APICURIO else "confluent", options)
    remembered = int(options.get("schemas.cache.config") or 1000)
    return RegistryConverter(registry, _framing(name, side, options), _READERS[name], remembered)


def _framing(name: str, side: str, options: Mapping[str, str]) -> Framing:
    if name not in _APICURIO:
        return confluent_framing(side)
    kinds = {kind.lower(): kind for kind in IdKind}
    return apicurio_framing(side, kinds.get(options.get("apicurio.registry.use-id", "").strip().lower()))
