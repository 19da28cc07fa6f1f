"""The fold: the events of a batch become one action per key (``merge.md`` section 4, ``reselect.md`` section 4.1).

For each key and column the fold searches the event that contains the cell. One search covers all keys: with events
ordered by key and arrival, the last earlier event that contains the cell is a running maximum over indexes. No cell is
copied before the search has ended; one take then gathers each column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.merge.applicable_events import NOTHING, Grouped, applicable, group, latest
from headrace.core.merge.key_changes import STORED, Carried, carried_cells
from headrace.core.model.actions import Actions, CarriedCells, Gates, Superseded
from headrace.core.model.events import (
    NO_POSITION,
    Bools,
    CellState,
    Changes,
    Column,
    Ints,
    Operation,
    RowVersion,
    Versions,
    succeed,
)

NONE = -1
"""The index of a cell that no event of the batch contains."""


@dataclass(frozen=True, slots=True)
class Incarnations:
    """The applied events of a batch by key, and the beginning of the row that exists at the end of the batch.

    ``index`` lists event indexes, key by key in order of arrival. ``last`` and ``begin`` are positions in this list,
    one per key: the key's last event, and the first event of the last incarnation (after a delete, or with a new
    image). ``fresh`` marks an incarnation that is a new image; for a deleted row, that its first event in the batch was
    one. ``alive`` is the position behind the row's last delete, or of the key's first event.
    """

    index: Ints
    last: Ints
    begin: Ints
    alive: Ints
    fresh: Bools
    deleted: Bools
    codes: Ints


def fold(
    changes: Changes, ledger: Mapping[str, RowVersion] = NOTHING, stored: Mapping[str, RowVersion] = NOTHING
) -> Actions:
    """Return one action per key that has an applicable event.

    Each event is compared with the row as folded so far, ``ledger`` and ``stored``
    (``core/merge/applicable_events.py``). Any division of the events into batches results in the same table.
    """
    grouped = group(changes)
    applies = applicable(changes, grouped, ledger, stored)
    rows = _incarnations(changes, grouped, applies)
    key = grouped.keys.take(pa.array(rows.codes))
    carried = (
        carried_cells(changes, rows.index, rows.begin, rows.last, rows.codes, grouped.keys, stored)
        if changes.key_changes
        else {}
    )
    stale_keys: Sequence[str] = ()
    if len(rows.codes) < len(grouped.keys):  # no event of these keys applies
        stale = np.ones(len(grouped.keys), np.bool_)
        stale[rows.codes] = False
        stale_keys = grouped.keys.filter(pa.array(stale)).to_pylist()
    return _actions(changes, rows, key, carried, stale_keys)


def events_of_rows(
    changes: Changes, keys: Collection[str], ledger: Mapping[str, RowVersion], stored: Mapping[str, RowVersion]
) -> Mapping[str, Ints]:
    """Return the events that the rows with these keys consist of at the end of the batch, in order of arrival."""
    grouped = group(changes)
    rows = _incarnations(changes, grouped, applicable(changes, grouped, ledger, stored))
    spans = zip(grouped.keys.take(pa.array(rows.codes)).to_pylist(), rows.begin, rows.last, strict=True)
    return {key: rows.index[begin : last + 1] for key, begin, last in spans if key in keys}


def _incarnations(changes: Changes, grouped: Grouped, applies: Bools) -> Incarnations:
    # Example for one key: c(a=1) u(a=2) d c(a=3) u(b=4). The row at the end begins with the second c, so ``begin`` is
    # its position, ``alive`` the one behind the d, and nothing before it supplies a cell.
    index, code = grouped.order[applies], grouped.code[applies]
    operation = changes.operation[index]
    starts = np.ones(len(index), np.bool_)
    starts[1:] = code[1:] != code[:-1]
    deletes = _deletes(operation)
    # An update after a delete, without an insert between them, is a new row as well.
    after_delete = np.zeros(len(index), np.bool_)
    after_delete[1:] = deletes[:-1] & ~starts[1:]  # proven: after-delete
    images = (operation == Operation.CREATE) | (operation == Operation.READ)  # proven: snapshot-reads
    new = images | (after_delete & ~deletes)
    begin = latest(starts | new | deletes)
    alive = latest(starts | deletes | after_delete)
    last = np.flatnonzero(np.append(starts[1:], True)) if len(index) else np.zeros(0, np.int64)
    deleted = deletes[last]
    fresh = np.where(deleted, images[starts], new[begin[last]])  # proven: N5
    return Incarnations(index, last, begin[last], alive[last], fresh, deleted, code[last])


def _actions(
    changes: Changes, rows: Incarnations, key: pa.Array, carried: Mapping[int, Carried], stale_keys: Sequence[str]
) -> Actions:
    # With u(a=1) u(b=2) the action contains a cell of both events, so it may apply only where the first one does: the
    # gate is that of the oldest event. With u(a=1) u(a=2) nothing is left of the first, and the gate is the second's.
    oldest = rows.last.copy()
    lost = changes.losses()[rows.index]
    columns = tuple(_fold_column(column, rows, oldest, carried, lost) for column in changes.columns)
    # A new image belongs to the action even if later events contain all of its cells: it ends the stored cells.
    np.minimum(oldest, rows.begin, out=oldest, where=rows.fresh & ~rows.deleted)  # proven: oldest-position
    # An update that is a new row only because of the delete before it depends on that delete. With d u, the action
    # applies where d does; if the stored row outranks d, u changes that row, which the reconciliation decides.
    dependent = rows.fresh & ~rows.deleted & (changes.operation[rows.index[rows.begin]] == Operation.UPDATE)
    oldest[dependent] = rows.begin[dependent] - 1
    oldest[rows.deleted] = rows.last[rows.deleted]
    last_index = rows.index[rows.last]
    # The source position of a row: an event without one never lowers it (``merge.md`` section 2.2). A row that was
    # created after a delete does not continue from the delete's position: that delete, delivered again, must be able to
    # remove it, and the ledger blocks older events.
    position = changes.version.position[rows.index]
    if len(rows.last):
        positioned = latest(position != NO_POSITION)[rows.last]
        # proven: row-without-position
        position = np.where(positioned >= rows.alive, position[positioned], NO_POSITION)
    version = replace(changes.version.take(last_index), position=position)
    first = changes.version.take(rows.index[oldest])
    origin = np.full(len(rows.last), NONE, np.int64)  # the action whose stored row supplies CARRIED cells
    for action, row in carried.items():
        origin[action] = row.origin
    unpositioned = (changes.version.position[rows.index] == NO_POSITION) & ~_deletes(changes.operation[rows.index])
    return Actions(
        table=changes.table,
        key_fields=changes.key_fields,
        key=key,
        delete=rows.deleted,
        fresh=rows.fresh,  # proven: image-replaces-row
        version=version,
        gates=Gates(_first_positions(changes.version, rows, oldest), first, first.position == NO_POSITION),
        transaction=changes.transaction[last_index],
        columns=columns,
        carried=None if (origin == NONE).all() else CarriedCells(origin),
        superseded=Superseded(
            rows.deleted & _within(unpositioned, rows), _tombstones_within(changes, rows, key, version), stale_keys
        ),
        read=changes.operation[last_index] == Operation.READ,
    )


def _fold_column(
    column: Column, rows: Incarnations, oldest: Ints, carried: Mapping[int, Carried], lost: Ints
) -> Column:
    if column.states is None:
        return Column(column.name, column.schema, column.values.take(pa.array(rows.index[rows.last])))
    # Example, from old to new: u(a=5) u(a unchanged) u(a null?). The last event that contains the cell is the first;
    # the later null may hide 5 or be real, so the action has 5 as DOUBTFUL, and reselect decides.
    states = column.states[rows.index]
    certain = latest((states == CellState.VALUE) | (states == CellState.NULL))[rows.last]
    doubted = latest(states == CellState.UNKNOWN)[rows.last]
    omitted = latest(states == CellState.UNCHANGED)[rows.last]
    # proven: cells-of-image
    is_certain, is_doubted, is_omitted = (event >= rows.begin for event in (certain, doubted, omitted))
    source = np.where(is_certain, rows.index[certain], NONE)
    # "Unchanged" contradicts a null, and does not confirm a value if a record was lost in between.
    broken = (states[certain] == CellState.NULL) | (lost[certain] != lost[omitted])
    contradiction = is_certain & broken & (omitted > certain)
    folded = np.full(len(rows.last), CellState.ABSENT, np.uint8)
    # proven: image-without-column
    folded[rows.fresh] = CellState.NULL  # a new image without the column sets it to null
    # Each of these lines replaces states of the lines before it: a certain cell has precedence over an omitted one.
    folded[is_omitted] = CellState.UNCHANGED
    folded[is_doubted] = CellState.UNKNOWN
    folded[is_certain] = states[certain][is_certain]  # proven: S32
    folded[is_certain & ((doubted > certain) | contradiction)] = CellState.DOUBTFUL  # proven: contradicted-cells
    np.minimum(oldest, certain, out=oldest, where=is_certain)  # the action contains a cell of this event
    _carry(column, folded, source, carried, states[rows.begin], lost[rows.begin] != lost[omitted])
    folded[rows.deleted] = CellState.NULL
    values = column.values.take(pa.array(source, mask=source == NONE))
    return Column(column.name, column.schema, values, folded if (folded > CellState.NULL).any() else None)


def _carry(
    column: Column,
    folded: npt.NDArray[np.uint8],
    source: Ints,
    carried: Mapping[int, Carried],
    second_half: npt.NDArray[np.uint8],
    broken: Bools,
) -> None:
    """Fill the cells that a key change omitted from the row under the old key, unless it no longer had the column.

    ``broken`` are the rows for which a record may have been lost since the key change.
    """
    # d(1, to 2) c(2, from 1; a unchanged): the row with key 2 gets a from the last event of the row with key 1 that
    # contains it. If no event of the batch does, the merge copies the cell of the row stored under key 1 (CARRIED).
    for action, row in carried.items():
        if folded[action] not in (CellState.UNCHANGED, CellState.UNKNOWN):
            continue  # the second half or a later event contains the cell
        if second_half[action] == CellState.ABSENT or column.name not in row.cells:
            folded[action] = CellState.UNCHANGED  # of a fresh row, so it is open
        else:
            cell, states = row.cells[column.name], column.states
            unknown = folded[action] == CellState.UNKNOWN
            if cell.event == STORED or states is None:
                # A null that may be real stays open: reselect decides, and without an answer it is carried.
                folded[action] = CellState.UNKNOWN if unknown else CellState.CARRIED  # proven: N7
            else:
                source[action] = cell.event
                doubtful = unknown or broken[action] or cell.doubtful
                folded[action] = CellState.DOUBTFUL if doubtful else states[cell.event]


def _tombstones_within(
    changes: Changes, rows: Incarnations, key: pa.Array, version: Versions
) -> Mapping[str, RowVersion]:
    """The tombstones of the batch's deletes, by key, if the action's own version is another one.

    This is the case below a row without a position, which older events would outrank, and if the last delete has a
    lower position than one before it (a delete that is delivered again removes a read that came in between).
    """
    deletes = _deletes(changes.operation[rows.index])
    bare = ~rows.deleted & (version.position == NO_POSITION) & _within(deletes, rows)  # proven: tombstone-under-row
    # A delete that does not outrank, by position, the delete of the same key before it.
    position, at = changes.version.position[rows.index], np.flatnonzero(deletes)
    key_of_delete = np.searchsorted(rows.last, at)
    falling = (key_of_delete[1:] == key_of_delete[:-1]) & (position[at[1:]] <= position[at[:-1]])
    lower = np.zeros(len(rows.last), np.bool_)
    lower[key_of_delete[1:][falling]] = True
    lower &= rows.deleted
    firsts = _firsts(rows)
    tombstones = {}
    for action in np.flatnonzero(bare | lower).tolist():
        span = slice(firsts[action], rows.last[action] + 1)
        tombstone: RowVersion | None = None
        for event in rows.index[span][deletes[span]].tolist():
            tombstone = succeed(changes.version.row(event), tombstone)
        if tombstone is not None:
            tombstones[key[action].as_py()] = tombstone
    return tombstones


def _deletes(operation: npt.NDArray[np.uint8]) -> Bools:
    deletes: Bools = (operation == Operation.DELETE) | (operation == Operation.TOMBSTONE)
    return deletes


def _within(flags: Bools, rows: Incarnations) -> Bools:
    """The keys with a flagged event in the batch."""
    if not flags.any():
        return np.zeros(len(rows.last), np.bool_)
    within: Bools = latest(flags)[rows.last] >= _firsts(rows)
    return within


def _firsts(rows: Incarnations) -> Ints:
    """The position of each key's first event in ``Incarnations.index``."""
    return np.concatenate([[0], rows.last[:-1] + 1]) if len(rows.last) else rows.last


def _first_positions(version: Versions, rows: Incarnations, oldest: Ints) -> npt.NDArray[np.bytes_]:
    """The lowest source position among the events that still have a cell: that of the first one with a position."""
    position = version.position[rows.index]
    first = position[oldest]
    for action in np.flatnonzero((first == NO_POSITION) & (oldest < rows.last)):
        span = position[oldest[action] : rows.last[action] + 1]
        positioned = np.flatnonzero(span != NO_POSITION)
        if len(positioned):
            first[action] = span[positioned[0]]
    return first
