"""Events of a batch that belong together: the halves of a key change, and a delete with its tombstone.

Debezium sends a key change as ``d(old key)`` with the header ``__debezium.newkey``, a tombstone, and ``c(new key)``
with the header ``__debezium.oldkey``. A key may change, be used again and change again, and the keys may lie in
different partitions. So two halves belong to one change only if their headers do not contradict it, and one of these
proves it:

- each names the other's key, and both have the same source position (Debezium sends one source block for both), or
- only the tombstone lies between them in their partition.

Debezium also sends a tombstone after each other ``d``, for Kafka's compaction (``merge.md`` section 2.3). It repeats
that ``d``, and is stale if that ``d`` is stale. Without its ``d`` it would be a delete without a position, which
removes any row that has its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.errors import HeadraceError
from headrace.core.model.events import NO_POSITION, Changes, Operation, TopicPartition

# -- the halves of a key change ---------------------------------------------------------------------------------------


def paired_halves(changes: Changes) -> Mapping[int, int]:
    """Return the first half of each second half that has one in these changes, by index.

    If a change was sent twice, a second half gets the last first half before it.
    """
    if not changes.key_changes.old_keys:
        return {}
    deletes: dict[str, list[int]] = {key: [] for key in changes.key_changes.old_keys.values()}
    before: dict[str, int] = {}  # the operation of the last event of each key
    for index in np.flatnonzero(np.asarray(pc.is_in(changes.key, pa.array(list(deletes), pa.string())))).tolist():
        key, operation = changes.key[index].as_py(), int(changes.operation[index])
        # A flattened delete may be only a tombstone.
        if operation == Operation.DELETE or (operation == Operation.TOMBSTONE and before.get(key) != Operation.DELETE):
            deletes[key].append(index)
        before[key] = operation
    first_of = {}
    for second, old_key in changes.key_changes.old_keys.items():
        # proven: other-half
        belonging = [first for first in deletes[old_key] if _belong_together(changes, first, second)]
        earlier = [first for first in belonging if first < second]
        if belonging:
            first_of[second] = max(earlier) if earlier else min(belonging)
    return first_of


def _belong_together(changes: Changes, first: int, second: int) -> bool:
    """Whether two halves with the same old key belong to one change. A header may be unreadable or removed."""
    new_key, positions = changes.key_changes.new_keys.get(first), changes.version.position[[first, second]]
    if new_key is not None and new_key != changes.key[second].as_py():
        return False
    # proven: position-of-halves
    if new_key is not None and positions[0] != NO_POSITION and positions[0] == positions[1]:
        return True
    partition = changes.version.partition
    if partition[first] != partition[second] or first > second:
        return False
    between = first + 1 + np.flatnonzero(partition[first + 1 : second] == partition[second])
    return all(is_tombstone_of(changes, int(index), first) for index in between)


# -- a delete and its tombstone ---------------------------------------------------------------------------------------


def is_tombstone_of(changes: Changes, index: int, delete: int) -> bool:
    """Whether the event at ``index`` is a tombstone of the key that the event ``delete`` has removed."""
    return bool(changes.operation[index] == Operation.TOMBSTONE and changes.key[index] == changes.key[delete])


class LastDeletes:
    """The key of each partition's last event in a table if that is a delete: its tombstone may be in the next fetch."""

    def __init__(self) -> None:
        self._keys: dict[TopicPartition, str] = {}

    def without_tombstone(self, partition: TopicPartition, changes: Changes) -> Changes | None:
        """Return a partition's next changes without the tombstone of the delete before them; None if none remain."""
        deleted = self._keys.pop(partition, None)
        if changes.operation[-1] == Operation.DELETE:
            self._keys[partition] = changes.key[-1].as_py()
        if deleted is None or changes.operation[0] != Operation.TOMBSTONE or changes.key[0].as_py() != deleted:
            return changes
        return changes.slice(1, len(changes)) if len(changes) > 1 else None  # proven: tombstone-of-fetch


def resumable(end: int, contents: Sequence[object], behind: int) -> int:
    """Return the offset that may be committed for a fetch up to ``end``: never between a ``d`` and its tombstone.

    A task that resumes there has not read the ``d``. If no records wait in Kafka (``behind``), the fetch ends
    with a complete pair, because Debezium sends the tombstone together with its ``d``.
    """
    last = contents[-1] if contents else None
    if behind and isinstance(last, Changes) and last.operation[-1] == Operation.DELETE:
        return int(last.version.offset[-1])  # proven: offset-before-tombstone
    return end


# -- the division of a batch ------------------------------------------------------------------------------------------


class TooLarge(HeadraceError):
    """The rows that a batch needs from the source do not fit into memory; a batch of one of ``parts`` parts may fit."""

    def __init__(self, parts: int) -> None:
        super().__init__(f"the rows that are read for a batch need too much memory; it is written in {parts} parts")
        self.parts = parts


def divisible(changes: Changes) -> bool:
    return len(_cuts(changes)) > 0


def divide(changes: Changes, parts: int) -> list[Changes]:
    """Return the events in order, in at most ``parts`` parts of similar length; at least two if ``divisible``.

    Any division of events into batches results in the same table (``merge.md`` section 2). Only the halves of
    a key change need one commit: the second carries cells over from the first, and no reader may miss the row.
    """
    cuts = _cuts(changes)
    if len(cuts) == 0:
        return [changes]
    wanted = np.arange(1, parts) * len(changes) // parts
    ends = np.unique(cuts[np.minimum(np.searchsorted(cuts, wanted), len(cuts) - 1)])
    return [changes.slice(begin, end) for begin, end in pairwise([0, *ends.tolist(), len(changes)])]


def _cuts(changes: Changes) -> npt.NDArray[np.int64]:
    """The indexes of the events that may begin a part: those between which no pair lies."""
    within = np.zeros(len(changes) + 1, np.int64)
    for halves in paired_halves(changes).items():
        within[min(halves) + 1] += 1  # proven: division-of-pairs
        within[max(halves) + 1] -= 1
    repeats = (changes.operation[1:] == Operation.TOMBSTONE) & (changes.operation[:-1] == Operation.DELETE)
    for index in np.flatnonzero(repeats).tolist():
        within[index + 1] += 1
        within[index + 2] -= 1
    return 1 + np.flatnonzero(within.cumsum()[1 : len(changes)] == 0)
