"""The tombstones of a table's ledger in memory, and which of them block upserts (``merge.md`` section 3).

The ledger gets a tombstone before the table gets the delete. If the worker is killed between the two, the task reads
the records from before the delete again, possibly in other batches: the row's upserts are applied again, and a key
change may need their cells. So a tombstone does not block them while its delete is still to be read again, but from
that delete on. Until then a late event may restore a deleted row, and the delete, which is never blocked, removes it
again. An update with omitted cells may find neither row nor value if the delete had reached the table; then it need not
apply.

A tombstone that another worker adds while this worker writes is different. That worker is the successor, which does not
read these records again, and this worker may not read them either, because it may have lost its partitions without
knowing it. So this tombstone blocks at once, wherever its delete lies, and rows that were written before it was read
are deleted again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headrace.core.model.actions import Actions, Gates, Superseded
from headrace.core.model.events import RowVersion, Versions, outranks, succeed
from headrace.core.model.keys import FLOOR_KEY, RESTART_PREFIX, TAKEN_PREFIX

Partition = tuple[str, int]
"""Topic and partition."""

_ALWAYS = (TAKEN_PREFIX, RESTART_PREFIX)
"""Entries that always apply: the state that they record cannot be read again, or concerns what is read again."""


class Tombstones:
    """The versions that block upserts, by canonical key, while the task reads partitions from where it began.

    ``entries`` is the ledger without the tombstones whose deletes are still to be read; it always contains the floor of
    a truncate. ``learned`` are the tombstones that other workers have added since. An event with a position outranks a
    tombstone without one, so the rows below a learned tombstone may have been written and have to be deleted again.
    """

    def __init__(self, ledger: Mapping[str, RowVersion]) -> None:
        self.entries: dict[str, RowVersion] = dict(ledger)
        self._ahead: dict[str, RowVersion] = {}
        self.learned: dict[str, RowVersion] = {}
        self._reached: dict[Partition, int] = {}

    def begin(self, versions: Versions) -> None:
        """Begin a batch: each partition in it is read from its first record in the first batch on."""
        partitions, firsts = np.unique(versions.partition, return_index=True)
        for number, first in zip(partitions.tolist(), firsts.tolist(), strict=True):
            partition, offset = (versions.topic, number), int(versions.offset[first])
            if partition not in self._reached:
                self._reached[partition] = offset
                self._set_aside(partition, offset)  # proven: tombstones-ahead

    def end(self, versions: Versions) -> None:
        """End a batch that is durable: the tombstones of its deletes block again."""
        for number in np.unique(versions.partition).tolist():
            partition = (versions.topic, number)
            behind = int(versions.offset[versions.partition == number].max()) + 1
            self._reached[partition] = max(self._reached.get(partition, 0), behind)
        for key, version in list(self._ahead.items()):
            if version.offset < self._reached.get((version.topic, version.partition), 0):
                self.entries[key] = succeed(version, self.entries.get(key))  # proven: tombstones-set-aside
                del self._ahead[key]

    def ends(self, key: str, version: RowVersion) -> bool:
        """Return whether a delete that is still to be read again removes a row of this version."""
        ahead = self._ahead.get(key)
        return ahead is not None and outranks(ahead, version)

    def learn(self, ledger: Mapping[str, RowVersion]) -> None:
        """Add the entries that other workers have added to the ledger since it was read."""
        added = {}
        for key, version in ledger.items():
            entry = self.entries.get(key)
            if version != self._ahead.get(key) and (merged := succeed(version, entry)) != entry:
                added[key] = merged
        self.entries |= added
        self.learned |= added  # proven: tombstones-of-others

    def _set_aside(self, partition: Partition, first: int) -> None:
        ahead = {
            key: version
            for key, version in self.entries.items()
            if (version.topic, version.partition) == partition
            and version.offset >= first
            and not key.startswith(_ALWAYS)
            and key != FLOOR_KEY  # proven: floor-stays
            and version != self.learned.get(key)
        }
        self._ahead |= ahead
        for key in ahead:
            del self.entries[key]


def deletes_of_overtaken(actions: Actions, tombstones: Mapping[str, RowVersion]) -> Actions:
    """Return deletes of the rows that ``actions`` have written although one of ``tombstones`` outranks them.

    Each has the version of its tombstone, so that a row that was created after it stays.
    """
    tombstone_of: dict[int, RowVersion] = {}
    floor = tombstones.get(FLOOR_KEY)
    for index, key in enumerate(actions.key.to_pylist()):
        for tombstone in (tombstones.get(key), floor):
            if tombstone is None or actions.delete[index]:
                continue
            if outranks(tombstone, actions.version.row(index)):
                tombstone_of[index] = succeed(tombstone, tombstone_of.get(index))
    rows = actions.take(np.array(list(tombstone_of), np.int64))
    versions = Versions.of(actions.version.topic, list(tombstone_of.values()))
    return replace(
        rows,
        delete=np.ones(len(tombstone_of), np.bool_),
        fresh=np.zeros(len(tombstone_of), np.bool_),
        version=versions,
        gates=Gates.of(versions),
        columns=tuple(column for column in rows.columns if column.name in actions.key_fields),
        superseded=Superseded(),
    )
