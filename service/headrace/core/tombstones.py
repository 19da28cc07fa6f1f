"""A table's ledger in memory, as far as it counts (``merge.md`` section 3).

A tombstone is written before the delete itself. If the worker is killed between the two, the records are read again
from before the delete, possibly in other batches: the row's upserts come again, and a key change may need their cells.
A tombstone of a delete that is still to be read again must not block them; it counts from where its delete stood. Until
then a late event may bring a deleted row back, and the delete, which never is blocked, removes it again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from headrace.core.events import RowVersion, Versions
from headrace.core.keys import FLOOR_KEY
from headrace.core.ranking import succeed

Place = tuple[str, int]


class Tombstones:
    """What blocks upserts, by canonical key, while a topic is read in order from where this worker began.

    ``known`` is the ledger without the tombstones that lie ahead; the floor of a truncate, which nothing escapes,
    always counts.
    """

    def __init__(self, ledger: Mapping[str, RowVersion]) -> None:
        self.known: dict[str, RowVersion] = dict(ledger)
        self._ahead: dict[str, RowVersion] = {}
        self._reached: dict[Place, int] = {}

    def begin(self, versions: Versions) -> None:
        """A batch begins: from its first record of a partition on, that partition is read (again)."""
        numbers, firsts = np.unique(versions.partition, return_index=True)
        for number, first in zip(numbers.tolist(), firsts.tolist(), strict=True):
            place, offset = (versions.topic, number), int(versions.offset[first])
            if place not in self._reached:
                self._reached[place] = offset
                self._set_aside(place, offset)

    def end(self, versions: Versions) -> None:
        """The batch is durable: what it has passed counts again."""
        for number in np.unique(versions.partition).tolist():
            place = (versions.topic, number)
            behind = int(versions.offset[versions.partition == number].max()) + 1
            self._reached[place] = max(self._reached.get(place, 0), behind)
        for key, version in list(self._ahead.items()):
            if version.offset < self._reached.get((version.topic, version.partition), 0):
                self.known[key] = succeed(version, self.known.get(key))
                del self._ahead[key]

    def _set_aside(self, place: Place, first: int) -> None:
        ahead = {
            key: version
            for key, version in self.known.items()
            if key != FLOOR_KEY and (version.topic, version.partition) == place and version.offset >= first
        }
        self._ahead |= ahead
        for key in ahead:
            del self.known[key]
