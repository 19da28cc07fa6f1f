"""Rows that lose their key to another row before they get another key themselves.

If a database checks keys at the end of a statement (Oracle) or of a transaction (PostgreSQL's DEFERRABLE), a row may
get the key of another row that changes its key later: ``UPDATE t SET id = id + 1`` sends ``d(1) c(2 from 1) d(2)
c(3 from 2)``. The second delete of such a statement does not belong to the row that has the key at that time. A row
that changes its key twice sends the same events, but its new key is free at that time.

So the state of the key decides: whether a row has it when the second half of a key change arrives. If so, the next
first half of that key in the same transaction belongs to the row that had the key before, and deletes nothing. A batch
may end between the two and be read again, so the ledger stores both events before the table is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.model.events import Changes, Operation, RowVersion
from headrace.core.model.keys import TAKEN_PREFIX
from headrace.core.model.ranking import outranks, succeed

_DELETES = (Operation.DELETE, Operation.TOMBSTONE)


def taken_keys(changes: Changes) -> list[str]:
    """Return the keys that rows get or leave, in sources whose events contain the transaction."""
    halves = [index for index in {*changes.old_key, *changes.moved} if changes.transaction[index] >= 0]
    return sorted({changes.key[index].as_py() for index in halves})


def with_displaced(
    changes: Changes, ledger: Mapping[str, RowVersion], stored: Mapping[str, RowVersion]
) -> tuple[Changes, Mapping[str, RowVersion]]:
    """Return the changes with ``displaced`` set, and the entries for the ledger that record it.

    ``stored`` are the versions of the rows under ``taken_keys``.
    """
    walk = _Walk(changes, ledger)
    for key, events in _events_by_key(changes):
        walk.key(key, events, stored.get(key))
    return replace(changes, displaced=walk.displaced), walk.remembered


class _Walk:
    def __init__(self, changes: Changes, ledger: Mapping[str, RowVersion]) -> None:
        self._changes = changes
        self._ledger = ledger
        self._second: dict[tuple[str, int], int] = {}
        self.displaced: dict[int, int] = {}
        self.remembered: dict[str, RowVersion] = {}

    def key(self, key: str, events: list[int], row: RowVersion | None) -> None:
        """Apply one key's events in order of arrival."""
        tombstone = self._ledger.get(key)
        before = -1
        for event in events:
            version = self._changes.version.row(event)
            if self._changes.operation[event] in _DELETES:
                if self._is_displaced(key, event, before, version):
                    self.displaced[event] = self._second.get((key, int(self._changes.transaction[event])), -1)
                elif row is None or outranks(version, row):
                    row = None
            elif all(known is None or outranks(version, known) for known in (row, tombstone)):
                if row is not None and event in self._changes.old_key:
                    self._register_taken(key, event, version)
                row = succeed(version, row)
            before = event

    def _register_taken(self, key: str, event: int, version: RowVersion) -> None:
        """Register that a row gets a key that another row has."""
        transaction = int(self._changes.transaction[event])
        if transaction >= 0:
            self._second[key, transaction] = event
            self._remember(_ledger_key("onto", transaction, key), version)

    def _is_displaced(self, key: str, event: int, before: int, version: RowVersion) -> bool:
        if self._changes.operation[event] == Operation.TOMBSTONE:
            repeated = before in self.displaced and self._changes.operation[before] == Operation.DELETE
            return repeated and not self._second_half_between(key, before, event)
        transaction = int(self._changes.transaction[event])
        onto = self._known(_ledger_key("onto", transaction, key))
        if event not in self._changes.moved or onto is None or version.position <= onto.position:
            return False
        left = self._known(_ledger_key("from", transaction, key))
        if left is None:
            self._remember(_ledger_key("from", transaction, key), version)
        return left is None or left.position == version.position

    def _second_half_between(self, old_key: str, delete: int, tombstone: int) -> bool:
        """Whether the row has its new key before the tombstone: then this is another one, of the row that took the key.

        In one partition Debezium sends the tombstone of a first half before the second half.
        """
        partition = self._changes.version.partition
        return any(
            key == old_key and delete < second < tombstone and partition[second] == partition[tombstone]
            for second, key in self._changes.old_key.items()
        )

    def _known(self, name: str) -> RowVersion | None:
        return self.remembered.get(name) or self._ledger.get(name)

    def _remember(self, name: str, version: RowVersion) -> None:
        if self._ledger.get(name) != version:
            self.remembered[name] = version


def _ledger_key(what: str, transaction: int, key: str) -> str:
    return f"{TAKEN_PREFIX}{what}:{transaction}:{key}"


def _events_by_key(changes: Changes) -> Iterator[tuple[str, list[int]]]:
    """The events of each of the ``taken_keys``, in order of arrival."""
    keys = taken_keys(changes)
    found: dict[str, list[int]] = {key: [] for key in keys}
    for index in np.flatnonzero(np.asarray(pc.is_in(changes.key, pa.array(keys, pa.string())))).tolist():
        found[changes.key[index].as_py()].append(index)
    return iter(found.items())
