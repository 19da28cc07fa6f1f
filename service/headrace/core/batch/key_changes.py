"""The two halves of a key change, paired.

Debezium sends ``d(old key)`` with the header ``__debezium.newkey``, a tombstone, and ``c(new key)`` with the header
``__debezium.oldkey``. A key may change, be used again and change again, and the keys may lie in different partitions.
So two halves are of one change only if their headers say nothing else, and one of these proves it:

- each names the other's key, and both have the same source position (Debezium sends one source block for both), or
- nothing but the tombstone lies between them in their partition.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.events import NO_POSITION, Changes, Operation


def paired_halves(changes: Changes) -> Mapping[int, int]:
    """Return the first half of each second half that has one in these changes, by index.

    Of a change that was sent twice, a second half gets the last first half before it.
    """
    if not changes.old_key:
        return {}
    deletes: dict[str, list[int]] = {key: [] for key in changes.old_key.values()}
    before: dict[str, int] = {}  # the operation of the last event of each key
    for index in np.flatnonzero(np.asarray(pc.is_in(changes.key, pa.array(list(deletes), pa.string())))).tolist():
        key, operation = changes.key[index].as_py(), int(changes.operation[index])
        # A flattened delete may be a tombstone and nothing else.
        if operation == Operation.DELETE or (operation == Operation.TOMBSTONE and before.get(key) != Operation.DELETE):
            deletes[key].append(index)
        before[key] = operation
    found = {}
    for second, old_key in changes.old_key.items():
        belonging = [first for first in deletes[old_key] if _belong_together(changes, first, second)]
        earlier = [first for first in belonging if first < second]
        if belonging:
            found[second] = max(earlier) if earlier else min(belonging)
    return found


def _belong_together(changes: Changes, first: int, second: int) -> bool:
    """Whether two halves that agree on the old key are of one change. A header may be unreadable or removed."""
    new_key, positions = changes.new_key.get(first), changes.version.position[[first, second]]
    if new_key is not None and new_key != changes.key[second].as_py():
        return False
    if new_key is not None and positions[0] != NO_POSITION and positions[0] == positions[1]:
        return True
    partition = changes.version.partition
    if partition[first] != partition[second] or first > second:
        return False
    between = first + 1 + np.flatnonzero(partition[first + 1 : second] == partition[second])
    return all(is_tombstone_of(changes, int(index), first) for index in between)


def is_tombstone_of(changes: Changes, index: int, delete: int) -> bool:
    """Whether the event at ``index`` is a tombstone of the key that the event ``delete`` has removed."""
    return bool(changes.operation[index] == Operation.TOMBSTONE and changes.key[index] == changes.key[delete])
