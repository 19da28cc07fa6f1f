"""The fold: many events become one action per key (``merge.md`` section 4, ``reselect.md`` section 4.1).

For each key and column the fold looks for the event that holds the cell. That search is done for all keys at once: with
events ordered by key and arrival, "the last event up to here that says something" is a running maximum over indexes. No
cell is copied before the search has ended; each column is then gathered in one take.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.merge.carry import STORED, Carried, carried_cells
from headrace.core.merge.gate import NOTHING, Grouped, applying, group
from headrace.core.model.events import NO_POSITION, Actions, CellState, Changes, Column, Operation, RowVersion, Versions
from headrace.core.model.ranking import succeed

Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

OPEN = (CellState.UNCHANGED, CellState.UNKNOWN)
"""States of a cell of which an event says nothing."""

NONE = -1
"""No event: the index of a cell that no event of the batch holds."""


@dataclass(frozen=True, slots=True)
class Incarnations:
    """The applied events of a batch by key, and for each key where the row that stands at the end began.

    ``index`` lists event indexes, key by key in order of arrival. ``last`` and ``begin`` are places in it, one per key:
    the key's last event, and the first of the last incarnation (after a delete, or with a new image). ``fresh`` tells
    that this incarnation is a new image; of a deleted row, that its first event in the batch was one. ``alive`` is the
    place from which the row has stood: behind its last delete, or the key's first event.
    """

    index: Ints
    last: Ints
    begin: Ints
    alive: Ints
    fresh: Bools
    deleted: Bools
    codes: Ints


def fold(
    changes: Changes,
    ledger: Mapping[str, RowVersion] = NOTHING,
    stored: Mapping[str, RowVersion] = NOTHING,
) -> Actions:
    """One action per key that has an event that applies.

    Each event counts against the row as folded so far, ``ledger`` and ``stored`` (``core/merge/gate.py``). Any split of
    the events into batches gives the same table.
    """
    grouped = group(changes)
    applies = applying(changes, grouped, ledger, stored)
    rows = _incarnations(changes, grouped, applies)
    key = grouped.keys.take(pa.array(rows.codes))
    carried = (
        carried_cells(changes, rows.index, rows.begin, rows.last, rows.codes, grouped.keys, stored)
        if changes.old_key
        else {}
    )
    return replace(_actions(changes, rows, key, carried), stale=_stale(grouped, rows))


def _stale(grouped: Grouped, rows: Incarnations) -> Sequence[str]:
    """The keys of which no event applies."""
    if len(rows.codes) == len(grouped.keys):
        return ()
    stale = np.ones(len(grouped.keys), np.bool_)
    stale[rows.codes] = False
    keys: list[str] = grouped.keys.filter(pa.array(stale)).to_pylist()
    return keys


def standing_events(
    changes: Changes, keys: Collection[str], ledger: Mapping[str, RowVersion], stored: Mapping[str, RowVersion]
) -> Mapping[str, Ints]:
    """The events of which the rows with these keys consist at the end of the batch: indexes, in order of arrival."""
    grouped = group(changes)
    rows = _incarnations(changes, grouped, applying(changes, grouped, ledger, stored))
    spans = zip(grouped.keys.take(pa.array(rows.codes)).to_pylist(), rows.begin, rows.last, strict=True)
    return {key: rows.index[begin : last + 1] for key, begin, last in spans if key in keys}


def _incarnations(changes: Changes, grouped: Grouped, applies: Bools) -> Incarnations:
    index, code = grouped.order[applies], grouped.code[applies]
    operation = changes.operation[index]
    starts = np.ones(len(index), np.bool_)
    starts[1:] = code[1:] != code[:-1]
    deletes = _deletes(operation)
    # An update after a delete, without an insert between them, is a new row as well.
    after_delete = np.zeros(len(index), np.bool_)
    after_delete[1:] = deletes[:-1] & ~starts[1:]
    images = (operation == Operation.CREATE) | (operation == Operation.READ)
    new = images | (after_delete & ~deletes)
    begin = _latest(starts | new | deletes)
    alive = _latest(starts | deletes | after_delete)
    last = np.flatnonzero(np.append(starts[1:], True)) if len(index) else np.zeros(0, np.int64)
    deleted = deletes[last]
    fresh = np.where(deleted, images[starts], new[begin[last]])
    return Incarnations(index, last, begin[last], alive[last], fresh, deleted, code[last])


def _latest(flags: Bools) -> Ints:
    """For each place the latest place up to it where ``flags`` is set, NONE before the first."""
    places = np.where(flags, np.arange(len(flags)), NONE)
    return np.maximum.accumulate(places) if len(places) else places


def _actions(changes: Changes, rows: Incarnations, key: pa.Array, carried: Mapping[int, Carried]) -> Actions:
    oldest = rows.last.copy()  # place of the oldest event that still has a cell in the action
    lost = changes.losses()[rows.index]
    columns = tuple(_fold_column(column, rows, oldest, carried, lost) for column in changes.columns)
    # A new image is in the action also where later events have all of its cells: it is why stored cells are forgotten.
    np.minimum(oldest, rows.begin, out=oldest, where=rows.fresh & ~rows.deleted)
    # An update that is a new row only because of the delete before it leans on that delete.
    leaning = rows.fresh & ~rows.deleted & (changes.operation[rows.index[rows.begin]] == Operation.UPDATE)
    oldest[leaning] = rows.begin[leaning] - 1
    oldest[rows.deleted] = rows.last[rows.deleted]
    last_index = rows.index[rows.last]
    version = replace(changes.version.take(last_index), position=_row_positions(changes, rows))
    first = changes.version.take(rows.index[oldest])
    return Actions(
        table=changes.table,
        key_fields=changes.key_fields,
        key=key,
        delete=rows.deleted,
        fresh=rows.fresh,
        version=version,
        first_position=_first_positions(changes.version, rows, oldest),
        first=first,
        by_arrival=first.position == NO_POSITION,
        carry_from=_carry_from(len(rows.last), carried),
        transaction=changes.transaction[last_index],
        columns=columns,
        hiding=_hiding(changes, rows),
        buried=_buried(changes, rows, key, version),
        read=changes.operation[last_index] == Operation.READ,
    )


def _fold_column(
    column: Column, rows: Incarnations, oldest: Ints, carried: Mapping[int, Carried], lost: Ints
) -> Column:
    if column.states is None:
        return Column(column.name, column.schema, column.values.take(pa.array(rows.index[rows.last])))
    states = column.states[rows.index]
    known = _latest((states == CellState.VALUE) | (states == CellState.NULL))[rows.last]
    doubted = _latest(states == CellState.UNKNOWN)[rows.last]
    omitted = _latest(states == CellState.UNCHANGED)[rows.last]
    is_known, is_doubted, is_omitted = (place >= rows.begin for place in (known, doubted, omitted))
    source = np.where(is_known, rows.index[known], NONE)
    # "Unchanged" contradicts a null, and says nothing of the value before a record that was lost in between.
    broken = (states[known] == CellState.NULL) | (lost[known] != lost[omitted])
    contradiction = is_known & broken & (omitted > known)
    folded = np.full(len(rows.last), CellState.ABSENT, np.uint8)
    folded[rows.fresh] = CellState.NULL  # a new image without the column leaves it null
    folded[is_omitted] = CellState.UNCHANGED
    folded[is_doubted] = CellState.UNKNOWN
    folded[is_known] = states[known][is_known]
    folded[is_known & ((doubted > known) | contradiction)] = CellState.DOUBTFUL
    np.minimum(oldest, known, out=oldest, where=is_known)
    _carry(column, folded, source, carried, states[rows.begin], lost[rows.begin] != lost[omitted])
    folded[rows.deleted] = CellState.NULL
    values = column.values.take(pa.array(source, mask=source == NONE))
    return Column(column.name, column.schema, values, folded if _has_open_cells(folded) else None)


def _has_open_cells(states: npt.NDArray[np.uint8]) -> bool:
    return bool((states > CellState.NULL).any())


def _carry(
    column: Column,
    folded: npt.NDArray[np.uint8],
    source: Ints,
    carried: Mapping[int, Carried],
    second_half: npt.NDArray[np.uint8],
    broken: Bools,
) -> None:
    """Fill what a key change left out from the row under the old key, unless it had no such column any more.

    ``broken`` are the rows of which a record may have been lost since the key change.
    """
    for place, row in carried.items():
        if folded[place] not in (CellState.UNCHANGED, CellState.UNKNOWN):
            continue
        if second_half[place] == CellState.ABSENT or column.name not in row.cells:
            folded[place] = CellState.UNCHANGED  # of a fresh row, so it is open
        else:
            cell, states = row.cells[column.name], column.states
            unknown = folded[place] == CellState.UNKNOWN
            if cell.event == STORED or states is None:
                # A null that may be real stays open: reselect decides, and only failing that it is carried.
                folded[place] = CellState.UNKNOWN if unknown else CellState.CARRIED
            else:
                source[place] = cell.event
                doubtful = unknown or broken[place] or cell.doubtful
                folded[place] = CellState.DOUBTFUL if doubtful else states[cell.event]


def _carry_from(count: int, carried: Mapping[int, Carried]) -> Ints:
    origin = np.full(count, NONE, np.int64)
    for place, row in carried.items():
        origin[place] = row.origin
    return origin


def _hiding(changes: Changes, rows: Incarnations) -> Bools:
    """The deletes whose key has an upsert without a position in the batch."""
    reads = (changes.version.position[rows.index] == NO_POSITION) & ~_deletes(changes.operation[rows.index])
    hiding: Bools = rows.deleted & _within(reads, rows)
    return hiding


def _buried(changes: Changes, rows: Incarnations, key: pa.Array, version: Versions) -> Mapping[str, RowVersion]:
    """By key: the tombstone of the batch's deletes, where the action's own version is not it.

    So it is under a row that has no position of its own, which older events would outrank, and where the last delete
    is lower than one before it (a delete that is sent again removes a read that came in between).
    """
    deletes = _deletes(changes.operation[rows.index])
    bare = ~rows.deleted & (version.position == NO_POSITION) & _within(deletes, rows)
    places = np.flatnonzero(bare | (rows.deleted & _falling(changes.version.position[rows.index], deletes, rows)))
    firsts = _firsts(rows)
    found = {}
    for place in places.tolist():
        span = slice(firsts[place], rows.last[place] + 1)
        tombstone: RowVersion | None = None
        for event in rows.index[span][deletes[span]].tolist():
            tombstone = succeed(changes.version.row(event), tombstone)
        if tombstone is not None:
            found[key[place].as_py()] = tombstone
    return found


def _falling(position: npt.NDArray[np.bytes_], deletes: Bools, rows: Incarnations) -> Bools:
    """Which keys have a delete that does not outrank the delete before it by position."""
    places = np.flatnonzero(deletes)
    keys = np.searchsorted(rows.last, places)
    falling = (keys[1:] == keys[:-1]) & (position[places[1:]] <= position[places[:-1]])
    found = np.zeros(len(rows.last), np.bool_)
    found[keys[1:][falling]] = True
    return found


def _deletes(operation: npt.NDArray[np.uint8]) -> Bools:
    deletes: Bools = (operation == Operation.DELETE) | (operation == Operation.TOMBSTONE)
    return deletes


def _within(flags: Bools, rows: Incarnations) -> Bools:
    """Which keys have an event in the batch that is flagged."""
    if not flags.any():
        return np.zeros(len(rows.last), np.bool_)
    within: Bools = _latest(flags)[rows.last] >= _firsts(rows)
    return within


def _firsts(rows: Incarnations) -> Ints:
    """The place of each key's first event."""
    return np.concatenate([[0], rows.last[:-1] + 1]) if len(rows.last) else rows.last


def _row_positions(changes: Changes, rows: Incarnations) -> npt.NDArray[np.bytes_]:
    """The position that each row reflects: an event without one never lowers it (``merge.md`` section 2.2).

    A row that was made after a delete does not go on from the delete's position: that delete, sent again, must be able
    to remove it, and older events are blocked by the ledger.
    """
    position = changes.version.position[rows.index]
    positioned = _latest(position != NO_POSITION)[rows.last]
    return np.where(positioned >= rows.alive, position[positioned], NO_POSITION) if len(rows.last) else position


def _first_positions(version: Versions, rows: Incarnations, oldest: Ints) -> npt.NDArray[np.bytes_]:
    """The lowest position among the events that still have a cell: that of the first one that has a position."""
    position = version.position[rows.index]
    first = position[oldest]
    for place in np.flatnonzero((first == NO_POSITION) & (oldest < rows.last)):
        span = position[oldest[place] : rows.last[place] + 1]
        positioned = np.flatnonzero(span != NO_POSITION)
        if len(positioned):
            first[place] = span[positioned[0]]
    return first
