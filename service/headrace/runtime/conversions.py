"""From a connector's configuration to its converters."""

from __future__ import annotations

from headrace.config import SinkConnectorConfig
from headrace.config.converter import JSON_CONVERTER
from headrace.core.conversion import Conversion, Converter
from headrace.core.errors import Stage
from headrace.core.simple_converters import SIMPLE_CONVERTERS

STAGES = {"key": Stage.KEY_CONVERTER, "value": Stage.VALUE_CONVERTER}


def open_conversion(config: SinkConnectorConfig) -> Conversion:
    """The connector's converters, but for JsonConverters, which the decoder reads by itself."""
    return Conversion(*(_converter(config, side) for side in ("key", "value")))


def converter_classes(config: SinkConnectorConfig) -> dict[Stage, str]:
    """The class of each converter, by its stage."""
    return {stage: config.converter_classes[side] for side, stage in STAGES.items()}


def _converter(config: SinkConnectorConfig, side: str) -> Converter | None:
    name = config.converter_classes[side]
    return None if name == JSON_CONVERTER else SIMPLE_CONVERTERS[name](config.converters[side])
