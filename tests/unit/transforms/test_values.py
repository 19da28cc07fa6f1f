"""Behaviour of transforms that recordings do not cover: error texts, dates, patterns, field paths and options."""

from __future__ import annotations

import traceback
from dataclasses import replace

import pytest

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.errors import BadRecord, ConfigError
from headrace.core.model.schema import Field, Schema
from headrace.transforms.casting import java_double
from headrace.transforms.fields import field_path
from headrace.transforms.headers import header_bytes
from headrace.transforms.java_formats import DateFormat, check_replacement, compile_pattern
from headrace.transforms.literals import parse_literal
from headrace.transforms.record import DECIMAL, NOTHING, SinkRecord
from headrace.transforms.registry import chain

PRICE = Schema("bytes", name=DECIMAL, parameters=(("scale", "2"),))


def record(value: SchemaAndValue) -> SinkRecord:
    return SinkRecord("t", 0, 0, 0, NOTHING, value)


def made(class_name: str, **options: str) -> dict[str, str]:
    given = {name.replace("__", "."): value for name, value in options.items()}
    return {"transforms": "t", "transforms.t.type": class_name} | {f"transforms.t.{k}": v for k, v in given.items()}


PRICED = SchemaAndValue(Schema("struct", fields=(Field("price", PRICE),)), {"price": b"\x04\xd2"})


@pytest.mark.parametrize(("replacement", "cents"), [("", 0), ("12", 1200), ("-1.250", -125), ("1e2", 10_000)])
def test_a_masked_decimal_has_the_scale_of_its_field(replacement: str, cents: int) -> None:
    """MaskField rescales its replacement to the field's scale. Connect does not, and its converter then fails."""
    masked = chain(made("MaskField$Value", fields="price", replacement=replacement)).apply(record(PRICED))
    assert masked is not None
    assert int.from_bytes(masked.value.value["price"], signed=True) == cents


@pytest.mark.parametrize("replacement", ["1.005", "NaN", "Infinity", "***"])
def test_a_replacement_that_the_decimal_cannot_hold_is_refused(replacement: str) -> None:
    """A replacement that is no number or has more digits than the field's scale raises BadRecord."""
    with pytest.raises(BadRecord):
        chain(made("MaskField$Value", fields="price", replacement=replacement)).apply(record(PRICED))


@pytest.mark.parametrize(
    ("configuration", "value"),
    [
        (made("Cast$Value", spec="int8"), SchemaAndValue(Schema("string"), "secret")),
        (made("Cast$Value", spec="float64"), SchemaAndValue(Schema("string"), "secret")),
        (
            made("TimestampConverter$Value", target__type="unix", format="yyyy"),
            SchemaAndValue(Schema("string"), "secret"),
        ),
        (made("ExtractField$Value", field="a"), SchemaAndValue(Schema("string"), "secret")),
    ],
)
def test_an_error_contains_no_value(configuration: dict[str, str], value: SchemaAndValue) -> None:
    """The error of a transform and its causes contain the transform's alias but no value of the record."""
    with pytest.raises(BadRecord, match=r"^transform t: ") as caught:
        chain(configuration).apply(record(value))
    assert "secret" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("configuration", "option"),
    [
        (made("InsertField$Value"), "transforms.t.type"),
        (made("TimestampConverter$Value", target__type="string"), "transforms.t.type"),
        (made("TimestampRouter", timestamp__format="Q"), "transforms.t.type"),
        (made("ByLogicalTableRouter", topic__regex="a"), "transforms.t.type"),
        (
            made("ByLogicalTableRouter", topic__regex="a", topic__replacement="b", key__field__regex="c"),
            "transforms.t.type",
        ),
        (made("HeaderToValue", headers="a,b", fields="a", operation="move"), "transforms.t.type"),
        (made("TimezoneConverter", converted__timezone="Nowhere"), "transforms.t.type"),
        (made("ExtractNewRecordState", add__fields="a:b:c"), "transforms.t.type"),
        (made("ExtractField$Value", field="`a", field__syntax__version="V2"), "transforms.t.type"),
    ],
)
def test_invalid_combinations_of_options_name_the_transform(configuration: dict[str, str], option: str) -> None:
    """Creating the chain fails with the key of the transform's type, before a task starts."""
    with pytest.raises(ConfigError) as caught:
        chain(configuration)
    assert caught.value.key == option


@pytest.mark.parametrize(
    ("old", "keeps_delete", "keeps_tombstone"),
    [
        ({"drop.tombstones": "true", "delete.handling.mode": "none"}, True, False),
        ({"drop.tombstones": "false", "delete.handling.mode": "none"}, True, True),
        ({"drop.tombstones": "false"}, False, True),
        ({"delete.handling.mode": "rewrite"}, True, False),
        ({"delete.handling.mode": "drop"}, False, False),
    ],
)
def test_deprecated_options_keep_their_behaviour(
    old: dict[str, str], keeps_delete: bool, keeps_tombstone: bool
) -> None:
    """``drop.tombstones`` defaults to true and ``delete.handling.mode`` to drop if one of them is set."""
    row = Schema("struct", optional=True, fields=(Field("id", Schema("int64")),))
    envelope = Schema(
        "struct", name="t.Envelope", fields=(Field("before", row), Field("after", row), Field("op", Schema("string")))
    )
    delete = SchemaAndValue(envelope, {"before": {"id": 1}, "after": None, "op": "d"})
    unwrap = chain(made("ExtractNewRecordState", **{name.replace(".", "__"): each for name, each in old.items()}))
    assert (unwrap.apply(record(delete)) is not None) is keeps_delete
    assert (unwrap.apply(record(NOTHING)) is not None) is keeps_tombstone


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("a.b", ("a", "b")),
        ("`a.b`.c", ("a.b", "c")),
        ("a`b.c", ("a`b", "c")),
        (r"`a\`.b`.c", ("a`.b", "c")),
        ("a.", ("a", "")),
    ],
)
def test_paths_of_fields(text: str, steps: tuple[str, ...]) -> None:
    """Field paths of ``field.syntax.version`` V2 follow KIP-821; V1 has field names only."""
    assert field_path(text, "V2") == steps
    assert field_path(text) == (text,)


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (100.0, "100.0"), (1e7, "1.0E7"), (1e-4, "1.0E-4"), (float("nan"), "NaN")],
)
def test_numbers_are_written_as_java_writes_them(number: float, text: str) -> None:
    """Doubles are formatted as by Java's ``Double.toString``."""
    assert java_double(number) == text


def test_dates_are_parsed_leniently() -> None:
    """A month or day that is too large overflows as in Java, and years of two digits are near the current year."""
    assert DateFormat("yyyy-MM-dd").parse("2023-14-31") == DateFormat("yyyy-MM-dd").parse("2024-03-02")
    assert DateFormat("dd/MM/yy").parse("01/02/03") == DateFormat("yyyyMMdd").parse("20030201")
    assert DateFormat("yyyyMMddHHmm").format(0) == "197001010000"


@pytest.mark.parametrize("pattern", ["yyyy-QQ", "yyyy 'open"])
def test_unknown_date_patterns_are_refused(pattern: str) -> None:
    """A pattern with an unknown letter or an open quote raises ValueError."""
    with pytest.raises(ValueError, match=r"Illegal pattern|quote"):
        DateFormat(pattern)


@pytest.mark.parametrize(
    ("replacement", "wrong"), [("$1", False), ("$2", True), ("$", True), (r"\$9", False), ("${a}", True)]
)
def test_replacements_refer_to_existing_groups(replacement: str, wrong: bool) -> None:
    """A replacement that refers to a missing group is an error of the configuration."""
    assert (check_replacement(compile_pattern("(.*)"), replacement) is not None) is wrong


@pytest.mark.parametrize("text", ["text", "42", "1.5", "true", '["x","y"]', '{"a":"b"}', "[1,2]"])
def test_headers_are_written_as_they_were_read(text: str) -> None:
    """SimpleHeaderConverter serializes a parsed header to the same text."""
    assert header_bytes(parse_literal(text)) == text.encode()


def test_a_record_without_a_timestamp() -> None:
    """TimestampRouter refuses a record with the timestamp -1, and InsertField inserts null."""
    timeless = replace(record(SchemaAndValue(None, {})), timestamp=-1)
    with pytest.raises(BadRecord, match="Timestamp missing"):
        chain(made("TimestampRouter")).apply(timeless)
    inserted = chain(made("InsertField$Value", timestamp__field="at")).apply(timeless)
    assert inserted is not None
    assert inserted.value.value == {"at": None}
