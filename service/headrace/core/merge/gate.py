"""Which events apply: every event against the row as it stands, in order of arrival (``merge.md`` section 2).

Nearly all keys of a batch are *orderly*: one partition, offsets and positions rising. Their events all apply, which is
seen by comparing neighbours in whole columns. Only the others are walked one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.model.events import NO_POSITION, Changes, Operation, RowVersion, Versions
from headrace.core.model.keys import FLOOR_KEY
from headrace.core.model.ranking import outranks, succeed

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

NOTHING: Mapping[str, RowVersion] = {}


@dataclass(frozen=True, slots=True)
class Grouped:
    """A batch's events by key: ``order`` lists their indexes, key by key, within a key in order of arrival.

    ``code`` is the number of the key of each ordered event, ``keys`` the key texts by number.
    """

    order: Ints
    code: Ints
    keys: pa.StringArray

    def starts(self) -> Bools:
        """Where a new key begins."""
        starts = np.ones(len(self.code), np.bool_)
        starts[1:] = self.code[1:] != self.code[:-1]
        return starts


def group(changes: Changes) -> Grouped:
    """The events of a batch by key, without tombstones that only repeat the delete before them."""
    encoded = changes.key.dictionary_encode()
    code = np.asarray(encoded.indices).astype(np.int64)
    order = np.argsort(code, kind="stable")
    if changes.displaced:  # they end a row that is gone already
        order = order[~np.isin(order, list(changes.displaced))]
    return _without_echoes(changes, Grouped(order, code[order], encoded.dictionary))


def _without_echoes(changes: Changes, grouped: Grouped) -> Grouped:
    """A tombstone right after a ``d`` of the same key is that ``d`` (section 2.3)."""
    operation = changes.operation[grouped.order]
    echo = np.zeros(len(operation), np.bool_)
    echo[1:] = (operation[1:] == Operation.TOMBSTONE) & (operation[:-1] == Operation.DELETE)
    echo &= ~grouped.starts()
    if not echo.any():
        return grouped
    return Grouped(grouped.order[~echo], grouped.code[~echo], grouped.keys)


def applying(
    changes: Changes, grouped: Grouped, ledger: Mapping[str, RowVersion], stored: Mapping[str, RowVersion]
) -> Bools:
    """Which of the ordered events apply.

    ``ledger`` holds tombstones, which block only upserts below them (section 3); ``stored`` the versions of rows, which
    every event must outrank. A key that is in neither has no row yet.
    """
    version = changes.version.take(grouped.order)
    operation = changes.operation[grouped.order]
    deletes = (operation == Operation.DELETE) | (operation == Operation.TOMBSTONE)
    tombstones = _known(ledger, grouped.keys)
    rows = _known(stored, grouped.keys)
    suspect = _disorderly(version, grouped)
    suspect[list(rows)] = True
    suspect |= _needing_arrival(version, grouped, tombstones)
    exempt = deletes | _ended_here(version, grouped, deletes, tombstones)
    applies: Bools = exempt | _above(version, grouped, tombstones)
    if FLOOR_KEY in ledger:
        applies &= deletes | _above_floor(version, ledger[FLOOR_KEY])
    if rows:
        done = _reflected(version, grouped, rows)
        applies &= ~done[grouped.code]
        suspect &= ~done
    if suspect.any():
        _walk_all(version, grouped, deletes, exempt, applies, suspect, tombstones, rows)
    return applies


def _ended_here(version: Versions, grouped: Grouped, deletes: Bools, tombstones: Mapping[int, RowVersion]) -> Bools:
    """The events whose row is deleted later in this batch by the very delete that left the tombstone, or a newer one.

    Nothing needs to block them, and a key change in between takes its cells from them. So it is after a crash between
    ledger and table commit, and where a batch is folded again after its deletes were written to the ledger.
    """
    ended = np.zeros(len(deletes), np.bool_)
    if not tombstones:
        return ended
    marked = np.zeros(len(grouped.keys), np.bool_)
    marked[list(tombstones)] = True
    candidates = np.flatnonzero(deletes & marked[grouped.code])
    ends = np.array(
        [place for place in candidates if not outranks(tombstones[grouped.code[place]], version.row(int(place)))],
        np.int64,
    )
    if len(ends):
        following = np.searchsorted(ends, np.arange(len(deletes)), side="right")
        followed = following < len(ends)
        ended[followed] = grouped.code[ends[following[followed]]] == grouped.code[followed]
    return ended


def _reflected(version: Versions, grouped: Grouped, rows: Mapping[int, RowVersion]) -> Bools:
    """The keys, by number, whose stored row is of their last event here: the row reflects all that came before it.

    So it is where a merge has written some rows of the batch, and the others are folded again. Source times do not tell
    this of an event without a position: it may be later than an event of another partition that came after it.
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
    """Whether each event's position is above its key's tombstone; true where either is without one."""
    if not tombstones:
        return np.ones(len(version), np.bool_)
    floor = np.full(len(grouped.keys), NO_POSITION, version.position.dtype)
    for code, tombstone in tombstones.items():
        floor[code] = tombstone.position
    above: Bools = (version.position == NO_POSITION) | (version.position > floor[grouped.code])
    return above


def _above_floor(version: Versions, floor: RowVersion) -> Bools:
    """Whether each event outranks the last truncate."""
    here = (version.partition == floor.partition) & (version.topic == floor.topic)
    later = np.where(here, version.offset > floor.offset, version.source_time > floor.source_time)
    return np.where(version.position == NO_POSITION, later, version.position > floor.position)


def _needing_arrival(version: Versions, grouped: Grouped, tombstones: Mapping[int, RowVersion]) -> Bools:
    """The keys, by number, where an event or the tombstone has no position, so that arrival decides."""
    marked = np.zeros(len(grouped.keys), np.bool_)
    if tombstones:
        marked[list(tombstones)] = True
        unpositioned = np.zeros(len(grouped.keys), np.bool_)
        unpositioned[grouped.code[version.position == NO_POSITION]] = True
        marked &= unpositioned
        marked[[code for code, tombstone in tombstones.items() if not tombstone.position]] = True
    return marked


def _walk_all(
    version: Versions,
    grouped: Grouped,
    deletes: Bools,
    exempt: Bools,
    applies: Bools,
    suspect: Bools,
    tombstones: Mapping[int, RowVersion],
    rows: Mapping[int, RowVersion],
) -> None:
    bounds = np.append(np.flatnonzero(grouped.starts()), len(exempt))
    present = grouped.code[bounds[:-1]]
    for place in np.flatnonzero(suspect[present]):
        code = int(present[place])
        span = (int(bounds[place]), int(bounds[place + 1]))
        _walk(version, deletes, exempt, applies, span, tombstones.get(code), rows.get(code))


def _known(versions: Mapping[str, RowVersion], keys: pa.StringArray) -> dict[int, RowVersion]:
    """The versions of the batch's keys, by key number."""
    if not versions:
        return {}
    found = ((code, versions.get(key)) for code, key in enumerate(keys.to_pylist()))
    return {code: version for code, version in found if version is not None}


def _disorderly(version: Versions, grouped: Grouped) -> Bools:
    """The keys, by number, of which not every event is plainly later than the one before it."""
    doubtful = ~grouped.starts()[1:] & ~plainly_later(version)
    suspect = np.zeros(len(grouped.keys), np.bool_)
    suspect[grouped.code[1:][doubtful]] = True
    return suspect


def plainly_later(version: Versions) -> Bools:
    """Whether each event but the first is later than the one before it by partition, offset and position."""
    later = (version.partition[1:] == version.partition[:-1]) & (version.offset[1:] > version.offset[:-1])
    higher = version.position[1:] > version.position[:-1]
    both_without = (version.position[1:] == NO_POSITION) & (version.position[:-1] == NO_POSITION)
    plain: Bools = later & (higher | both_without)
    return plain


def _walk(
    version: Versions,
    deletes: Bools,
    exempt: Bools,
    applies: Bools,
    bounds: tuple[int, int],
    tombstone: RowVersion | None,
    row: RowVersion | None,
) -> None:
    """One key's events, one by one, against the row and the tombstone as they stand after each of them."""
    gone: RowVersion | None = None  # the delete of this batch that took the row away
    for index in range(*bounds):
        event = version.row(index)
        blocked = tombstone is not None and not exempt[index] and not outranks(event, tombstone)
        # A delete blocks only upserts, so a read that stands behind it can be deleted at the same position again.
        rivals = (row or gone,) if deletes[index] else (gone, row)
        stale = any(known is not None and not outranks(event, known) for known in rivals)
        applies[index] &= not blocked and not stale
        if applies[index] and deletes[index]:
            row, gone = None, succeed(event, gone)
        elif applies[index]:
            row = succeed(event, row)
