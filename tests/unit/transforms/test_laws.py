"""Pairs of transforms that undo each other."""

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
    """What a chain makes of a value."""
    options = {"transforms": ",".join(f"t{place}" for place in range(len(links)))}
    for place, each in enumerate(links):
        options |= {f"transforms.t{place}.{name}": text for name, text in each.items()}
    made = chain(options).apply(SinkRecord("t", 0, 0, 0, NOTHING, SchemaAndValue(schema, value)))
    assert made is not None
    return made.value


@given(rows)
def test_what_is_hoisted_can_be_extracted(row: dict[str, Any]) -> None:
    """With its schema and without."""
    hoist, extract = {"type": "HoistField$Value", "field": "f"}, {"type": "ExtractField$Value", "field": "f"}
    assert through(row, hoist, extract) == SchemaAndValue(ROW, row)
    assert through(row, hoist, extract, schema=None) == SchemaAndValue(None, row)


@given(rows)
def test_what_is_renamed_can_be_named_back(row: dict[str, Any]) -> None:
    """Two names at once, each the other's."""
    swap = {"type": "ReplaceField$Value", "renames": "number:text,text:number"}
    assert through(row, swap, swap) == SchemaAndValue(ROW, row)


@given(rows)
def test_a_number_as_text_is_the_number(row: dict[str, Any]) -> None:
    """Every one of eight bytes."""
    to_text, back = ({"type": "Cast$Value", "spec": f"number:{kind}"} for kind in ("string", "int64"))
    assert through(row, to_text, back).value == row


@given(st.floats(allow_nan=False))
def test_a_double_as_text_is_the_double(number: float) -> None:
    """In Java's spelling, infinities too."""
    to_text, back = ({"type": "Cast$Value", "spec": kind} for kind in ("string", "float64"))
    assert through(number, to_text, back, schema=Schema("double")).value == number


@given(milliseconds, st.sampled_from(("yyyy-MM-dd HH:mm:ss.SSS", "yyyy D HHmmssSSS", "MMM d yyyy hh:mm:ss.SSS a")))
def test_a_time_as_text_is_the_time(when: int, pattern: str) -> None:
    """To the millisecond, in any form that tells all of it."""
    to_text = {"type": "TimestampConverter$Value", "target.type": "string", "format": pattern}
    back = to_text | {"target.type": "unix"}
    assert through(when, to_text, back, schema=Schema("int64")).value == when


@given(milliseconds)
def test_a_time_is_its_day_and_its_time_of_day(when: int) -> None:
    """Before 1970 as well."""
    of_day, of_time = ({"type": "TimestampConverter$Value", "target.type": kind} for kind in ("Date", "Time"))
    day, time = (through(when, link, schema=Schema("int64")).value for link in (of_day, of_time))
    assert day * 86_400_000 + time == when
    assert 0 <= time < 86_400_000
