"""Debezium's transforms with their options (``connect.md`` section 14.2).

Tests: ``tests/unit/transforms/test_recorded.py``, ``tests/unit/config/test_transforms.py``.
"""

from __future__ import annotations

from typing import Any

from headrace.core.connect.config_def import ConfigDef, ConfigKey, InvalidValue, Type, any_case, parse_list, regex
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
from headrace.transforms.options import HIGH, LOW, REPLACE_NULL, Make, PluginClass, Values, Varies, alike, option, word
from headrace.transforms.routing import ByLogicalTableRouter, KeyField
from headrace.transforms.timestamps import Rules, TimezoneConverter, time_zone

_PACKAGE = "io.debezium.transforms."
_JDBC = "io.debezium.connector.jdbc.transforms."
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
    f"{_JDBC}ConvertCloudEventToSaveableForm": "CloudEvents are not supported; use Debezium's converters for the topic"
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


def _plugin(
    name: str, make: Make, *options: ConfigKey, varies: Varies, merges: bool = False, keeps_cells: bool = False
) -> PluginClass:
    return PluginClass(name, ConfigDef(options), make, merges, keeps_cells, varies)


def _unwrap(values: Values) -> ExtractNewRecordState:
    deletes = Deletes(values["delete.tombstone.handling.mode"].lower())
    keep_tombstones = deletes is Deletes.REWRITE_WITH_TOMBSTONE
    if any(values[name] is not None for name in _LEGACY):  # deprecated options override the current one
        keep_tombstones = values["drop.tombstones"] is False
        modes = {"none": Deletes.TOMBSTONE, "rewrite": Deletes.REWRITE}
        deletes = modes.get(values["delete.handling.mode"], Deletes.DROP)
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
        deletes, fields, headers, route, drop, default=values[REPLACE_NULL], keep_tombstones=keep_tombstones
    )


def _varies_by_row(values: Values) -> str | None:
    """Every envelope becomes its row, unless options refer to a value or to a header of the record."""
    if values["route.by.field"]:
        return "route.by.field: a value of the row decides its topic"
    if values["drop.fields.header.name"]:
        return "drop.fields.header.name: a header of the record decides which fields it has"
    return None


def _require(values: Values, *names: str) -> None:
    """Raise ValueError if an option is absent. Debezium's classes require it without declaring it as required."""
    missing = next((name for name in names if not values[name]), None)
    if missing is not None:
        raise ValueError(f"The '{missing}' value is invalid: A value is required")


def _router(name: str, key_field: str) -> PluginClass:
    caches = ("logical.table.cache.size", "logical.destination.cache.size")
    return _plugin(
        f"{_PACKAGE}{name}",
        _logical_router,
        option("topic.regex", Type.STRING, None, "Regular expression for the whole name of the topic.", LOW, regex),
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
        *(option(cache, Type.INT, "16", "Accepted without effect: cache sizes are fixed.", LOW) for cache in caches),
        merges=True,
        varies=alike,  # the topic decides; rows of several source tables are refused by the table that has them
    )


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


def _header_to_value(values: Values) -> HeaderToValue:
    _require(values, "headers", "fields", "operation")
    headers, fields = values["headers"], values["fields"]
    if len(headers) != len(fields):
        raise ValueError("'fields' config must have the same number of elements as 'headers' config.")
    return HeaderToValue(headers, fields, move=values["operation"] == "move")


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


def _schema_changes(values: Values) -> SchemaChangeEventFilter:
    _require(values, "schema.change.event.exclude.list")
    return SchemaChangeEventFilter(parse_list(values["schema.change.event.exclude.list"]))


def _srids(name: str, value: Any) -> None:
    for entry in parse_list(value or ""):
        if not entry.isdecimal():
            raise InvalidValue(f"Invalid value {value} for configuration {name}: must be a list of numbers")


def _naming(naming: str, target: str) -> tuple[ConfigKey, ...]:
    return (
        option(f"{naming}.naming.prefix", default="", doc=f"A prefix of {target}.", importance=LOW),
        option(f"{naming}.naming.suffix", default="", doc=f"A suffix of {target}.", importance=LOW),
        option(
            f"{naming}.naming.style",
            default="default",
            doc=f"The style of {target}: {', '.join(style.lower() for style in STYLES)}.",
            importance=LOW,
        ),
    )


def _style(what: str, values: Values) -> NamingStyle:
    return NamingStyle(*(values[f"{what}.naming.{part}"] or "" for part in ("style", "prefix", "suffix")))


_RULES = "source:<table>[:<field>], topic:<topic>[:<field>] or <name>:<field>"

TRANSFORMS = (
    _plugin(
        f"{_PACKAGE}ExtractNewRecordState",
        _unwrap,
        option(
            "delete.tombstone.handling.mode",
            default="tombstone",
            doc="How deletes and tombstones are transformed: drop, tombstone, rewrite, rewrite-with-tombstone, "
            "delete-to-tombstone.",
            validator=any_case(*Deletes),
        ),
        option("route.by.field", default="", doc="A column whose value becomes the topic.", importance=LOW),
        option("add.fields.prefix", default="__", doc="The prefix of the names of added fields.", importance=LOW),
        option("add.fields", Type.LIST, "", "Fields of the envelope to add to rows, such as op,source.lsn.", LOW),
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
        option("drop.tombstones", Type.BOOLEAN, None, "Deprecated: see delete.tombstone.handling.mode.", LOW),
        option(
            "delete.handling.mode",
            doc="Deprecated: none, drop or rewrite. See delete.tombstone.handling.mode.",
            importance=LOW,
            validator=lambda name, value: None if value is None else word("none", "drop", "rewrite")(name, value),
        ),
        keeps_cells=True,
        varies=_varies_by_row,
    ),
    _router("ByLogicalTableRouter", "__dbz__physicalTableIdentifier"),
    _router("ToLogicalTopicRouter", "__dbz__sourceIdentifier"),
    _plugin(
        f"{_PACKAGE}ExtractChangedRecordState",
        lambda v: ExtractChangedRecordState(v["header.changed.name"], v["header.unchanged.name"]),
        option("header.changed.name", doc="The header that lists changed columns.", importance=LOW),
        option("header.unchanged.name", doc="The header that lists unchanged columns.", importance=LOW),
        keeps_cells=True,
        varies=alike,  # it adds headers only
    ),
    _plugin(
        f"{_PACKAGE}TimezoneConverter",
        _time_zones,
        option("converted.timezone", doc="A zone, such as Europe/Rome or +02:00.", importance=HIGH),
        option("include.list", Type.LIST, None, f"Fields to convert, each as {_RULES}.", HIGH),
        option("exclude.list", Type.LIST, None, f"Fields not to convert, each as {_RULES}.", HIGH),
        varies=alike,  # options, topic and source table decide; the schema has the types of times
    ),
    _plugin(
        f"{_PACKAGE}HeaderToValue",
        _header_to_value,
        option("headers", Type.LIST, None, "Headers to copy or move to fields.", HIGH),
        option(
            "fields",
            Type.LIST,
            None,
            "The fields' names, in the order of the headers; a dot is a path into a struct.",
            HIGH,
        ),
        option("operation", doc="move or copy.", importance=HIGH, validator=word("move", "copy")),
        varies=lambda _: "the headers of a record decide which fields it gets",
    ),
    _plugin(
        f"{_PACKAGE}SchemaChangeEventFilter",
        _schema_changes,
        option(
            "schema.change.event.exclude.list",
            doc=f"Types of events to drop, of {', '.join(_EVENT_TYPES)}.",
            importance=HIGH,
            validator=_event_types,
        ),
        keeps_cells=True,
        varies=alike,  # no change of a row is such an event
    ),
    _plugin(
        f"{_PACKAGE}SwapGeometryCoordinates",
        lambda v: swap_geometry_coordinates(SRIDS if v["srids"] is None else tuple(map(int, parse_list(v["srids"])))),
        option(
            "srids",
            doc=f"Reference systems whose coordinates are swapped; the default is {', '.join(map(str, SRIDS))}.",
            importance=LOW,
            validator=_srids,
        ),
        varies=alike,  # it makes every struct anew, also one that it does not change
    ),
    _plugin(
        f"{_PACKAGE}GeometryFormatTransformer",
        lambda v: geometry_format_transformer(extend=v["format"].strip().lower() != "ewkb"),
        option(
            "format",
            default="wkb",
            doc="wkb: add the SRID to plain geometries and remove it from extended ones. ewkb: only remove it.",
            importance=LOW,
        ),
        varies=alike,  # it makes every struct anew, also one that it does not change
    ),
    _plugin(
        f"{_PACKAGE}VectorToJsonConverter",
        lambda _: VectorToJsonConverter(),
        varies=alike,  # the schema has the vectors
    ),
    _plugin(
        f"{_JDBC}CollectionNameTransformation",
        lambda v: CollectionNameTransformation(_style("collection", v)),
        *_naming("collection", "a topic's name"),
        keeps_cells=True,
        varies=alike,  # the topic decides
    ),
    _plugin(
        f"{_JDBC}FieldNameTransformation",
        lambda v: FieldNameTransformation(_style("column", v)),
        *_naming("column", "a column's name"),
        varies=alike,  # the names decide
    ),
)
"""Debezium's transforms for sinks, and those of its JDBC sink."""
