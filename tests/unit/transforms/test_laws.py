"""Pairs of transforms that invert each other."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.core.model.connect_data import SchemaAndValue
from headrace.core.model.schema import Field, Schema
from headrace.transforms.record import NOTHING, SinkRecord
from headrace.transforms.registry import chain

ROW = Schema("struct", fields=(Field("number", Schema("int64")), Field("text", Schema("string", optional=True))))
rows = st.fixed_dictionaries(
    {"number": st.integers(-(2**63), 2**63 - 1), "text": st.none() | st.text()},
)
milliseconds = st.integers(-62_135_596_800_000, 253_402_300_799_999)
"""From year 1 to year 9999."""


def through(value: Any, *links: dict[str, str], schema: Schema | None = ROW) -> SchemaAndValue:
    """Apply a chain of transforms to a value."""
    options = {"transforms": ",".join(f"t{place}" for place in range(len(links)))}
    for place, each in enumerate(links):
        options |= {f"transforms.t{place}.{name}": text for name, text in each.items()}
    made = chain(options).apply(SinkRecord("t", 0, 0, 0, NOTHING, SchemaAndValue(schema, value)))
    assert made is not None
    return made.value


@given(rows)
def test_what_is_hoisted_can_be_extracted(row: dict[str, Any]) -> None:
    """ExtractField inverts HoistField, with and without a schema."""
    hoist, extract = {"type": "HoistField$Value", "field": "f"}, {"type": "ExtractField$Value", "field": "f"}
    assert through(row, hoist, extract) == SchemaAndValue(ROW, row)
    assert through(row, hoist, extract, schema=None) == SchemaAndValue(None, row)


@given(rows)
def test_renaming_twice_restores_the_names(row: dict[str, Any]) -> None:
    """Two fields whose names ReplaceField exchanges in one step have their names again after the second time."""
    swap = {"type": "ReplaceField$Value", "renames": "number:text,text:number"}
    assert through(row, swap, swap) == SchemaAndValue(ROW, row)


@given(rows)
def test_an_integer_cast_to_string_and_back_is_unchanged(row: dict[str, Any]) -> None:
    """Cast converts every 64-bit integer to a string and back without loss."""
    to_text, back = ({"type": "Cast$Value", "spec": f"number:{kind}"} for kind in ("string", "int64"))
    assert through(row, to_text, back).value == row


@given(st.floats(allow_nan=False))
def test_a_double_cast_to_string_and_back_is_unchanged(number: float) -> None:
    """Cast converts doubles, also infinite ones, to Java's notation and back without loss."""
    to_text, back = ({"type": "Cast$Value", "spec": kind} for kind in ("string", "float64"))
    assert through(number, to_text, back, schema=Schema("double")).value == number


@given(milliseconds, st.sampled_from(("yyyy-MM-dd HH:mm:ss.SSS", "yyyy D HHmmssSSS", "MMM d yyyy hh:mm:ss.SSS a")))
def test_a_timestamp_formatted_and_parsed_is_unchanged(when: int, pattern: str) -> None:
    """TimestampConverter formats and parses timestamps without loss if the pattern contains milliseconds."""
    to_text = {"type": "TimestampConverter$Value", "target.type": "string", "format": pattern}
    back = to_text | {"target.type": "unix"}
    assert through(when, to_text, back, schema=Schema("int64")).value == when


@given(milliseconds)
def test_a_timestamp_is_the_sum_of_its_date_and_time(when: int) -> None:
    """The Date and the Time of a timestamp add up to it, also before 1970."""
    of_day, of_time = ({"type": "TimestampConverter$Value", "target.type": kind} for kind in ("Date", "Time"))
    day, time = (through(when, link, schema=Schema("int64")).value for link in (of_day, of_time))
    assert day * 86_400_000 + time == when
    assert 0 <= time < 86_400_000
