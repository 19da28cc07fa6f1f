"""Debezium's transforms with their options (``connect.md`` section 14.2).

Tests: ``tests/unit/transforms/test_recorded.py``, ``tests/unit/config/test_transforms.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headrace.core.connect.config_def import ConfigDef, InvalidValue, Type, any_case, parse_list, regex
from headrace.transforms.change_events import (
    Deletes,
    DropFields,
    ExtractChangedRecordState,
    ExtractNewRecordState,
    FieldReference,
    HeaderToValue,
    SchemaChangeEventFilter,
)
from headrace.transforms.columns import (
    SRIDS,
    STYLES,
    CollectionNameTransformation,
    FieldNameTransformation,
    NamingStyle,
    VectorToJsonConverter,
    geometry_format_transformer,
    swap_geometry_coordinates,
)
from headrace.transforms.java_formats import check_replacement, compile_pattern
from headrace.transforms.options import HIGH, LOW, REPLACE_NULL, PluginClass, Values, option, word
from headrace.transforms.record import Transform
from headrace.transforms.routing import ByLogicalTableRouter, KeyField
from headrace.transforms.timestamps import Rules, TimezoneConverter, time_zone

_PACKAGE = "io.debezium.transforms."
_JDBC = "io.debezium.connector.jdbc.transforms."
_CACHE_SIZES = ("logical.table.cache.size", "logical.destination.cache.size")
_LEGACY = ("drop.tombstones", "delete.handling.mode")

SCRIPTS = {
    f"{_PACKAGE}Filter": (
        "it runs a script (Groovy, JavaScript or WebAssembly), which is not supported; use "
        "org.apache.kafka.connect.transforms.Filter with a predicate (TopicNameMatches, HasHeaderKey, "
        "RecordIsTombstone), or filter at the source connector"
    ),
    f"{_PACKAGE}ContentBasedRouter": (
        "it runs a script (Groovy, JavaScript or WebAssembly), which is not supported; use RegexRouter, "
        "ByLogicalTableRouter or ExtractNewRecordState's route.by.field, or route at the source connector"
    ),
}
"""Scripting transforms, and what to do instead."""

_AT_THE_SOURCE = "it is for source connectors and has no effect on rows of a table; remove it"
OF_THE_JDBC_SINK = {
    f"{_JDBC}ConvertCloudEventToSaveableForm": "CloudEvents are not supported; use Debezium's converters for the topic",
}
"""A transform of Debezium's JDBC sink that is rejected, and the remedy."""

NOT_FOR_SINKS = {
    f"{_PACKAGE}{name}": _AT_THE_SOURCE
    for name in (
        "outbox.EventRouter",
        "partitions.PartitionRouting",
        "EnforceRecordSize",
        "ExtractSchemaToNewRecord",
        "tracing.ActivateTracingSpan",
        "openlineage.OpenLineage",
        "ReadToInsertEvent",
        "Neo4jCudConverter",
    )
}
"""Transforms of Debezium that are rejected, and the remedy."""


def transforms() -> Iterator[PluginClass]:
    """Return Debezium's transforms for sinks, and those of its JDBC sink."""
    yield PluginClass(f"{_PACKAGE}ExtractNewRecordState", _UNWRAP, _unwrap, keeps_cells=True)
    yield PluginClass(
        f"{_PACKAGE}ByLogicalTableRouter",
        _router("__dbz__physicalTableIdentifier"),
        _logical_router,
        merges=True,
    )
    yield PluginClass(
        f"{_PACKAGE}ToLogicalTopicRouter",
        _router("__dbz__sourceIdentifier"),
        _logical_router,
        merges=True,
    )
    yield PluginClass(
        f"{_PACKAGE}ExtractChangedRecordState",
        _CHANGED,
        lambda v: ExtractChangedRecordState(v["header.changed.name"], v["header.unchanged.name"]),
        keeps_cells=True,
    )
    yield PluginClass(f"{_PACKAGE}TimezoneConverter", _TIME_ZONES, _time_zones)
    yield PluginClass(f"{_PACKAGE}HeaderToValue", _HEADER_TO_VALUE, _header_to_value)
    yield PluginClass(f"{_PACKAGE}SchemaChangeEventFilter", _SCHEMA_CHANGES, _schema_changes, keeps_cells=True)
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


_UNWRAP = ConfigDef(
    (
        option(
            "delete.tombstone.handling.mode",
            default="tombstone",
            doc="How deletes and tombstones are transformed: drop, tombstone, rewrite, rewrite-with-tombstone, "
            "delete-to-tombstone.",
            validator=any_case(*Deletes),
        ),
        option("route.by.field", default="", doc="A column whose value becomes the topic.", importance=LOW),
        option("add.fields.prefix", default="__", doc="The prefix of the names of added fields.", importance=LOW),
        option(
            "add.fields",
            Type.LIST,
            "",
            doc="Fields of the envelope to add to rows, such as op,source.lsn.",
            importance=LOW,
        ),
        option("add.headers.prefix", default="__", doc="The prefix of the names of added headers.", importance=LOW),
        option("add.headers", Type.LIST, "", doc="Fields of the envelope to add as headers.", importance=LOW),
        option("drop.fields.header.name", doc="The header that lists fields to remove.", importance=LOW),
        option("drop.fields.from.key", Type.BOOLEAN, "false", "Whether to remove them from the key as well.", LOW),
        option(
            "drop.fields.keep.schema.compatible",
            Type.BOOLEAN,
            "true",
            "Whether only optional fields may be removed.",
            LOW,
        ),
        option(
            REPLACE_NULL,
            Type.BOOLEAN,
            "true",
            "Whether a null becomes its column's default when rows are rewritten. Set it to false: with true, a table "
            "differs from its source.",
            LOW,
        ),
        option(
            "drop.tombstones",
            Type.BOOLEAN,
            doc="Deprecated: see delete.tombstone.handling.mode.",
            importance=LOW,
        ),
        option(
            "delete.handling.mode",
            doc="Deprecated: none, drop or rewrite. See delete.tombstone.handling.mode.",
            importance=LOW,
            validator=lambda name, value: None if value is None else word("none", "drop", "rewrite")(name, value),
        ),
    )
)


def _unwrap(values: Values) -> ExtractNewRecordState:
    deletes, keep = _deletes(values)
    fields, headers = (
        [FieldReference.parse(entry, values[f"{added}.prefix"] or "") for entry in values[added] or ()]
        for added in ("add.fields", "add.headers")
    )
    drop = DropFields(
        values["drop.fields.header.name"] or "",
        values["drop.fields.from.key"],
        values["drop.fields.keep.schema.compatible"],
    )
    route = values["route.by.field"] or ""
    return ExtractNewRecordState(
        deletes, fields, headers, route, drop, default=values[REPLACE_NULL], keep_tombstones=keep
    )


def _deletes(values: Values) -> tuple[Deletes, bool]:
    """Return the mode, and whether tombstones are kept. Deprecated options are converted to the current mode."""
    mode = Deletes(values["delete.tombstone.handling.mode"].lower())
    if all(values[name] is None for name in _LEGACY):
        return mode, mode is Deletes.REWRITE_WITH_TOMBSTONE
    keep = values["drop.tombstones"] is False
    old = {"none": Deletes.TOMBSTONE, "rewrite": Deletes.REWRITE}
    return old.get(values["delete.handling.mode"], Deletes.DROP), keep


def _router(key_field: str) -> ConfigDef:
    return ConfigDef(
        (
            option(
                "topic.regex",
                doc="Regular expression for the whole name of the topic.",
                importance=LOW,
                validator=regex,
            ),
            option("topic.replacement", doc="The logical topic; $1 is the first group.", importance=LOW),
            option("key.enforce.uniqueness", Type.BOOLEAN, "true", "Whether keys get a field with their table.", LOW),
            option("key.field.name", default=key_field, doc="The name of that field.", importance=LOW),
            option(
                "key.field.regex",
                doc="Regular expression for the topic, for the value of that field.",
                importance=LOW,
                validator=regex,
            ),
            option("key.field.replacement", doc="The value of that field; $1 is the first group.", importance=LOW),
            option(
                "schema.name.adjustment.mode",
                default="none",
                doc="Accepted without effect: names of schemas are not used.",
                importance=LOW,
            ),
            *(
                option(name, Type.INT, "16", "Accepted without effect: cache sizes are fixed.", LOW)
                for name in _CACHE_SIZES
            ),
        )
    )


def _require(values: Values, *names: str) -> None:
    """Raise ValueError if an option is absent. Debezium's classes require it without declaring it as required."""
    missing = next((name for name in names if not values[name]), None)
    if missing is not None:
        raise ValueError(f"The '{missing}' value is invalid: A value is required")


def _logical_router(values: Values) -> ByLogicalTableRouter:
    _require(values, "topic.regex", "topic.replacement")
    pattern, made = values["key.field.regex"] or "", values["key.field.replacement"] or ""
    if pattern.strip() and not made.strip():
        raise ValueError("key.field.replacement must be non-empty if key.field.regex is set.")
    for expression, replacement in (
        (values["topic.regex"], values["topic.replacement"]),
        *([(pattern, made)] if pattern.strip() else ()),
    ):
        problem = check_replacement(compile_pattern(expression), replacement)
        if problem is not None:
            raise ValueError(f"{replacement}: {problem}")
    field = KeyField(values["key.field.name"], pattern.strip() and pattern, made)
    return ByLogicalTableRouter(
        values["topic.regex"], values["topic.replacement"], field if values["key.enforce.uniqueness"] else None
    )


_CHANGED = ConfigDef(
    (
        option("header.changed.name", doc="The header that lists changed columns.", importance=LOW),
        option("header.unchanged.name", doc="The header that lists unchanged columns.", importance=LOW),
    )
)


_HEADER_TO_VALUE = ConfigDef(
    (
        option("headers", Type.LIST, None, "Headers to copy or move to fields.", HIGH),
        option(
            "fields",
            Type.LIST,
            None,
            "The fields' names, in the order of the headers; a dot is a path into a struct.",
            HIGH,
        ),
        option("operation", doc="move or copy.", importance=HIGH, validator=word("move", "copy")),
    )
)


def _header_to_value(values: Values) -> HeaderToValue:
    _require(values, "headers", "fields", "operation")
    headers, fields = values["headers"], values["fields"]
    if len(headers) != len(fields):
        raise ValueError("'fields' config must have the same number of elements as 'headers' config.")
    return HeaderToValue(headers, fields, move=values["operation"] == "move")


_RULES = "source:<table>[:<field>], topic:<topic>[:<field>] or <name>:<field>"
_TIME_ZONES = ConfigDef(
    (
        option("converted.timezone", doc="A zone, such as Europe/Rome or +02:00.", importance=HIGH),
        option("include.list", Type.LIST, None, f"Fields to convert, each as {_RULES}.", HIGH),
        option("exclude.list", Type.LIST, None, f"Fields not to convert, each as {_RULES}.", HIGH),
    )
)


def _time_zones(values: Values) -> TimezoneConverter:
    _require(values, "converted.timezone")
    include, exclude = (Rules.parse(values[name] or ()) for name in ("include.list", "exclude.list"))
    if values["include.list"] and values["exclude.list"]:
        raise ValueError("Both include and exclude lists are specified. Please specify only one.")
    return TimezoneConverter(
        time_zone(values["converted.timezone"]),
        include if values["include.list"] else None,
        exclude if values["exclude.list"] else None,
    )


_EVENT_TYPES = ("CREATE", "ALTER", "DROP", "TRUNCATE", "DATABASE")


def _event_types(name: str, value: Any) -> None:
    unknown = [entry for entry in parse_list(value or "") if entry not in _EVENT_TYPES]
    if unknown:
        raise InvalidValue(
            f"Invalid value {unknown[0]} for configuration {name}: String must be one of: {', '.join(_EVENT_TYPES)}"
        )


_SCHEMA_CHANGES = ConfigDef(
    (
        option(
            "schema.change.event.exclude.list",
            doc=f"Types of events to drop, of {', '.join(_EVENT_TYPES)}.",
            importance=HIGH,
            validator=_event_types,
        ),
    )
)


def _schema_changes(values: Values) -> SchemaChangeEventFilter:
    _require(values, "schema.change.event.exclude.list")
    return SchemaChangeEventFilter(parse_list(values["schema.change.event.exclude.list"]))


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
