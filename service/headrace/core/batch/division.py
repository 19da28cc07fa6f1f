"""Batches that need too much memory, divided: between any two events, but not between the halves of a key change.

Any division of events into batches gives the same table (``fold.py``); only what a key change carries over, and that
nobody sees a row under neither of its keys, takes one commit for both halves (``merge.md`` section 6).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.core.batch.combine import split
from headrace.core.batch.key_changes import paired_halves
from headrace.core.model.errors import HeadraceError
from headrace.core.model.events import Changes, Operation


class TooLarge(HeadraceError):
    """What is read again for a batch does not fit into memory. In about ``parts`` parts it may be written."""

    def __init__(self, parts: int) -> None:
        super().__init__(f"what is read again for a batch needs too much memory; it is written in {parts} parts")
        self.parts = parts


def divisible(changes: Changes) -> bool:
    """Whether the events can be divided at all."""
    return len(_cuts(changes)) > 0


def divided(changes: Changes, parts: int) -> list[Changes]:
    """The events in order, in at most so many parts of about one length; at least two if they are ``divisible``."""
    cuts = _cuts(changes)
    if len(cuts) == 0:
        return [changes]
    wanted = np.arange(1, parts) * len(changes) // parts
    places = np.unique(cuts[np.minimum(np.searchsorted(cuts, wanted), len(cuts) - 1)])
    found, rest, begin = [], changes, 0
    for place in places.tolist():
        part, rest = split(rest, place - begin)
        found.append(part)
        begin = place
    return [*found, rest]


def _cuts(changes: Changes) -> npt.NDArray[np.int64]:
    """The indexes of the events that may begin a part: those that lie within no key change."""
    within = np.zeros(len(changes) + 1, np.int64)
    for halves in paired_halves(changes).items():
        within[min(halves) + 1] += 1
        within[max(halves) + 1] -= 1
    # A tombstone on its own would delete whatever row has its key.
    repeats = (changes.operation[1:] == Operation.TOMBSTONE) & (changes.operation[:-1] == Operation.DELETE)
    for place in np.flatnonzero(repeats).tolist():
        within[place + 1] += 1
        within[place + 2] -= 1
    return 1 + np.flatnonzero(within.cumsum()[1 : len(changes)] == 0)
