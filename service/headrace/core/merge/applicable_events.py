"""Which events of a batch apply to their rows, in order of arrival (``merge.md`` section 2).

Nearly all keys of a batch are in order: one partition, increasing offsets and positions. Comparing neighbours in
complete columns shows that all their events apply. Only the events of other keys are compared one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.model.events import (
    NO_POSITION,
    Bools,
    Changes,
    Ints,
    Operation,
    RowVersion,
    Versions,
    outranks,
    succeed,
)
from headrace.core.model.keys import FLOOR_KEY

NOTHING: Mapping[str, RowVersion] = {}


@dataclass(frozen=True, slots=True)
class Grouped:
    """A batch's events by key: ``order`` lists their indexes, key by key, each key in order of arrival.

    ``code`` is the index of each ordered event's key in ``keys``.
    """

    order: Ints
    code: Ints
    keys: pa.StringArray

    def starts(self) -> Bools:
        starts = np.ones(len(self.code), np.bool_)
        starts[1:] = self.code[1:] != self.code[:-1]
        return starts


def latest(flags: Bools) -> Ints:
    """Return the last index up to each index where ``flags`` is set, -1 before the first."""
    indexes = np.where(flags, np.arange(len(flags)), -1)
    return np.maximum.accumulate(indexes) if len(indexes) else indexes


def group(changes: Changes) -> Grouped:
    """Return the events of a batch by key, without tombstones that only repeat the delete before them (section 2.3)."""
    encoded = changes.key.dictionary_encode()
    code = np.asarray(encoded.indices).astype(np.int64)
    order = np.argsort(code, kind="stable")
    # proven: displaced-rows
    if changes.key_changes.displaced:  # they end a row that already lost its key
        order = order[~np.isin(order, list(changes.key_changes.displaced))]
    grouped = Grouped(order, code[order], encoded.dictionary)
    operation = changes.operation[order]
    repeats = np.zeros(len(order), np.bool_)
    repeats[1:] = (operation[1:] == Operation.TOMBSTONE) & (operation[:-1] == Operation.DELETE)
    repeats &= ~grouped.starts()  # proven: repeated-delete
    return Grouped(order[~repeats], grouped.code[~repeats], grouped.keys) if repeats.any() else grouped


def applicable(
    changes: Changes, grouped: Grouped, ledger: Mapping[str, RowVersion], stored: Mapping[str, RowVersion]
) -> Bools:
    """Return which of the ordered events apply.

    ``ledger`` contains tombstones, which block only upserts below them (section 3); ``stored`` the versions of rows,
    which every event must outrank. A key that is in neither has no row yet.
    """
    version = changes.version.take(grouped.order)
    operation = changes.operation[grouped.order]
    deletes = (operation == Operation.DELETE) | (operation == Operation.TOMBSTONE)
    tombstones = _by_code(ledger, grouped.keys)
    rows = _by_code(stored, grouped.keys)
    # Positions 10 20 30 of one partition need no comparison with each other. 10 30 20 do: the change at 20 was sent
    # again, or comes late from another partition, and must not replace that at 30.
    doubtful = ~grouped.starts()[1:] & ~plainly_later(version)
    suspect = np.zeros(len(grouped.keys), np.bool_)
    suspect[grouped.code[1:][doubtful]] = True
    suspect[list(rows)] = True
    suspect |= _needing_arrival(version, grouped, tombstones)
    # After a crash between ledger and table commit, u(10) d(20) are read again and the ledger has d(20). It must not
    # block u(10): a key change between the two may need its cells, and d(20) itself still follows.
    exempt = deletes | _deleted_later(version, grouped, deletes, tombstones)  # proven: exempt-from-tombstones
    applies: Bools = exempt | _above(version, grouped, tombstones)
    if FLOOR_KEY in ledger:
        floor = ledger[FLOOR_KEY]  # of the last truncate
        here = (version.partition == floor.partition) & (version.topic == floor.topic)
        later = np.where(here, version.offset > floor.offset, version.source_time > floor.source_time)
        above = np.where(version.position == NO_POSITION, later, version.position > floor.position)
        applies &= deletes | above  # proven: above-floor
    if rows:
        done = _keys_reflected_by_rows(version, grouped, rows)
        applies &= ~done[grouped.code]  # proven: rows-up-to-date
        suspect &= ~done
    if suspect.any():
        _walk(version, grouped, deletes, exempt, applies, suspect, tombstones, rows)
    return applies


def _deleted_later(version: Versions, grouped: Grouped, deletes: Bools, tombstones: Mapping[int, RowVersion]) -> Bools:
    """The events before a delete of this batch that left the tombstone of their row, or a newer one.

    They need not be blocked, and a key change between them and the delete carries their cells over. This is the case
    after a crash between ledger and table commit, and when a batch is folded again after its deletes were recorded.
    """
    ended = np.zeros(len(deletes), np.bool_)
    if not tombstones:
        return ended
    marked = np.zeros(len(grouped.keys), np.bool_)
    marked[list(tombstones)] = True
    candidates = np.flatnonzero(deletes & marked[grouped.code])
    ends = np.array(
        [index for index in candidates if not outranks(tombstones[grouped.code[index]], version.row(int(index)))],
        np.int64,
    )
    if len(ends):
        following = np.searchsorted(ends, np.arange(len(deletes)), side="right")
        followed = following < len(ends)
        ended[followed] = grouped.code[ends[following[followed]]] == grouped.code[followed]
    return ended


def _keys_reflected_by_rows(version: Versions, grouped: Grouped, rows: Mapping[int, RowVersion]) -> Bools:
    """The keys, by code, whose stored row has the version of their last event here: it reflects all earlier events.

    This is the case if a merge has written some rows of the batch and the others are folded again. The source time of
    an event without a position cannot show it: it may be later than that of an event of another partition that arrived
    after it.
    """
    done = np.zeros(len(grouped.keys), np.bool_)
    ends = np.flatnonzero(np.append(grouped.starts()[1:], True))
    for end in ends.tolist():
        row = rows.get(int(grouped.code[end]))
        done[grouped.code[end]] = row is not None and _coordinate(row) == _coordinate(version.row(end))
    return done


def _coordinate(version: RowVersion) -> tuple[str, int, int]:
    return version.topic, version.partition, version.offset


def _above(version: Versions, grouped: Grouped, tombstones: Mapping[int, RowVersion]) -> Bools:
    """Whether each event's position is above its key's tombstone; true if one of them has no position."""
    if not tombstones:
        return np.ones(len(version), np.bool_)
    floor = np.full(len(grouped.keys), NO_POSITION, version.position.dtype)
    for code, tombstone in tombstones.items():
        floor[code] = tombstone.position
    # proven: above-tombstone
    above: Bools = (version.position == NO_POSITION) | (version.position > floor[grouped.code])
    return above


def _needing_arrival(version: Versions, grouped: Grouped, tombstones: Mapping[int, RowVersion]) -> Bools:
    """The keys, by code, for which arrival decides because an event or the tombstone has no position."""
    marked = np.zeros(len(grouped.keys), np.bool_)
    if tombstones:
        marked[list(tombstones)] = True
        unpositioned = np.zeros(len(grouped.keys), np.bool_)
        unpositioned[grouped.code[version.position == NO_POSITION]] = True
        marked &= unpositioned
        marked[[code for code, tombstone in tombstones.items() if not tombstone.position]] = True
    return marked


def _by_code(versions: Mapping[str, RowVersion], keys: pa.StringArray) -> dict[int, RowVersion]:
    """The versions of the batch's keys, by key code."""
    if not versions:
        return {}
    versions_by_code = ((code, versions.get(key)) for code, key in enumerate(keys.to_pylist()))
    return {code: version for code, version in versions_by_code if version is not None}


def plainly_later(version: Versions) -> Bools:
    """Return whether each event but the first is later than the one before it by partition, offset and position."""
    # proven: rising-offsets
    later = (version.partition[1:] == version.partition[:-1]) & (version.offset[1:] > version.offset[:-1])
    higher = version.position[1:] > version.position[:-1]  # proven: rising-positions
    both_without = (version.position[1:] == NO_POSITION) & (version.position[:-1] == NO_POSITION)
    plain: Bools = later & (higher | both_without)
    return plain


def _walk(
    version: Versions,
    grouped: Grouped,
    deletes: Bools,
    exempt: Bools,
    applies: Bools,
    suspect: Bools,
    tombstones: Mapping[int, RowVersion],
    rows: Mapping[int, RowVersion],
) -> None:
    """Compare the events of suspect keys, one by one, with the row and the tombstone after each of them."""
    bounds = np.append(np.flatnonzero(grouped.starts()), len(exempt))
    present = grouped.code[bounds[:-1]]
    for key in np.flatnonzero(suspect[present]):
        tombstone, row = tombstones.get(int(present[key])), rows.get(int(present[key]))
        last_delete: RowVersion | None = None  # of this batch, which removed the row
        for index in range(int(bounds[key]), int(bounds[key + 1])):
            event = version.row(index)
            blocked = tombstone is not None and not exempt[index] and not outranks(event, tombstone)
            # A delete blocks only upserts, so a read after it can be deleted at the same position again.
            rivals = (row or last_delete,) if deletes[index] else (last_delete, row)  # proven: rivals-of-deletes
            stale = any(rival is not None and not outranks(event, rival) for rival in rivals)
            applies[index] &= not blocked and not stale
            if applies[index] and deletes[index]:
                row, last_delete = None, succeed(event, last_delete)  # proven: walked-delete
            elif applies[index]:
                row = succeed(event, row)
