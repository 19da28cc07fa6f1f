"""A table's ledger in memory, as far as it counts (``merge.md`` section 3).

A tombstone is written before the delete itself. If the worker is killed between the two, the records are read again
from before the delete, possibly in other batches: the row's upserts come again, and a key change may need their cells.
A tombstone of a delete that is still to be read again must not block them; it counts from where its delete stood. Until
then a late event may bring a deleted row back, and the delete, which never is blocked, removes it again. An update that
leaves cells out may find neither row nor value any more, if the delete had reached the table: it need not apply then.

What somebody else adds while this worker writes is another matter: that is a successor, who will not read those records
again, and this worker perhaps neither, since it may have lost its partitions without knowing it. So it counts at once,
wherever it lies, and rows that were written before it was seen are taken back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from headrace.core.merge.actions import take_actions
from headrace.core.model.events import NO_POSITION, Actions, RowVersion, Versions
from headrace.core.model.keys import FLOOR_KEY, TAKEN_PREFIX
from headrace.core.model.ranking import outranks, succeed

Place = tuple[str, int]

_ALWAYS = TAKEN_PREFIX
"""What is known of rows that lost their keys counts wherever its event lies: read again, it no longer shows."""


class Tombstones:
    """What blocks upserts, by canonical key, while a topic is read in order from where this worker began.

    ``known`` is the ledger without the tombstones that lie ahead; the floor of a truncate, which nothing escapes,
    always counts. ``learned`` are those that others have added meanwhile: these do not only block. An event with a
    position outranks a tombstone without one, so what came before it is written, and has to be taken back.
    """

    def __init__(self, ledger: Mapping[str, RowVersion]) -> None:
        self.known: dict[str, RowVersion] = dict(ledger)
        self._ahead: dict[str, RowVersion] = {}
        self.learned: dict[str, RowVersion] = {}
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

    def ends(self, key: str, version: RowVersion) -> bool:
        """Whether a delete that is still to be read again ends a row of this version."""
        ahead = self._ahead.get(key)
        return ahead is not None and outranks(ahead, version)

    def learn(self, ledger: Mapping[str, RowVersion]) -> None:
        """Take in what others have added to the ledger since it was read."""
        added = {}
        for key, version in ledger.items():
            known = self.known.get(key)
            if version != self._ahead.get(key) and (standing := succeed(version, known)) != known:
                added[key] = standing
        self.known |= added
        self.learned |= added

    def _set_aside(self, place: Place, first: int) -> None:
        ahead = {
            key: version
            for key, version in self.known.items()
            if (version.topic, version.partition) == place
            and version.offset >= first
            and not key.startswith(_ALWAYS)
            and key != FLOOR_KEY
            and version != self.learned.get(key)
        }
        self._ahead |= ahead
        for key in ahead:
            del self.known[key]


def taken_back(actions: Actions, tombstones: Mapping[str, RowVersion]) -> Actions:
    """The deletes that remove what ``actions`` have written where one of ``tombstones`` outranks it.

    Each has the version of its tombstone, so that a row that was made anew after it stays.
    """
    found: dict[int, RowVersion] = {}
    floor = tombstones.get(FLOOR_KEY)
    for place, key in enumerate(actions.key.to_pylist()):
        for grave in (tombstones.get(key), floor):
            if grave is not None and not actions.delete[place] and outranks(grave, actions.version.row(place)):
                found[place] = succeed(grave, found.get(place))
    rows = take_actions(actions, np.array(list(found), np.int64))
    versions = _versions(actions.version.topic, list(found.values()))
    return replace(
        rows,
        delete=np.ones(len(found), np.bool_),
        fresh=np.zeros(len(found), np.bool_),
        version=versions,
        first=versions,
        first_position=versions.position,
        by_arrival=versions.position == NO_POSITION,
        carry_from=np.full(len(found), -1),
        hiding=None,
        columns=tuple(column for column in rows.columns if column.name in actions.key_fields),
        buried={},
    )


def _versions(topic: str, found: Sequence[RowVersion]) -> Versions:
    return Versions(
        topic,
        np.array([version.position for version in found], np.bytes_),
        np.array([version.partition for version in found], np.int32),
        np.array([version.offset for version in found], np.int64),
        np.array([version.source_time for version in found], np.int64),
    )
