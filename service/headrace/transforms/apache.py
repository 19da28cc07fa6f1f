"""Kafka's own transforms and predicates with their options (``connect.md`` section 14.1).

Tests: ``tests/unit/transforms/test_recorded.py``, ``tests/unit/config/test_transforms.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headrace.core.connect.config_def import ConfigDef, ConfigKey, InvalidValue, Type
from headrace.transforms.casting import Cast, parse_spec
from headrace.transforms.chain import HasHeaderKey, RecordIsTombstone, TopicNameMatches, drop
from headrace.transforms.fields import (
    ExtractField,
    Flatten,
    HoistField,
    InsertField,
    MaskField,
    ReplaceField,
    SetSchemaMetadata,
    ValueToKey,
)
from headrace.transforms.headers import DropHeaders, HeaderFrom, InsertHeader
from headrace.transforms.java_formats import check_replacement, compile_pattern
from headrace.transforms.options import (
    HIGH,
    LOW,
    MEDIUM,
    REPLACE_NULL,
    Make,
    PluginClass,
    Values,
    Varies,
    a_regex,
    alike,
    not_empty_list,
    option,
    replace_null,
    required,
    sides,
    word,
)
from headrace.transforms.record import Side
from headrace.transforms.routing import RegexRouter, TimestampRouter
from headrace.transforms.timestamps import PRECISIONS, TYPES, TimestampConverter

_PACKAGE = "org.apache.kafka.connect.transforms."
_MARKS = "With ! behind it the field is required, with ? or without a mark optional."


def _plugin(name: str, make: Make, *options: ConfigKey, varies: Varies, keeps_cells: bool = False) -> PluginClass:
    return PluginClass(f"{_PACKAGE}{name}", ConfigDef(options), make, keeps_cells=keeps_cells, varies=varies)


def _sides(
    name: str, make: Callable[[Side, Values], Any], *options: ConfigKey, varies: Varies
) -> Iterator[PluginClass]:
    return sides(f"{_PACKAGE}{name}", ConfigDef(options), make, varies)


def _regex_router(values: Values) -> RegexRouter:
    problem = check_replacement(compile_pattern(values["regex"]), values["replacement"])
    if problem is not None:
        raise ValueError(f"replacement: {problem}")
    return RegexRouter(values["regex"], values["replacement"])


def _header_from(side: Side, values: Values) -> HeaderFrom:
    fields, headers = values["fields"], values["headers"]
    if len(fields) != len(headers):
        raise ValueError("'fields' config must have the same number of elements as 'headers' config.")
    return HeaderFrom(side, fields, headers, move=values["operation"] == "move", default=values[REPLACE_NULL])


def _insert_field(side: Side, values: Values) -> InsertField:
    fields = [values[f"{source}.field"] for source in ("topic", "partition", "offset", "timestamp", "static")]
    if all(field is None for field in fields):
        raise ValueError("No field insertion configured")
    if values["static.field"] is not None and values["static.value"] is None:
        raise ValueError(f"No value specified for static field: {values['static.field']}")
    topic, partition, offset, timestamp, static = fields
    return InsertField(
        side, topic, partition, offset, timestamp, static, values["static.value"], default=values[REPLACE_NULL]
    )


def _set_schema_metadata(side: Side, values: Values) -> SetSchemaMetadata:
    if values["schema.name"] is None and values["schema.version"] is None:
        raise ValueError("Neither schema name nor version configured")
    return SetSchemaMetadata(side, values["schema.name"], values["schema.version"], values[REPLACE_NULL])


def _timestamp_converter(side: Side, values: Values) -> TimestampConverter:
    target, pattern, precision = values["target.type"], values["format"], values["unix.precision"]
    if target == "string" and not pattern:
        raise ValueError("TimestampConverter requires format option to be specified when using string timestamps")
    assert precision in PRECISIONS  # noqa: S101 - for mypy: the validator has checked it
    return TimestampConverter(side, values["field"], target, pattern, precision, values[REPLACE_NULL])


def _check_renames(name: str, value: Any) -> None:
    for entry in value or ():
        if entry.count(":") != 1 or entry.startswith(":") or entry.endswith(":"):
            listed = ", ".join(value)
            raise InvalidValue(f"Invalid value [{listed}] for configuration {name}: Invalid rename mapping: {entry}")


def _check_cast_spec(_name: str, value: Any) -> None:
    try:
        parse_spec(value or ())
    except ValueError as error:
        raise InvalidValue(str(error)) from error


def _check_syntax_version(name: str, value: Any) -> None:
    """Validate ``field.syntax.version``. Unlike ``word``, it accepts lower case."""
    if value is None or value.upper() not in ("V1", "V2"):
        raise InvalidValue(f"Invalid value {value} for configuration {name}: String must be one of: V1, V2")


def _not_null(name: str, value: Any) -> None:
    if value is None:
        raise InvalidValue(f"Invalid value null for configuration {name}: entry must be non null")


def _not_empty(name: str, value: Any) -> None:
    if not value:
        raise InvalidValue(f"Invalid value {value or ''} for configuration {name}: String must be non-empty")


PREDICATES = (
    _plugin(
        "predicates.TopicNameMatches",
        lambda v: TopicNameMatches(v["pattern"]),
        required("pattern", Type.STRING, "Regular expression for the whole name of the topic.", MEDIUM, a_regex),
        varies=alike,
    ),
    _plugin(
        "predicates.HasHeaderKey",
        lambda v: HasHeaderKey(v["name"]),
        required("name", Type.STRING, "The header's name.", MEDIUM, _not_empty),
        varies=lambda _: "the headers of a record decide whether the transform applies",
    ),
    _plugin("predicates.RecordIsTombstone", lambda _: RecordIsTombstone(), varies=alike),
)

TRANSFORMS = (
    _plugin("Filter", lambda _: drop, keeps_cells=True, varies=alike),  # its predicate has a declaration of its own
    # Topics.
    _plugin(
        "RegexRouter",
        _regex_router,
        required("regex", Type.STRING, "Regular expression for the whole name of the topic.", validator=a_regex),
        required("replacement", Type.STRING, "The new name; $1 is the first group."),
        keeps_cells=True,
        varies=alike,  # the topic decides
    ),
    _plugin(
        "TimestampRouter",
        lambda v: TimestampRouter(v["topic.format"], v["timestamp.format"]),
        option("topic.format", default="${topic}-${timestamp}", doc="The new name.", importance=HIGH),
        option("timestamp.format", default="yyyyMMdd", doc="The format of ${timestamp}, in UTC.", importance=HIGH),
        keeps_cells=True,
        varies=lambda _: "the timestamp of a record decides its topic",
    ),
    # Headers.
    _plugin(
        "InsertHeader",
        lambda v: InsertHeader(v["header"], v["value.literal"]),
        required("header", Type.STRING, "The header's name.", validator=_not_null),
        required("value.literal", Type.STRING, "The header's value.", validator=_not_null),
        keeps_cells=True,
        varies=alike,  # no header decides anything: see HasHeaderKey, HeaderToValue and drop.fields.header.name
    ),
    _plugin(
        "DropHeaders",
        lambda v: DropHeaders(v["headers"]),
        required("headers", Type.LIST, "Names of headers to remove.", validator=not_empty_list),
        keeps_cells=True,
        varies=alike,  # as InsertHeader
    ),
    *_sides(
        "HeaderFrom",
        _header_from,
        required("fields", Type.LIST, "Fields to copy or move to headers.", validator=not_empty_list),
        required("headers", Type.LIST, "The headers' names, in the order of the fields.", validator=not_empty_list),
        required("operation", Type.STRING, "move or copy.", validator=word("move", "copy")),
        replace_null(),
        varies=alike,  # the options name the fields
    ),
    # Fields.
    *_sides(
        "ReplaceField",
        lambda side, v: ReplaceField(
            side,
            v["exclude"],
            v["include"],
            {old: new for old, _, new in (entry.partition(":") for entry in v["renames"])},
            v[REPLACE_NULL],
        ),
        option("exclude", Type.LIST, "", "Fields to remove."),
        option("include", Type.LIST, "", "Fields to keep, if set; all others are removed."),
        option("renames", Type.LIST, "", "New names, as old:new.", validator=_check_renames),
        replace_null(),
        varies=alike,  # the options name the fields
    ),
    *_sides(
        "MaskField",
        lambda side, v: MaskField(side, v["fields"], v["replacement"], v[REPLACE_NULL]),
        required("fields", Type.LIST, "Fields to mask.", validator=not_empty_list),
        option("replacement", doc="A text or number that replaces the value, instead of 0 or ''.", importance=LOW),
        replace_null(),
        varies=alike,  # the options name the fields
    ),
    *_sides(
        "InsertField",
        _insert_field,
        option("topic.field", doc=f"Name of a field for the topic. {_MARKS}"),
        option("partition.field", doc=f"Name of a field for the partition. {_MARKS}"),
        option("offset.field", doc=f"Name of a field for the offset. {_MARKS}"),
        option("timestamp.field", doc=f"Name of a field for the record's time. {_MARKS}"),
        option("static.field", doc=f"Name of a field for a fixed text. {_MARKS}"),
        option("static.value", doc="The fixed text."),
        replace_null(),
        varies=alike,  # the options name the fields
    ),
    _plugin(
        "ValueToKey",
        lambda v: ValueToKey(v["fields"], v[REPLACE_NULL]),
        required("fields", Type.LIST, "Fields of the value for the key.", validator=not_empty_list),
        replace_null(),
        varies=alike,  # the options name the fields
    ),
    *_sides(
        "Flatten",
        lambda side, v: Flatten(side, v["delimiter"]),
        option("delimiter", default=".", doc="The separator of the joined names."),
        varies=alike,  # the schema has the structs
    ),
    # Values.
    *_sides(
        "Cast",
        lambda side, v: Cast(side, parse_spec(v["spec"]), v[REPLACE_NULL]),
        required("spec", Type.LIST, "field:type pairs, or one type for the whole value.", validator=_check_cast_spec),
        replace_null(),
        varies=alike,  # the options name the fields
    ),
    *_sides(
        "ExtractField",
        lambda side, v: ExtractField(side, v["field"], v["field.syntax.version"], v[REPLACE_NULL]),
        required("field", Type.STRING, "The field to extract.", MEDIUM),
        option(
            "field.syntax.version",
            Type.STRING,
            "V1",
            "V2 reads the field as a path with dots.",
            HIGH,
            _check_syntax_version,
        ),
        replace_null(),
        varies=alike,  # the options name the field
    ),
    *_sides(
        "HoistField",
        lambda side, v: HoistField(side, v["field"]),
        required("field", Type.STRING, "The name of the field to wrap the value into.", MEDIUM),
        varies=alike,  # every record
    ),
    *_sides(
        "SetSchemaMetadata",
        _set_schema_metadata,
        option("schema.name", doc="The schema's new name.", importance=HIGH),
        option("schema.version", Type.INT, doc="The schema's new version.", importance=HIGH),
        replace_null(),
        varies=alike,  # every record
    ),
    *_sides(
        "TimestampConverter",
        _timestamp_converter,
        option("field", default="", doc="The field with the time; empty for the whole value.", importance=HIGH),
        required("target.type", Type.STRING, "string, unix, Date, Time or Timestamp.", validator=word(*sorted(TYPES))),
        option("format", default="", doc="The format of times as text, as in Java's SimpleDateFormat, in UTC."),
        option(
            "unix.precision",
            default="milliseconds",
            doc="The unit of numbers: seconds, milliseconds, microseconds or nanoseconds.",
            importance=LOW,
            validator=word("nanoseconds", "microseconds", "milliseconds", "seconds"),
        ),
        replace_null(),
        varies=alike,  # the options name the field
    ),
)
