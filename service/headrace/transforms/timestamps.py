"""Transforms of times: Kafka's ``TimestampConverter`` and Debezium's ``TimezoneConverter``.

TimezoneConverter: A time with an offset stays the same moment and gets the zone's offset. A time without one is read as
local time of the zone, so that it becomes another moment (``io.debezium.time.MicroTimestamp`` etc.). Dates and times of
day do not change, except ``ZonedTime``, which gets the zone's offset at the record's timestamp.

Tests: ``tests/unit/transforms/test_recorded.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.change_events import is_envelope
from headrace.transforms.java_formats import EPOCH, DateFormat
from headrace.transforms.record import (
    DATE,
    TIME,
    TIMESTAMP,
    SchemaMemo,
    Side,
    SinkRecord,
    cell,
    class_of,
    plain_map,
    struct,
    unusable,
    with_fields,
)

_DAY = 86_400_000
_KINDS = {TIMESTAMP: "Timestamp", DATE: "Date", TIME: "Time"}
TYPES = {
    "string": Schema("string"),
    "unix": Schema("int64"),
    "Date": Schema("int32", name=DATE, version=1),
    "Time": Schema("int32", name=TIME, version=1),
    "Timestamp": Schema("int64", name=TIMESTAMP, version=1),
}
_PER_SECOND = {"seconds": 1, "milliseconds": 1_000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
PRECISIONS = tuple(_PER_SECOND)


class TimestampConverter:
    """Convert one field, or a complete key or value."""

    def __init__(
        self, side: Side, field: str, target: str, pattern: str, precision: str = "milliseconds", default: bool = True
    ) -> None:
        self._side, self._field, self._target, self._default = side, field, target, default
        self._dates = DateFormat(pattern) if pattern else None
        self._per_second = _PER_SECOND[precision]
        self._schemas = SchemaMemo(self._schema)

    def __call__(self, record: SinkRecord) -> SinkRecord:
        data = self._side.of(record)
        if data.schema is None and data.value is None:
            return record
        converted = self._convert_plain(data) if data.schema is None else self._convert_typed(data.schema, data)
        return self._side.put(record, converted)

    def _convert_plain(self, data: SchemaAndValue) -> SchemaAndValue:
        if not self._field:
            return SchemaAndValue(None, self._convert(_plain_kind(data), data.value))
        values = dict(plain_map(data, "converting timestamp formats"))
        value = values.get(self._field)
        representation = _plain_kind(SchemaAndValue(None, value)) if value is not None else ""
        values[self._field] = self._convert(representation, value)
        return SchemaAndValue(None, values)

    def _convert_typed(self, schema: Schema, data: SchemaAndValue) -> SchemaAndValue:
        if not self._field:
            return SchemaAndValue(self._schemas(schema), self._convert(_kind(schema), data.value))
        if data.value is None:
            return SchemaAndValue(self._schemas(schema), None)
        _, values = struct(data, "converting timestamp formats")
        converted = {}
        for member in schema.fields:
            value = cell(values, member, default=self._default)
            mine = member.name == self._field
            converted[member.name] = self._convert(_kind(member.schema), value) if mine else value
        return SchemaAndValue(self._schemas(schema), converted)

    def _schema(self, schema: Schema) -> Schema:
        if not self._field:
            return self._target_schema(schema)
        fields = (
            Field(member.name, self._target_schema(member.schema)) if member.name == self._field else member
            for member in schema.fields
        )
        return replace(with_fields(schema, fields), optional=schema.optional)

    def _target_schema(self, schema: Schema) -> Schema:
        return replace(TYPES[self._target], optional=schema.optional)

    def _convert(self, representation: str, value: Any) -> Any:
        if value is None:
            return None
        if representation == "string":
            if self._dates is None:
                raise unusable("TimestampConverter: the timestamp is text; set the option format")
            milliseconds = self._dates.parse(value)
        elif representation == "unix":
            milliseconds = _towards_zero(int(value) * 1000, self._per_second)
        else:
            milliseconds = int(value) * (_DAY if representation == "Date" else 1)

        if self._target == "string" and self._dates is not None:
            return self._dates.format(milliseconds)
        if self._target == "unix":
            return _towards_zero(milliseconds * self._per_second, 1000)
        return {"Date": milliseconds // _DAY, "Time": milliseconds % _DAY}.get(self._target, milliseconds)


def _towards_zero(number: int, divisor: int) -> int:
    return number // divisor if number >= 0 else -(-number // divisor)


def _kind(schema: Schema) -> str:
    """Return the representation of a time, by its schema."""
    representation = _KINDS.get(schema.name or "") or {"string": "string", "int64": "unix"}.get(schema.type)
    if representation is None:
        raise unusable(f"Schema of type {schema.type.upper()} does not correspond to a known timestamp type format")
    return representation


def _plain_kind(data: SchemaAndValue) -> str:
    """Return the representation of a time without a schema."""
    if isinstance(data.value, str):
        return "string"
    if isinstance(data.value, int) and not isinstance(data.value, bool):
        return "unix"
    raise unusable(f"TimestampConverter does not support class {class_of(data)} objects as timestamps")


_ZONED_TIMESTAMP, _ZONED_TIME = "io.debezium.time.ZonedTimestamp", "io.debezium.time.ZonedTime"
_LOCAL = {
    "io.debezium.time.Timestamp": 1_000,
    TIMESTAMP: 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
"""Units per second, by type."""
_OFFSET = re.compile(r"[+-]\d{2}:\d{2}(:\d{2})?")
_RULE = re.compile(r'[".\w\s]+(:[".\w\s]+){0,2}')
_FRACTION = re.compile(r"\.(\d+)")


@dataclass(frozen=True, slots=True)
class Rules:
    """The fields that ``include.list`` or ``exclude.list`` name, by topic, by source table, or by either.

    An empty set means all fields.
    """

    topics: dict[str, set[str]] = field(default_factory=dict)
    tables: dict[str, set[str]] = field(default_factory=dict)
    either: dict[str, set[str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, entries: Sequence[str]) -> Rules:
        """Parse ``source:table:field``, ``topic:name:field`` or ``name:field``. Raises ValueError for other rules.

        A prefix is valid for the following entries as well.
        """
        rules, prefix = cls(), ""
        for entry in entries:
            if _RULE.fullmatch(entry) is None:
                raise ValueError(
                    f"{entry} is none of source:<table>[:<field>], topic:<topic>[:<field>], <name>:<field>"
                )
            parts = entry.split(":")
            if len(parts) > 1 and parts[0].lower() in ("source", "topic"):
                prefix = parts.pop(0).lower()
            by_name = {"topic": rules.topics, "source": rules.tables}.get(prefix, rules.either)
            by_name.setdefault(parts[0], set()).update(parts[1:2])
        return rules

    def fields(self, table: str | None, topic: str) -> set[str] | None:
        candidates = ((self.topics, topic), (self.tables, table), (self.either, topic), (self.either, table))
        return next((by_name[name] for by_name, name in candidates if name is not None and name in by_name), None)


def time_zone(name: str) -> tzinfo:
    """A zone by its name or offset. Raises ValueError for any other text."""
    if _OFFSET.fullmatch(name):
        hours, minutes, *seconds = (int(part) for part in name[1:].split(":"))
        offset = timedelta(hours=hours, minutes=minutes, seconds=sum(seconds))
        return timezone(-offset if name.startswith("-") else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            "Invalid timezone format. Please specify either a geographic timezone (e.g. America/Los_Angeles) or a UTC "
            "offset in the format of +/-hh:mm, (e.g. +08:00)."
        ) from error


class TimezoneConverter:
    """Convert the times of ``before`` and ``after``, and those of ``source`` that a rule names."""

    def __init__(self, zone: tzinfo, include: Rules | None = None, exclude: Rules | None = None) -> None:
        self._zone, self._include, self._exclude = zone, include, exclude

    def __call__(self, record: SinkRecord) -> SinkRecord:
        schema, values = record.value.schema, record.value.value
        if values is None or schema is None or not is_envelope(schema):
            return record
        table = (values.get("source") or {}).get("table")
        if self._include is not None:
            named = self._include.fields(table, record.topic)
        else:
            excluded = None if self._exclude is None else self._exclude.fields(table, record.topic)
            named = set() if excluded is None else excluded or None
        if named is None:
            return record
        made = {
            **values,
            **{
                image: self._convert(kind, values[image], fields, record)
                for image, fields in self._by_image(named).items()
                if values.get(image) is not None and (kind := schema.field(image)) is not None
            },
        }
        return Side.VALUE.put(record, SchemaAndValue(schema, made))

    @staticmethod
    def _by_image(named: set[str]) -> dict[str, set[str] | None]:
        """The named fields of each struct, None for all fields."""
        if not named:
            return {"before": None, "after": None}
        by_image: dict[str, set[str] | None] = {}
        for image in ("before", "after", "source"):
            image_fields = {name.removeprefix(f"{image}.") for name in named if name.startswith(f"{image}.")}
            bare = {name for name in named if not name.startswith(("before.", "after.", "source."))}
            by_image[image] = image_fields if image == "source" else image_fields | bare
        return by_image if by_image["source"] else {name: by_image[name] for name in ("before", "after")}

    def _convert(
        self, schema: Schema, values: Mapping[str, Any], named: set[str] | None, record: SinkRecord
    ) -> dict[str, Any]:
        made = dict(values)
        for member in schema.fields:
            wanted = named is None or (member.name in named) is (self._include is not None)
            value = cell(made, member) if wanted else None
            if value is not None:
                schema_name = member.schema.name or ""
                if schema_name in _LOCAL:
                    made[member.name] = self._local(value, _LOCAL[schema_name])
                elif schema_name == _ZONED_TIMESTAMP:  # the digits of its fraction stay
                    fraction, moment = _FRACTION.search(value), _parse(datetime, value)
                    there = moment.astimezone(timezone(self._offset(moment.replace(tzinfo=None))))
                    seconds = there.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
                    made[member.name] = _text(seconds, fraction, there)
                elif schema_name == _ZONED_TIME:
                    fraction, time_of_day = _FRACTION.search(value), _parse(time, value)
                    now = EPOCH + timedelta(milliseconds=record.timestamp)
                    offset = now.astimezone(self._zone).utcoffset() or timedelta()
                    there = datetime.combine(now.date(), time_of_day).astimezone(timezone(offset))
                    made[member.name] = _text(there.strftime("%H:%M:%S"), fraction, there)
                else:
                    made.setdefault(member.name, None)
        return made

    def _offset(self, local: datetime) -> timedelta:
        return local.replace(tzinfo=self._zone).utcoffset() or timedelta()

    def _local(self, value: int, per_second: int) -> int:
        seconds = value // per_second
        try:
            local = (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)
        except OverflowError as error:
            raise unusable("a time is after the year 9999") from error
        return int(value - round(self._offset(local).total_seconds()) * per_second)


def _parse(time_class: Any, value: str) -> Any:
    """Parse a timestamp, or a time of day, with an offset. Raises BadRecord without the text."""
    try:
        parsed = time_class.fromisoformat(_FRACTION.sub("", value))
    except ValueError:
        raise unusable("a time with an offset cannot be parsed") from None  # Python's message contains it
    if parsed.tzinfo is None:
        raise unusable("a time that requires an offset has none")
    return parsed


def _text(seconds: str, fraction: re.Match[str] | None, moment: datetime) -> str:
    offset = moment.utcoffset() or timedelta()
    digits = fraction[1].rstrip("0") if fraction is not None else ""
    shown = "Z" if not offset else moment.astimezone(timezone(offset)).isoformat()[-6:]
    return seconds + (f".{digits}" if digits else "") + shown
