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

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.actions import Actions, Gates, Superseded
from headrace.core.model.events import RowVersion, Versions, outranks, succeed
from headrace.core.model.keys import FLOOR_KEY, TAKEN_PREFIX, is_table_entry

Partition = tuple[str, int]
"""Topic and partition."""

NO_KEYS: pa.StringArray = pa.array([], pa.string())


class LedgerEntries(Mapping[str, RowVersion]):
    """The entries of a ledger, by ledger key. Several entries of a key are merged by the rules of ranks.

    As a mapping it contains all entries as objects, which may be millions. ``of`` and ``additions`` search the entries
    of some keys. Both also return the few entries that are not of rows (``is_table_entry``).
    """

    @abstractmethod
    def of(self, keys: pa.StringArray) -> Mapping[str, RowVersion]:
        """Return the entries with these keys: those that were read, and those that this handle has recorded since."""

    @abstractmethod
    def additions(self, keys: pa.StringArray) -> Mapping[str, RowVersion]:
        """Return the entries with these keys that others have added since the ledger was read.

        They may include entries that ``of`` returns.
        """


class Tombstones:
    """The versions that block upserts, by canonical key, while the task reads partitions from where it began.

    Only those of the current batch: ``entries`` contains the entries of its keys, without the tombstones whose deletes
    are still to be read, and always the floor of a truncate. ``learned`` are the tombstones that other workers have
    added since the ledger was read. An event with a position outranks a tombstone without one, so the rows below a
    learned tombstone may have been written and have to be deleted again.

    ``reads_on`` is whether all records behind those of a batch are read as well. A replay of single records reads no
    delete behind them, so that every tombstone blocks at once.
    """

    entries: dict[str, RowVersion]
    learned: dict[str, RowVersion]

    def __init__(self, ledger: LedgerEntries, *, reads_on: bool = True) -> None:
        self._ledger = ledger
        self._reads_on = reads_on
        self._reached: dict[Partition, int] = {}
        self._search(NO_KEYS)

    def begin(self, versions: Versions, keys: pa.StringArray) -> None:
        """Begin a batch with these ledger keys.

        Each partition in it is read from its first record in the first batch on.
        """
        partitions, firsts = np.unique(versions.partition, return_index=True)
        for number, first in zip(partitions.tolist(), firsts.tolist(), strict=True):
            self._reached.setdefault((versions.topic, number), int(versions.offset[first]))  # proven: tombstones-ahead
        self._search(pc.unique(keys))

    def end(self, versions: Versions) -> None:
        """End a batch that is durable: the tombstones of its deletes block again."""
        for number in np.unique(versions.partition).tolist():
            partition = (versions.topic, number)
            behind = int(versions.offset[versions.partition == number].max()) + 1
            self._reached[partition] = max(self._reached.get(partition, 0), behind)  # proven: tombstones-set-aside
        self._search(NO_KEYS)

    def ends(self, key: str, version: RowVersion) -> bool:
        """Return whether a delete that is still to be read again removes a row of this version."""
        ahead = self._ahead.get(key)
        return ahead is not None and outranks(ahead, version)

    def learn(self) -> None:
        """Add the entries of the batch's keys that other workers have added to the ledger since it was read."""
        added = {}
        for key, addition in self._ledger.additions(self._keys).items():
            version, entry = succeed(addition, self._read.get(key)), self.entries.get(key)
            if version != self._ahead.get(key) and (merged := succeed(version, entry)) != entry:
                added[key] = merged
        self.entries |= added
        self.learned |= added  # proven: tombstones-of-others

    def _search(self, keys: pa.StringArray) -> None:
        self._keys, self._read = keys, self._ledger.of(keys)  # proven: ledger-read
        self._ahead = {key: version for key, version in self._read.items() if self._is_ahead(key, version)}
        self.entries = {key: version for key, version in self._read.items() if key not in self._ahead}
        self.learned = {}
        self.learn()

    def _is_ahead(self, key: str, version: RowVersion) -> bool:
        """Whether the delete of a tombstone that was read is still to be read again.

        Other entries always apply: the state that they record cannot be read again, or concerns what is read again.
        """
        if not self._reads_on or is_table_entry(key) or key.startswith(TAKEN_PREFIX):  # proven: floor-stays
            return False
        reached = self._reached.get((version.topic, version.partition))
        return reached is not None and version.offset >= reached


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
