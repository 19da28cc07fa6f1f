"""Source positions, which order the changes of a row (``merge.md`` section 2).

A position is text that sorts as text: ``<epoch>.<parts>`` with fixed widths, so that numpy, Arrow, Spark and a reader
of the table compare it alike. The widths are part of the stored format.

Every part is one field of the source block. If a part is null, the event has no position: with a partial position, two
changes could have the same one.

``ordering.field`` makes positions for sources whose events have none, from a field of the source block
(``source.ts_ms``) or a column of the row. The event's source time and its offset follow the field's value, so that
equal values are ordered by arrival: ``<epoch>.<value>.<source time>.<offset>``, with one width for all values of a
type. The letter before the value identifies the type, and is part of the stored format:

- ``n``: an integer, a date or a timestamp, plus 2^63, so that negative values sort first,
- ``d``: an integer of up to 38 digits (``number(field)``), plus 10^38,
- ``t``: a text of up to 64 printable ASCII characters, padded with blanks, which sort first.

A text that looks like a number or a time could sort wrongly as text. It is rejected until the operator specifies
``number(field)``, ``time(field)`` or ``text(field)``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import BadRecord, ConfigError
from headrace.core.model.events import NO_POSITION
from headrace.core.model.instants import zoned_micros

EPOCH = "%05d"


_DIGITS = re.compile(r"[0-9]+")
_LSN = re.compile(r"[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}")


@dataclass(frozen=True, slots=True)
class PositionPart:
    """One field of the source block as text of ``width`` characters.

    ``convert`` returns the text of a value, which has to match ``pattern``. A negative number, or one with more digits
    than the width, would sort wrongly.
    """

    field: str
    width: int
    convert: Callable[[Any], str] = str
    pattern: re.Pattern[str] = _DIGITS

    def text_format(self, values: Sequence[Any]) -> tuple[bytes, Sequence[Any]]:
        """Return a format of bytes, and an argument of it for each value; None for a null.

        Raises BadRecord with the index of a value without the connector's format.
        """
        # Nearly all values are numbers. One operation for each is three times as fast as the steps below.
        if self.convert is str and set(map(type, values)) == {int} and 0 <= min(values) <= max(values) < 10**self.width:
            return b"%%0%dd" % self.width, values
        texts = [None if value is None else self.convert(value) for value in values]
        for index, text in enumerate(texts):
            if text is not None and not (len(text) <= self.width and self.pattern.fullmatch(text)):
                raise BadRecord(
                    f"source.{self.field} does not have its connector's format, so the event cannot be ordered",
                    index=index,
                )
        return b"%b", [None if text is None else text.zfill(self.width).encode() for text in texts]


@dataclass(frozen=True, slots=True)
class PositionFormat:
    """The fields of the source block that are the parts of the position, the most significant first."""

    parts: tuple[PositionPart, ...]

    @property
    def width(self) -> int:
        """The characters of a position, its epoch included."""
        return len(EPOCH % 0) + sum(1 + part.width for part in self.parts)


NO_FORMAT = PositionFormat(())
"""The format of events without a position: they are ordered by arrival."""

BINLOG_ROW_WIDTH = 10
_BINLOG = PositionFormat(
    (
        PositionPart("file", 10, lambda name: name.rpartition(".")[2]),
        PositionPart("pos", 20),
        PositionPart("row", BINLOG_ROW_WIDTH),
    )
)
"""Of a binlog file (``mysql-bin.000003``) its number: names do not sort after ``.999999``."""
_ORACLE = PositionFormat((PositionPart("commit_scn", 38), PositionPart("txSeq", 20)))
"""An SCN is an Oracle NUMBER of up to 38 digits. ``scn`` would be wrong: events are in the order of commits."""
_SQL_SERVER = PositionFormat(
    (
        PositionPart("commit_lsn", 22, str.lower, _LSN),
        PositionPart("change_lsn", 22, str.lower, _LSN),
        PositionPart("event_serial_no", 20),
    )
)
"""An LSN in lower case (``00000027:00000ac0:0002``) has fixed widths, and sorts as text."""

POSITION_FORMATS: Mapping[str, PositionFormat] = {
    "postgresql": PositionFormat((PositionPart("lsn", 20),)),
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "oracle": _ORACLE,
    "sqlserver": _SQL_SERVER,
}
"""Formats by ``source.connector``."""


def position_format(connector: str) -> PositionFormat:
    return POSITION_FORMATS.get(connector, NO_FORMAT)


def positions(
    form: PositionFormat, epoch: int, values: Sequence[Sequence[object]], count: int
) -> npt.NDArray[np.bytes_]:
    """Return the positions of ``count`` events, NO_POSITION where a part is null.

    ``values`` are the source fields of ``form.parts``, in that order. Raises BadRecord with the index of an event whose
    field does not have the connector's format: it would be ordered wrongly.
    """
    if not form.parts:
        return np.full(count, NO_POSITION, "S1")
    # Python's texts: for the few events that a table has in most polls, Arrow's kernels take twenty times as long.
    formats, columns = zip(
        *(part.text_format(column) for part, column in zip(form.parts, values, strict=True)), strict=True
    )
    template = b".".join(((EPOCH % epoch).encode(), *formats))
    events = zip(*columns, strict=True)
    return np.array([NO_POSITION if None in parts else template % parts for parts in events], f"S{form.width}")


def fixed_width(texts: pa.Array, width: int) -> npt.NDArray[np.bytes_]:
    """ASCII texts of ``width`` characters as positions, NO_POSITION for nulls."""
    # With one width, Arrow's buffer equals numpy's; texts without a position are padded to the width.
    present = np.asarray(texts.is_valid())
    filled = texts.fill_null(" " * width)
    encoded = np.frombuffer(filled.buffers()[2], f"S{width}", len(filled), filled.offset * width).copy()
    encoded[~present] = NO_POSITION
    return encoded


# -- ordering.field ----------------------------------------------------------------------------------------------------

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
    by: Ordering, epoch: int, values: pa.Array, source_time: npt.NDArray[np.int64], offset: npt.NDArray[np.int64]
) -> npt.NDArray[np.bytes_]:
    """Return the positions of events whose field has ``values``, NO_POSITION where it is null.

    Raises ConfigError for a field whose type has no order, BadRecord with the index of an event whose value cannot be
    ordered.
    """
    kind, texts, width = _texts(by, values)
    behind = (_int64_texts(pa.array(source_time)), _int64_texts(pa.array(offset)))
    head = pc.binary_join_element_wise(EPOCH % epoch + f".{kind}", texts, "")
    joined = pc.binary_join_element_wise(head, *behind, ".")
    return fixed_width(joined, len(EPOCH % 0) + 2 + width + 2 * (1 + len(_COUNT % 0)))


def field_values(values: Sequence[object]) -> pa.Array:
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
        return "d", _convert(values, _raised_number), len(str(_NUMBER_RAISED))
    if by.reading == "time" and pa.types.is_string(kind):
        values, kind = _convert(values, zoned_micros, pa.int64()), pa.int64()
    if by.reading in ("", "time") and (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return "n", _int64_texts(values), len(_COUNT % 0)
    if by.reading in ("", "text") and pa.types.is_string(kind):
        return "t", _convert(values, _filled_text if by.reading else _clear_text(by)), TEXT_WIDTH
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


def _convert(values: pa.Array, convert: Callable[[Any], _V], arrow_type: pa.DataType | None = None) -> pa.Array:
    converted: list[_V | None] = []
    for index, value in enumerate(values.to_pylist()):
        try:
            converted.append(None if value is None else convert(value))
        except ValueError as error:
            raise BadRecord(f"{OPTION}: the event cannot be ordered: {error}", index=index) from error
    return pa.array(converted, arrow_type or pa.string())


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
