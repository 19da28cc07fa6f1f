"""Source positions: what orders two changes of one row (``merge.md`` section 2).

A position is text that sorts as text: ``<epoch>.<parts>`` with fixed widths, so that numpy, Arrow, Spark and a reader
of the table compare it alike. The widths are part of the stored format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.core.errors import BadRecord
from headrace.core.events import NO_POSITION

MAX_EPOCH = 99999


@dataclass(frozen=True, slots=True)
class PositionFormat:
    """Which fields of the source block make the position, and how they are written."""

    fields: tuple[str, ...]
    template: bytes


POSITION_FORMATS: dict[str, PositionFormat] = {
    "postgresql": PositionFormat(("lsn",), b"%020d"),
}
"""By ``source.connector``. A connector that is not here has no order that Headrace knows."""


def position_format(connector: str) -> PositionFormat:
    """The format for a connector. Raises BadRecord for one whose events have no known order."""
    if connector in POSITION_FORMATS:
        return POSITION_FORMATS[connector]
    known = ", ".join(sorted(POSITION_FORMATS))
    raise BadRecord(f"events of source.connector {connector!r} have no known order; known are: {known}")


def positions(form: PositionFormat, epoch: int, parts: Iterable[Sequence[Any]]) -> npt.NDArray[np.bytes_]:
    """The positions of events whose source fields are ``parts``, NO_POSITION where one is missing."""
    template = b"%05d." % epoch + form.template
    width = len(template % ((0,) * len(form.fields)))
    return np.array([NO_POSITION if None in row else template % tuple(row) for row in parts], f"S{width}")
