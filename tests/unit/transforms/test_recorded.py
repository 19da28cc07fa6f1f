"""All cases that were recorded on a Connect worker (``tests/fixtures/transforms/record.py``) are replayed."""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fixtures.transforms.cases import CASES
from fixtures.transforms.documents import PARTITION, Case, places

from headrace.core.decode.json_converter import JsonData
from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord
from headrace.core.model.schema import Schema
from headrace.transforms.casting import as_float
from headrace.transforms.record import NOTHING, SinkRecord
from headrace.transforms.registry import predicates, transforms

RECORDED = Path(__file__).parents[2] / "fixtures" / "transforms" / "recorded.jsonl.xz"
_FIRST = "Debezium's gives all records the fields of the first one's headers, also those that have no such header"
_TS_MS = "Debezium's also converts source.ts_ms, the time of the change"
DIFFERENT = {
    (
        "ExtractNewRecordState delete-to-tombstone dropping, compatible true",
        3,
    ): "Debezium's looks for a schema and fails",
    **{("TimezoneConverter exclude.list source:items:after.ms,items:source.ts", place): _TS_MS for place in (0, 1)},
    **{
        (f"HeaderToValue {operation} {fields}", 2): _FIRST
        for operation in ("move", "copy")
        for fields in ("names,number", "source.names,number")
    },
}
"""Records of cases whose outcome differs from the recorded one on purpose, with the reason."""
READ_BUT_NOT_DECLARED = (
    "key.field.name",
    "schema.name.adjustment.mode",
    "logical.table.cache.size",
    "replace.null.with.default",
    "drop.tombstones",
    "delete.handling.mode",
)
"""Options that Debezium's classes read, or used to read, but do not declare."""
WITH_SCHEMAS, PLAIN = JsonData(True), JsonData(False)


@cache
def recorded() -> list[dict[str, Any]]:
    return [json.loads(line) for line in lzma.decompress(RECORDED.read_bytes()).decode().splitlines()]


def data(document: Any) -> SchemaAndValue:
    """Convert a recorded document to Connect data."""
    if document is None:
        return NOTHING
    if "plain" in document:
        return PLAIN.to_connect_data(json.dumps(document["plain"]).encode())
    text = json.dumps({"schema": document["schema"], "payload": document["payload"]}, separators=(",", ":"))
    return WITH_SCHEMAS.to_connect_data(text.encode())


def sink_record(given: dict[str, Any], offset: int) -> SinkRecord:
    headers = tuple((name, text.encode()) for name, text in given["headers"])
    key, value = data(given["key"]), data(given["value"])
    return SinkRecord(given["topic"], PARTITION, offset, given["timestamp"], key, value, headers)


def outcome(transform: Any, given: dict[str, Any], offset: int) -> Any:
    """Apply the transform and return the comparable parts of its result."""
    try:
        made = transform(sink_record(given, offset))
    except BadRecord:
        return "error"
    if not isinstance(made, SinkRecord):
        return made
    headers = [(each[0], *shown(made.header_value(each))) for each in made.headers]
    return made.topic, made.partition, made.timestamp, shown(made.key), shown(made.value), headers


def expected_outcome(answer: Any) -> Any:
    """Return the comparable parts of a recorded outcome."""
    if not isinstance(answer, dict):
        return answer
    if "error" in answer:
        return "error"
    headers = [(name, *written(document)) for name, document in answer["headers"]]
    position = answer["topic"], answer["partition"], answer["timestamp"]
    return *position, written(answer["key"]), written(answer["value"]), headers


def written(document: Any) -> tuple[Any, Any]:
    """Return schema and value of a recorded document, or its text if no converter could write it."""
    return ("", document["text"]) if document and "unwritten" in document else shown(data(document))


def shown(found: SchemaAndValue) -> tuple[Any, Any]:
    """Return schema and comparable value: absent fields are null, and floats are rounded to four bytes."""
    return found.schema, comparable(found.schema, found.value)


def comparable(schema: Schema | None, value: Any) -> Any:
    if isinstance(value, dict):
        members = {name: (None if schema is None else schema.field(name), each) for name, each in value.items()}
        return {name: comparable(kind, each) for name, (kind, each) in members.items() if each is not None}
    of_four_bytes = isinstance(value, float) and (schema is None or schema.type == "float")
    return as_float(value) if of_four_bytes else value


def cases() -> list[tuple[Case, list[Any]]]:
    answered = [line for line in recorded() if "case" in line]
    assert [line["case"] for line in answered] == [case.name for case in CASES]
    return [(case, line["outcomes"]) for case, line in zip(CASES, answered, strict=True)]


@pytest.mark.parametrize(("case", "answers"), cases(), ids=lambda each: each.name if isinstance(each, Case) else "")
def test_outcomes_equal_those_of_the_recorded_class(case: Case, answers: list[Any]) -> None:
    """A transform returns the recorded topic, key, value, schemas and headers, or the recorded error."""
    plugin = ({**transforms(), **predicates()})[case.class_name]
    transform = plugin.make(plugin.options.parse(dict(case.options)))
    offsets = [offset for _, offset in places(case.records)]
    for place, (given, offset, answer) in enumerate(zip(case.records, offsets, answers, strict=True)):
        same = outcome(transform, given, offset) == expected_outcome(answer)
        assert same is not ((case.name, place) in DIFFERENT), answer


def test_connect_file_wrote_every_passed_record() -> None:
    """Connect's file sink has written as many records as the recorder's sink has received."""
    for line in recorded():
        passed = [each for each in line.get("outcomes", ()) if each not in (None, True) and "error" not in (each or {})]
        assert len(line.get("file", ())) == len(passed), line["class"]


@pytest.mark.parametrize("line", [each for each in recorded() if "definitions" in each], ids=lambda each: each["class"])
def test_options_equal_those_of_the_recorded_class(line: dict[str, Any]) -> None:
    """Options have the recorded name, type, required flag, default and importance."""
    options = ({**transforms(), **predicates()})[line["class"]].options
    ours = {key.name: [str(key.type), not key.required, key.default_text, str(key.importance)] for key in options.keys}
    assert line["definitions"].items() <= ours.items()
    assert ours.keys() - line["definitions"].keys() <= set(READ_BUT_NOT_DECLARED)
