"""Debezium's transforms of columns and their names with their options (``connect.md`` section 14.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.core.connect.config_def import ConfigDef, parse_list
from headrace.core.connect.config_validators import InvalidValue
from headrace.transforms.columns import (
    SRIDS,
    VectorToJsonConverter,
    geometry_format_transformer,
    swap_geometry_coordinates,
)
from headrace.transforms.naming import STYLES, CollectionNameTransformation, FieldNameTransformation, NamingStyle
from headrace.transforms.options import LOW, PluginClass, Values, option
from headrace.transforms.record import Transform

_PACKAGE = "io.debezium.transforms."
_JDBC = "io.debezium.connector.jdbc.transforms."


def transforms() -> Iterator[PluginClass]:
    """Return the transforms of geometries and vectors, and those of Debezium's JDBC sink."""
    yield PluginClass(f"{_PACKAGE}SwapGeometryCoordinates", _SWAP, _swap)
    yield PluginClass(
        f"{_PACKAGE}GeometryFormatTransformer",
        _FORMAT,
        lambda values: geometry_format_transformer(extend=values["format"].strip().lower() != "ewkb"),
    )
    yield PluginClass(f"{_PACKAGE}VectorToJsonConverter", ConfigDef(()), lambda values: VectorToJsonConverter())
    yield PluginClass(
        f"{_JDBC}CollectionNameTransformation",
        _naming("collection", "a topic's name"),
        lambda values: CollectionNameTransformation(_style("collection", values)),
        keeps_cells=True,
    )
    yield PluginClass(
        f"{_JDBC}FieldNameTransformation",
        _naming("column", "a column's name"),
        lambda values: FieldNameTransformation(_style("column", values)),
    )


def _srids(name: str, value: Any) -> None:
    for entry in parse_list(value or ""):
        if not entry.isdecimal():
            raise InvalidValue(f"Invalid value {value} for configuration {name}: must be a list of numbers")


_SWAP = ConfigDef(
    (
        option(
            "srids",
            doc=f"Reference systems whose coordinates are swapped; the default is {', '.join(map(str, SRIDS))}.",
            importance=LOW,
            validator=_srids,
        ),
    )
)


def _swap(values: Values) -> Transform:
    given = values["srids"]
    return swap_geometry_coordinates(SRIDS if given is None else [int(entry) for entry in parse_list(given)])


_FORMAT = ConfigDef(
    (
        option(
            "format",
            default="wkb",
            doc="wkb: add the SRID to plain geometries and remove it from extended ones. ewkb: only remove it.",
            importance=LOW,
        ),
    )
)


def _naming(what: str, name: str) -> ConfigDef:
    return ConfigDef(
        (
            option(f"{what}.naming.prefix", default="", doc=f"A prefix of {name}.", importance=LOW),
            option(f"{what}.naming.suffix", default="", doc=f"A suffix of {name}.", importance=LOW),
            option(
                f"{what}.naming.style",
                default="default",
                doc=f"The style of {name}: {', '.join(style.lower() for style in STYLES)}.",
                importance=LOW,
            ),
        )
    )


def _style(what: str, values: Values) -> NamingStyle:
    return NamingStyle(*(values[f"{what}.naming.{part}"] or "" for part in ("style", "prefix", "suffix")))
