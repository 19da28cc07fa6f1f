"""Source positions: what orders two changes of one row (``merge.md`` section 2).

A position is text that sorts as text: ``<epoch>.<parts>`` with fixed widths, so that numpy, Arrow, Spark and a reader
of the table compare it alike. The widths are part of the stored format.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.errors import BadRecord
from headrace.core.events import NO_POSITION

MAX_EPOCH = 99999
_EPOCH = "%05d"


@dataclass(frozen=True, slots=True)
class PositionFormat:
    """Which fields of the source block make the position, whole numbers all, and how many digits each is given."""

    fields: tuple[str, ...]
    digits: tuple[int, ...]


NO_FORMAT = PositionFormat((), ())
"""Of events that say nothing about their source: none has a position."""

POSITION_FORMATS: dict[str, PositionFormat] = {
    "postgresql": PositionFormat(("lsn",), (20,)),
}
"""By ``source.connector``. A connector that is not here has no order that Headrace knows."""


def position_format(connector: str) -> PositionFormat:
    """The format for a connector. Raises BadRecord for one whose events have no known order."""
    if connector in POSITION_FORMATS:
        return POSITION_FORMATS[connector]
    known = ", ".join(sorted(POSITION_FORMATS))
    raise BadRecord(f"events of source.connector {connector!r} have no known order; known are: {known}")


def positions(form: PositionFormat, epoch: int, parts: Sequence[pa.Array], count: int) -> npt.NDArray[np.bytes_]:
    """The positions of ``count`` events whose source fields are ``parts`` (int64), NO_POSITION where one is null."""
    if not form.fields:
        return np.full(count, NO_POSITION, "S1")
    padded = [
        pc.utf8_lpad(pc.cast(part, pa.string()), digits, "0") for part, digits in zip(parts, form.digits, strict=True)
    ]
    texts = pc.binary_join_element_wise(_EPOCH % epoch, *padded, ".")
    width = len(_EPOCH % epoch) + sum(1 + digits for digits in form.digits)
    # Texts of one width stand in Arrow's buffer as in numpy's; those without a position are filled up to it.
    present = np.asarray(texts.is_valid())
    filled = texts.fill_null(" " * width)
    found = np.frombuffer(filled.buffers()[2], f"S{width}", count, filled.offset * width).copy()
    found[~present] = NO_POSITION
    return found
