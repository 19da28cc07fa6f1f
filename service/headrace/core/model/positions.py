"""Source positions, which order the changes of a row (``merge.md`` section 2).

A position is text that sorts as text: ``<epoch>.<parts>`` with fixed widths, so that numpy, Arrow, Spark and a reader
of the table compare it alike. The widths are part of the stored format.

Every part is one field of the source block. If a part is null, the event has no position: with a partial position, two
changes could have the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import BadRecord
from headrace.core.model.events import NO_POSITION

EPOCH = "%05d"


def _number(values: Sequence[Any]) -> pa.Array:
    return pc.cast(pa.array(values, pa.int64()), pa.string())


def _out_of_range(part: PositionPart, values: Sequence[Any]) -> npt.NDArray[np.int64]:
    """Return the indexes of numbers that would sort wrongly: negative, or with more digits than the part's width."""
    numbers = pa.array(values, pa.int64())
    fits = pc.greater_equal(numbers, 0)
    if 10**part.width < 2**63:
        fits = pc.and_(fits, pc.less(numbers, 10**part.width))
    return np.flatnonzero(~np.asarray(fits.fill_null(True)))


def _decimal_text(values: Sequence[Any]) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in values], pa.string())


def _binlog_suffix(values: Sequence[Any]) -> pa.Array:
    """Return the number of a binlog file (``mysql-bin.000003``): names do not sort after ``.999999``."""
    return pc.replace_substring_regex(pa.array(values, pa.string()), r"^.*\.", "")


def _log_sequence_number(values: Sequence[Any]) -> pa.Array:
    """Return SQL Server's LSN in lower case: ``00000027:00000ac0:0002`` has fixed widths and sorts as text."""
    return pc.utf8_lower(pa.array(values, pa.string()))


_DIGITS = r"^[0-9]+$"
_LSN = r"^[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}$"


@dataclass(frozen=True, slots=True)
class PositionPart:
    """One field of the source block as text of ``width`` characters. ``pattern`` is for texts, None for numbers."""

    field: str
    width: int
    text: Callable[[Sequence[Any]], pa.Array] = _number
    pattern: str | None = None


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
    (PositionPart("file", 10, _binlog_suffix, _DIGITS), PositionPart("pos", 20), PositionPart("row", BINLOG_ROW_WIDTH)),
)
_ORACLE = PositionFormat((PositionPart("commit_scn", 38, _decimal_text, _DIGITS), PositionPart("txSeq", 20)))
"""An SCN is an Oracle NUMBER of up to 38 digits. ``scn`` would be wrong: events are in the order of commits."""
_SQL_SERVER = PositionFormat(
    (
        PositionPart("commit_lsn", 22, _log_sequence_number, _LSN),
        PositionPart("change_lsn", 22, _log_sequence_number, _LSN),
        PositionPart("event_serial_no", 20),
    )
)

POSITION_FORMATS: Mapping[str, PositionFormat] = {
    "postgresql": PositionFormat((PositionPart("lsn", 20),)),
    "mysql": _BINLOG,
    "mariadb": _BINLOG,
    "oracle": _ORACLE,
    "sqlserver": _SQL_SERVER,
}
"""Formats by ``source.connector``."""


def position_format(connector: str) -> PositionFormat:
    """Return the format for a connector; NO_FORMAT for one without known positions."""
    return POSITION_FORMATS.get(connector, NO_FORMAT)


def positions(form: PositionFormat, epoch: int, values: Sequence[Sequence[Any]], count: int) -> npt.NDArray[np.bytes_]:
    """Return the positions of ``count`` events, NO_POSITION where a part is null.

    ``values`` are the source fields of ``form.parts``, in that order. Raises BadRecord with the index of an event whose
    field does not have the connector's format: it would be ordered wrongly.
    """
    if not form.parts:
        return np.full(count, NO_POSITION, "S1")
    parts = [_part_texts(part, column) for part, column in zip(form.parts, values, strict=True)]
    return fixed_width(pc.binary_join_element_wise(EPOCH % epoch, *parts, "."), form.width)


def fixed_width(texts: pa.Array, width: int) -> npt.NDArray[np.bytes_]:
    """ASCII texts of ``width`` characters as positions, NO_POSITION for nulls."""
    # With one width, Arrow's buffer equals numpy's; texts without a position are padded to the width.
    present = np.asarray(texts.is_valid())
    filled = texts.fill_null(" " * width)
    found = np.frombuffer(filled.buffers()[2], f"S{width}", len(filled), filled.offset * width).copy()
    found[~present] = NO_POSITION
    return found


def _part_texts(part: PositionPart, values: Sequence[Any]) -> pa.Array:
    texts = part.text(values)
    if part.pattern is None:
        others = _out_of_range(part, values)
    else:
        fits = pc.and_(pc.match_substring_regex(texts, part.pattern), pc.less_equal(pc.utf8_length(texts), part.width))
        others = np.flatnonzero(~np.asarray(fits.fill_null(True)))
    if len(others):
        raise BadRecord(
            f"source.{part.field} does not have its connector's format, so the event cannot be ordered",
            index=int(others[0]),
        )
    return pc.utf8_lpad(texts, part.width, "0")
