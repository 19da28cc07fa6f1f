"""``ordering.field``: positions for sources whose events have none (``merge.md`` section 2).

The field is one of the source block (``source.ts_ms``) or a column of the row; its value is used instead of a log
position. The event's source time and its offset follow, so that equal values are ordered by arrival. The text is
``<epoch>.<value>.<source time>.<offset>``, with one width for all values of a type. The letter before the value
identifies the type, and is part of the stored format:

- ``n``: an integer, a date or a timestamp, plus 2^63, so that negative values sort first,
- ``d``: an integer of up to 38 digits (``number(field)``), plus 10^38,
- ``t``: a text of up to 64 printable ASCII characters, padded with blanks, which sort first.

A text that looks like a number or a time could sort wrongly as text. It is rejected until the operator specifies
``number(field)``, ``time(field)`` or ``text(field)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import BadRecord, ConfigError
from headrace.core.model.instants import zoned_micros
from headrace.core.model.positions import EPOCH, fixed_width

OPTION = "ordering.field"
TEXT_WIDTH = 64

_WORDS = re.compile(r"(?:(number|time|text)\((.+)\)|([^()]+))")
_SOURCE = "source."
_AMBIGUOUS = re.compile(r"[+-]?[0-9]+(?:[.][0-9]*)?|[+-]?[0-9]{4,}-[0-9]{2}-[0-9]{2}(?:[T ].*)?")
_NUMBER = re.compile(r"[+-]?[0-9]{1,38}", re.ASCII)
_TEXT = re.compile(rf"[ -~]{{0,{TEXT_WIDTH}}}")
_NUMBER_RAISED = 10**38
_INT64_RAISED = np.uint64(2**63)
_COUNT = "%020d"


@dataclass(frozen=True, slots=True)
class Ordering:
    """The field for positions. ``reading`` is number, time or text, or empty if the field's type is sufficient."""

    field: str
    of_source: bool = False
    reading: str = ""

    def __str__(self) -> str:
        """The field as in the option."""
        return f"{_SOURCE}{self.field}" if self.of_source else self.field


def ordering(text: str) -> Ordering | None:
    """Parse the option's value; None for an empty one. Raises ConfigError."""
    if not text.strip():
        return None
    match = _WORDS.fullmatch(text.strip())
    field = (match[2] or match[3]).strip() if match else ""
    of_source = field.startswith(_SOURCE)
    name = field.removeprefix(_SOURCE)
    if match is None or not name:
        raise ConfigError(
            f"{OPTION}={text} is not a field; use column, source.field, number(field), time(field) or text(field)",
            OPTION,
        )
    return Ordering(name, of_source, match[1] or "")


def ordered_positions(
    by: Ordering,
    epoch: int,
    values: pa.Array,
    source_time: npt.NDArray[np.int64],
    offset: npt.NDArray[np.int64],
) -> npt.NDArray[np.bytes_]:
    """Return the positions of events whose field has ``values``, NO_POSITION where it is null.

    Raises ConfigError for a field without a known order, BadRecord with the index of an event whose value cannot be
    ordered.
    """
    kind, texts, width = _texts(by, values)
    behind = (_int64_texts(pa.array(source_time)), _int64_texts(pa.array(offset)))
    head = pc.binary_join_element_wise(EPOCH % epoch + f".{kind}", texts, "")
    joined = pc.binary_join_element_wise(head, *behind, ".")
    return fixed_width(joined, len(EPOCH % 0) + 2 + width + 2 * (1 + len(_COUNT % 0)))


def field_values(values: Sequence[Any]) -> pa.Array:
    """Return a field of source blocks as a column. Raises BadRecord with the index of a value of another type."""
    for index, value in enumerate(values):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
            raise BadRecord(f"{OPTION}: a field of the source block is neither a number nor a text", index=index)
    if all(value is None or (isinstance(value, int) and -(2**63) <= value < 2**63) for value in values):
        return pa.array(values, pa.int64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _texts(by: Ordering, values: pa.Array) -> tuple[str, pa.Array, int]:
    """Return the letter of the values' type, their texts and the width of the texts."""
    kind = values.type
    is_integer = pa.types.is_integer(kind) or (pa.types.is_decimal(kind) and kind.scale == 0)
    if by.reading == "number" and (is_integer or pa.types.is_string(kind)):
        return "d", _each(values, _raised_number), len(str(_NUMBER_RAISED))
    if by.reading == "time" and pa.types.is_string(kind):
        values, kind = _each(values, zoned_micros, pa.int64()), pa.int64()
    if by.reading in ("", "time") and (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return "n", _int64_texts(values), len(_COUNT % 0)
    if by.reading in ("", "text") and pa.types.is_string(kind):
        return "t", _each(values, _filled_text if by.reading else _clear_text(by)), TEXT_WIDTH
    if pa.types.is_null(kind):
        return "n", pa.nulls(len(values), pa.string()), len(_COUNT % 0)
    hint = f"; use number({by}) if it contains integers" if pa.types.is_decimal(kind) else ""
    as_what = f" as a {by.reading}" if by.reading else ""
    raise ConfigError(f"{OPTION}: {by} has type {kind}, which cannot be ordered{as_what}{hint}", OPTION)


def _int64_texts(values: pa.Array) -> pa.Array:
    """Return 20 digits with the order of numbers of 64 bits, or of dates and timestamps."""
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    numbers = pc.cast(values, pa.int64())
    raised = np.asarray(numbers.fill_null(0)).view(np.uint64) ^ _INT64_RAISED
    texts = pc.utf8_lpad(pc.cast(pa.array(raised), pa.string()), len(_COUNT % 0), "0")
    return pc.if_else(numbers.is_valid(), texts, pa.scalar(None, pa.string()))


_V = TypeVar("_V")


def _each(values: pa.Array, form: Callable[[Any], _V], arrow_type: pa.DataType | None = None) -> pa.Array:
    formed: list[_V | None] = []
    for index, value in enumerate(values.to_pylist()):
        try:
            formed.append(None if value is None else form(value))
        except ValueError as error:
            raise BadRecord(f"{OPTION}: the event cannot be ordered: {error}", index=index) from error
    return pa.array(formed, arrow_type or pa.string())


def _raised_number(value: int | Decimal | str) -> str:
    text = value if isinstance(value, str) else str(int(value))
    if not _NUMBER.fullmatch(text):
        raise ValueError("its value is not an integer of up to 38 digits")
    return str(int(text) + _NUMBER_RAISED).zfill(len(str(_NUMBER_RAISED)))


def _filled_text(value: str) -> str:
    if not _TEXT.fullmatch(value):
        raise ValueError(f"its value is longer than {TEXT_WIDTH} characters, or not printable ASCII")
    return value.ljust(TEXT_WIDTH)


def _clear_text(by: Ordering) -> Callable[[str], str]:
    def clear(value: str) -> str:
        if _AMBIGUOUS.fullmatch(value):
            raise ConfigError(
                f"{OPTION}: {by} contains texts that look like numbers or times, which sort differently as texts; use "
                f"number({by}), time({by}) or text({by})",
                OPTION,
            )
        return _filled_text(value)

    return clear
